"""Jobs on Spark, each a function: export a log to a table, verify a whole replica, count what a log holds.

As commands: ``litelog spark export``, ``verify``, ``stats``, ``hybrid``.
"""

from __future__ import annotations

from litelog.spark.jobs.export import export
from litelog.spark.jobs.hybrid import exported, hybrid, query
from litelog.spark.jobs.stats import stats
from litelog.spark.jobs.verify import verify

__all__ = ["export", "exported", "hybrid", "query", "stats", "verify"]
