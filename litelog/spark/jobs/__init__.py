"""Jobs on Spark: a log to a table, a whole replica checked, what a log holds in numbers. Each a function.

As commands: ``litelog spark export``, ``verify``, ``stats``.
"""

from __future__ import annotations

from litelog.spark.jobs.export import export
from litelog.spark.jobs.hybrid import exported, hybrid

__all__ = ["export", "exported", "hybrid"]
