"""Reads S3 credentials and the endpoint from Spark's own s3a settings, as options of the data source."""

from __future__ import annotations

from typing import Any

from litelog.spark.store_options import HADOOP, SPARK_PREFIX, SSL, read_store_options

_DEFAULTS = "core-default.xml"
"""Hadoop's source for values that nobody set."""


def s3_options(spark: Any, bucket: str | None = None) -> dict[str, str]:
    """Return what ``spark.hadoop.fs.s3a.*`` sets for S3, as options to read, write or stream with.

    Works over Spark Connect. ``explain``, the event log and a stream's checkpoint do not show options. SQL text is
    shown, so do not write these options into it.

    Args:
        spark: the SparkSession.
        bucket: bucket whose own settings (``fs.s3a.bucket.NAME.*``) take precedence, as in Hadoop.

    Returns:
        Options to pass as ``.options(**found)``. Empty if Spark has no such setting: then the driver and each executor
        use the provider chain (environment, profile, the machine's role).
    """
    found: dict[str, str] = {}
    for name in (*HADOOP, SSL):
        names = [name] if bucket is None else [name.replace("fs.s3a.", f"fs.s3a.bucket.{bucket}.", 1), name]
        value = next((held for held in (_setting(spark, spelled) for spelled in names) if held), None)
        if value is not None:
            found[name] = value
    store, _ = read_store_options(found)
    return {f"s3.{name}": value for name, value in store.items()}


def _setting(spark: Any, name: str) -> str | None:
    """A Hadoop setting, from whichever place the session can read it."""
    value = spark.conf.get(SPARK_PREFIX + name, None) or spark.conf.get(name, None)
    if value is None and (java := getattr(spark, "_jsc", None)) is not None:
        hadoop = java.hadoopConfiguration()
        sources = hadoop.getPropertySources(name)
        if sources and list(sources) != [_DEFAULTS]:
            value = hadoop.get(name)
    return None if value is None else str(value)
