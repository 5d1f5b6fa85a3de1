"""Reads the partitions of a plan as Spark's tasks do, without Spark."""

from __future__ import annotations

import io
import os
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import LitelogError
from litelog.spark.options import parse_options
from litelog.spark.scan.decoding import read_partition
from litelog.spark.scan.planning import plan
from litelog.spark.scan.schema import log_columns
from litelog.stores.registry import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from litelog.spark.scan.partitions import Plan

_names = count()


def stored(objects: Mapping[str, bytes]) -> str:
    """Store these objects in this process's memory; return the URL of their replica."""
    url = f"memory://spark-{next(_names)}"
    store = open_store(url)
    for key, body in objects.items():
        store.put(key, [body])
    return url


def planned(url: str, **options: object) -> Plan:
    """The plan of a read, with options as Spark passes them."""
    return plan(parse_options(_spelled(url, options)))


def rows(url: str, plan_made: Plan | None = None, **options: object) -> list[dict[str, Any]]:
    """The rows of all partitions, in order, as dictionaries."""
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


def table_sequences(target: str | Path) -> list[int]:
    """The sequences in all Parquet files in a table's folders. It ignores manifests, as a simple reader does."""
    from pyarrow import parquet

    found: list[int] = []
    for folder, _, names in os.walk(target):
        for name in names:
            if name.endswith(".parquet"):
                found += parquet.ParquetFile(os.path.join(folder, name)).read(["sequence"])["sequence"].to_pylist()
    return sorted(found)


def shown_by_spark(call: Callable[[], object], *, simplified: bool = True) -> str:
    """The text that a Spark worker sends for the error that ``call`` raises. Spark simplifies it by default."""
    from pyspark.util import handle_worker_exception

    name, sent = "SPARK_SIMPLIFIED_TRACEBACK", io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, "1") if simplified else patch.delenv(name, raising=False)
        try:
            call()
        except (KeyError, LitelogError) as error:
            handle_worker_exception(error, sent, hide_traceback=False)
    return sent.getvalue()[8:].decode()
