"""Jobs on Spark: a log to a table, a whole replica checked, what a log holds in numbers. Each a function.

As commands: ``litelog spark export``, ``verify``, ``stats``, ``hybrid``.
"""

from __future__ import annotations

from litelog.spark.jobs.export import export
from litelog.spark.jobs.hybrid import exported, hybrid, query
from litelog.spark.jobs.stats import stats
from litelog.spark.jobs.verify import verify

__all__ = ["export", "exported", "hybrid", "query", "stats", "verify"]
