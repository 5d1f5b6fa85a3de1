"""Jobs on Spark, each a function: export a log to a table, verify a whole replica, count the records of a log.

As commands: ``litelog spark export``, ``verify``, ``stats``, ``hybrid``.
"""

from __future__ import annotations

from litelog.spark.jobs.export_job import export
from litelog.spark.jobs.hybrid_job import exported, hybrid, query
from litelog.spark.jobs.stats_job import stats
from litelog.spark.jobs.verify_job import verify

__all__ = ["export", "exported", "hybrid", "query", "stats", "verify"]
