"""The newest record of each key, as a DataFrame."""

from __future__ import annotations

from typing import Any

from litelog.errors import ConfigError
from litelog.spark.query.names import quoted


def latest_by_key(df: Any, *, key: str = "key", order: str = "sequence") -> Any:
    """Keep the newest row of each key, as log compaction does.

    >>> latest_by_key(read(spark, "s3://bucket/users"))

    With a column ``log`` it keeps one row for each key of each log, as sequences of different logs cannot be compared.
    Rows without a key are left out.

    A stream keeps a row for each key in its state. It needs the output mode ``update``, which writes the rows of keys
    that are new or changed in a batch, or ``complete``, which writes all of them. Spark does not allow ``append`` here.

    Args:
        df: a DataFrame, batch or stream, with the columns ``key`` and ``order``.
        key: the column with the key. It can be any type by which Spark groups.
        order: the column whose highest value is the newest one. Of equal values one is kept.

    Returns:
        The DataFrame, with the same columns.

    Raises:
        ConfigError: a column is missing.
    """
    from pyspark.sql import functions  # noqa: PLC0415 - an extra

    names = df.columns
    for argument, name in (("key", key), ("order", order)):
        if name not in names:
            raise ConfigError(f"latest_by_key: {argument}={name!r} is not a column; there are {', '.join(names)}")
    groups = [key, *(["log"] if "log" in names and key != "log" else [])]
    row = functions.struct(*(functions.col(quoted(name)) for name in names))
    newest = functions.max_by(row, functions.col(quoted(order))).alias("newest")
    held = df.where(functions.col(quoted(key)).isNotNull()).groupBy(*map(quoted, groups)).agg(newest)
    return held.select(*(functions.col(f"newest.{quoted(name)}").alias(name) for name in names))
