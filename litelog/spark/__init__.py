"""Spark reads and writes replicas: data source, fast path, jobs.

Nothing of Spark is loaded before it is used, so that this imports where it is not installed.
"""

from __future__ import annotations

from litelog.spark.query.dataframe import read
from litelog.spark.s3a import s3_options
from litelog.spark.session import session
from litelog.spark.sink.dataframe import write

__all__ = ["read", "s3_options", "session", "write"]
