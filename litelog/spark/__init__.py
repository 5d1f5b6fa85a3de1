"""Reads and writes replicas with Spark: a data source, a fast path and jobs.

PySpark is imported only when it is used, so this package can be imported without it.
"""

from __future__ import annotations

from litelog.spark.query.dataframe import read
from litelog.spark.query.latest_by_key import latest_by_key
from litelog.spark.query.values import decode
from litelog.spark.sink.dataframe import write
from litelog.spark.spark_session import session
from litelog.spark.store_options import s3_options
from litelog.spark.stream.lag import StreamLag, describe, lag
from litelog.spark.stream.listener import lag_listener

__all__ = [
    "StreamLag",
    "decode",
    "describe",
    "lag",
    "lag_listener",
    "latest_by_key",
    "read",
    "s3_options",
    "session",
    "write",
]
