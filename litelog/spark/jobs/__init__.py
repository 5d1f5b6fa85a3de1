"""Jobs on Spark, each a function: export a log to a table, compact it, verify a whole replica, count a log's records.

As commands: ``litelog spark export``, ``compact``, ``verify``, ``stats``, ``hybrid``.
"""

from __future__ import annotations

from litelog.spark.jobs.compact_job import compact
from litelog.spark.jobs.export_job import export
from litelog.spark.jobs.hybrid_job import exported, hybrid, query
from litelog.spark.jobs.stats_job import stats
from litelog.spark.jobs.verify_job import verify

__all__ = ["compact", "export", "exported", "hybrid", "query", "stats", "verify"]
