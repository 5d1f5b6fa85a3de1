"""Reads what a plan says without Spark, as its tasks do."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from litelog.registry import open_store
from litelog.spark.decoding import read_partition
from litelog.spark.options import parse_options
from litelog.spark.planning import plan
from litelog.spark.schema import log_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.spark.partitions import Plan

_names = count()


def stored(objects: Mapping[str, bytes]) -> str:
    """The URL of a replica of those objects, in this process's memory."""
    url = f"memory://spark-{next(_names)}"
    store = open_store(url)
    for key, body in objects.items():
        store.put(key, [body])
    return url


def planned(url: str, **options: object) -> Plan:
    """The plan; options as Spark gives them."""
    return plan(parse_options(_spelled(url, options)))


def rows(url: str, plan_made: Plan | None = None, **options: object) -> list[dict[str, Any]]:
    """The rows of all partitions, one behind the other, as dictionaries."""
    parsed = parse_options(_spelled(url, options))
    columns = log_columns(parsed, has_timestamps=False, has_generations=False)
    made = plan(parsed) if plan_made is None else plan_made
    return [
        row
        for partition in made.partitions
        for batch in read_partition(partition, columns)
        for row in batch.to_pylist()
    ]


def values(url: str, plan_made: Plan | None = None, **options: object) -> list[bytes]:
    """The values of all rows."""
    return [row["value"] for row in rows(url, plan_made, **options)]


def _spelled(url: str, options: Mapping[str, object]) -> dict[str, str]:
    return {"path": url, **{name.lower(): str(value) for name, value in options.items()}}
