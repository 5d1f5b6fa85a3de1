"""Reads with Spark a replica that a daemon in another process ships."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from litelog.spark.query.columnar import has_jar

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.spark.options import Engine


def read(
    spark: Any, place: str | list[str], columns: str = "", engine: Engine | None = None, **options: str
) -> list[Any]:
    """The rows, in the order of their sequences."""
    chosen = {} if engine is None else {"engine": engine}
    reader = spark.read.format("litelog").options(**options, **chosen)
    found = (reader.schema(columns) if columns else reader).load(place)
    return sorted(found.collect(), key=lambda row: row.sequence if "sequence" in row else 0)


def require_columnar(spark: Any) -> None:
    """Skip the test if no Java compiler has made the columnar reader."""
    if not has_jar(spark):
        pytest.skip("no Java compiler has made the columnar reader")


def run_and_count(frame: Any) -> dict[str, int]:
    """Run a query that is one scan by the columnar reader. Returns what its tasks report."""
    execution = frame._jdf.queryExecution()
    execution.toRdd().count()
    held = [execution.executedPlan()]
    while (plan := held.pop()).nodeName() != "BatchScan litelog":
        held.append(plan.executedPlan() if plan.nodeName() == "AdaptiveSparkPlan" else plan.children().head())
    return {name: plan.metrics().apply(name).value() for name in ("bytes", "requests", "frames", "skipped", "python")}


def micros(moment: datetime) -> int:
    return (moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def iso_time(micros: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()


def value_of(number: int) -> bytes:
    return b"value of %d" % number


class Shipping:
    """A daemon in a process. At the end of the context it makes its final sync and ends."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def __enter__(self) -> Shipping:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        output, _no_errors = self.process.communicate(timeout=240)
        assert self.process.returncode in (0, -15), output


def shipping(log: str, place: str, state: Path) -> Shipping:
    command = [sys.executable, "-m", "litelog_cli", "replicate", "--quiet", "--takeover", "--sync-interval", "50ms"]
    return Shipping([*command, "--state-dir", str(state), log, place])
