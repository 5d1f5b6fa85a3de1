"""Reads with the columnar reader: Python plans, and Java reads, filters and prunes columns in Spark's own processes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError
from litelog.spark.jvm.handover import is_columnar, pack_plan
from litelog.spark.jvm.jar import JAR_PREFIX, PROVIDER
from litelog.spark.query.filters import COMPARISONS
from litelog.spark.scan.schema import TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.spark.query.arrow_query import Query
    from litelog.spark.query.filters import Condition
    from litelog.spark.scan.partitions import Partition


def has_jar(spark: Any) -> bool:
    """Whether the session was started with the jar of the columnar reader."""
    jars = spark.conf.get("spark.jars", "") or ""
    return any(jar.rpartition("/")[2].startswith(JAR_PREFIX) for jar in jars.split(","))


def is_expressible(where: Any, columns: Any, aggregate: Any) -> bool:
    """Whether Spark can express the query: conditions as a list, columns by their names, and no aggregates."""
    named = not hasattr(columns, "items") or all(isinstance(of, str) and of in TYPES for of in columns.values())
    return named and not aggregate and (where is None or isinstance(where, list | tuple))


def columnar_frame(
    spark: Any,
    partitions: Sequence[Partition],
    query: Query,
    conditions: Sequence[Condition],
    columns: Sequence[str] | Mapping[str, str] | None,
    *,
    required: bool,
) -> Any:
    """The rows of a planned query. None if Java would read nothing of it, unless the columnar reader is required."""
    if not required and not is_columnar(partitions):
        return None
    packed = pack_plan(partitions, query.columns)
    if packed is None:
        if required:
            raise ConfigError("engine=java: the plan is too long to be passed to Spark; narrow it, or leave it out")
        return None
    from pyspark.sql import functions  # noqa: PLC0415 - an extra

    frame = spark.read.format(PROVIDER).option("plan", packed).load()
    if conditions:
        frame = frame.where(reduce(and_, (_express(functions, one) for one in conditions)))
    if columns is None:
        return frame
    named = {name: columns[name] if isinstance(columns, Mapping) else name for name in columns}
    return frame.select(*(functions.col(of).alias(name) for name, of in named.items()))


def _express(functions: Any, condition: Condition) -> Any:
    """A condition in Spark. A null meets none."""
    column = functions.col(condition.column)
    values = [functions.lit(value) for value in condition.values]
    if condition.operator in COMPARISONS:
        return COMPARISONS[condition.operator](column, values[0])
    held = column.isin(*values)
    return held if condition.operator == "in" else ~held & column.isNotNull()
