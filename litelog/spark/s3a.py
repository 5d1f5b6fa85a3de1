"""Credentials and endpoint of S3 from Spark's own s3a settings, as options of the data source."""

from __future__ import annotations

from typing import Any

from litelog.spark.store_options import HADOOP, SPARK_PREFIX, SSL, read_store_options

_DEFAULTS = "core-default.xml"
"""Where Hadoop has what nobody set."""


def s3_options(spark: Any, bucket: str | None = None) -> dict[str, str]:
    """What ``spark.hadoop.fs.s3a.*`` says of S3, as options to read, write or stream with (``.options(**found)``).

    ``bucket``: whose own settings (``fs.s3a.bucket.NAME.*``) come first, as in Hadoop. Empty where Spark knows none:
    then the provider chain (environment, profile, the machine's role) holds, in the driver and in each executor. Works
    over Spark Connect. Options are not shown by ``explain``, the event log or a stream's checkpoint; do not write them
    into SQL text, which is.
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
    """A Hadoop setting, from where the session can tell it."""
    value = spark.conf.get(SPARK_PREFIX + name, None) or spark.conf.get(name, None)
    if value is None and (java := getattr(spark, "_jsc", None)) is not None:
        hadoop = java.hadoopConfiguration()
        sources = hadoop.getPropertySources(name)
        if sources and list(sources) != [_DEFAULTS]:
            value = hadoop.get(name)
    return None if value is None else str(value)
