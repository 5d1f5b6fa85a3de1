"""Spark reads and writes replicas: data source, fast path, jobs.

Nothing of Spark is loaded before it is used, so that this imports where it is not installed.
"""

from __future__ import annotations

from litelog.spark.session import session

__all__ = ["session"]
