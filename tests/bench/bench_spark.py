"""Queries a replica in Spark by data source and fast path, plans and exports it, against Parquet (zstd) of its rows.

All variants run in one session and take turns. Their results are compared with Parquet's before any measurement.
Processor time is that of the JVM and of the Python workers: other programs on the machine disturb it less than elapsed
time.

The targets are for ten million records. For a short run: --records 100000 --objects 2000 --rounds 1 --warming 1.
"""

from __future__ import annotations

import shutil
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from measuring import Finding, Report, bench_folder, folder_bytes, interleave, measure, rate, ratios
from planned_replica import make_replica
from process_times import tree_seconds

sys.path.insert(0, str(Path(__file__).parents[2]))

from litelog.spark import read, session, write
from litelog.spark.jobs import export
from litelog.spark.options import Engine, parse_options
from litelog.spark.scan.planning import plan
from tests.builders.spark_shipping import run_and_count

if TYPE_CHECKING:
    from collections.abc import Callable

SINCE = 1_700_000_000_000_000
ROWS = (
    'CAST(concat(\'{"device":\', id % 5000, \',"at":\', id, \',"reading":\', crc32(CAST(id AS STRING)), \',"text":"\','
    " substr(sha2(CAST(id AS STRING), 256), 1, 40), '\"}') AS BINARY) AS value",
    "CAST(concat('device-', lpad(id % 5000, 4, '0')) AS BINARY) AS key",
    f"timestamp_micros({SINCE} + id * 1000) AS timestamp",
)
"""Columns of a record of about 100 bytes."""

STARTED = time.monotonic()

PARQUET, SOURCE, FAST, WORKER = "parquet zstd", "data source", "fast path", "fast path, aggregated by workers"
COLUMNAR = "columnar reader"
NARROWED = "data source, with columns and times given"
"""Spark pushes columns and filters of a query down to Parquet, but not to a data source in Python: a schema and options
give them."""

TARGETS = {
    ("full scan", SOURCE): 0.8,
    ("sum of lengths", SOURCE): 0.55,
    ("filter and group", SOURCE): 0.45,
    ("full scan", FAST): 1.2,
    ("full scan", COLUMNAR): 1.8,
    ("sum of lengths", COLUMNAR): 1.6,
    ("filter and group", COLUMNAR): 1.2,
    ("count", COLUMNAR): 1.0,
    ("look-up", COLUMNAR): 1.0,
    ("sum of lengths", WORKER): 1.5,
    ("filter and group", WORKER): 1.8,
}


class Bench:
    """The same rows as Parquet and as a replica."""

    def __init__(self, spark: Any, folder: Path, records: int) -> None:
        self.spark = spark
        self.folder = folder
        self.records = records
        self.replica, self.parquet = str(folder / "replica"), str(folder / "parquet")
        self.middle = SINCE + records // 2 * 1000

    def prepare(self) -> None:
        rows = self.spark.range(0, self.records, 1, 16).selectExpr(*ROWS)
        write(rows, self.replica)
        log = self.spark.read.format("litelog").load(self.replica)
        log.write.mode("overwrite").option("compression", "zstd").parquet(self.parquet)

    # Each query, for each kind of reader

    def frame(self, kind: str) -> Any:
        if kind == PARQUET:
            return self.spark.read.parquet(self.parquet)
        if kind in (SOURCE, COLUMNAR):
            engine = Engine.JAVA if kind == COLUMNAR else Engine.PYTHON
            return self.spark.read.format("litelog").option("engine", engine).load(self.replica)
        return read(self.spark, self.replica, engine=Engine.PYTHON)

    def scan(self, kind: str) -> None:
        self.frame(kind).write.format("noop").mode("overwrite").save()

    def sum_lengths(self, kind: str) -> int:
        if kind == NARROWED:
            source = self._source_in_python().schema("value BINARY NOT NULL")
            frame = source.load(self.replica).selectExpr("sum(length(value)) AS sum")
        elif kind == WORKER:
            from pyarrow import compute

            length = {"length": compute.binary_length(compute.field("value"))}
            frame = read(self.spark, self.replica, columns=length, aggregate={"sum": ("length", "sum")})
        else:
            frame = self.frame(kind).selectExpr("sum(length(value)) AS sum")
        return int(frame.collect()[0]["sum"])

    def group(self, kind: str) -> dict[bytes, int]:
        if kind == WORKER:
            frame = self._grouped()
        else:
            later = (self._since_middle() if kind == NARROWED else self.frame(kind)).where(
                f"timestamp >= timestamp_micros({self.middle})"
            )
            frame = later.groupBy("key").count().withColumnRenamed("count", "n")
        return {bytes(row["key"]): row["n"] for row in frame.collect()}

    def _since_middle(self) -> Any:
        since = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.middle)).isoformat()
        source = self._source_in_python().schema("timestamp TIMESTAMP NOT NULL, key BINARY")
        return source.option("startingTimestamp", since).load(self.replica)

    def _source_in_python(self) -> Any:
        return self.spark.read.format("litelog").option("engine", Engine.PYTHON)

    def _grouped(self) -> Any:
        import pyarrow
        from pyarrow import compute

        middle = pyarrow.scalar(self.middle, pyarrow.timestamp("us", tz="UTC"))
        condition = compute.greater_equal(compute.field("timestamp"), middle)
        return read(self.spark, self.replica, where=condition, aggregate={"n": ("*", "count")}, group_by=["key"])

    def count(self, kind: str) -> int:
        if kind == FAST:
            return int(read(self.spark, self.replica, aggregate={"n": ("*", "count")}).collect()[0]["n"])
        return int(self.frame(kind).count())

    def look_up(self, kind: str) -> bytes:
        return bytes(self.frame(kind).where(f"sequence = {self.records // 3}").collect()[0]["value"])

    def requests(self) -> dict[str, int]:
        """Return how many requests for sealed segments the columnar reader makes, by query."""
        frame, later = self.frame(COLUMNAR), f"timestamp >= timestamp_micros({self.middle})"
        queries = {
            "full scan": frame,
            "sum of lengths": frame.select("value"),
            "filter and group": frame.where(later).select("key"),
            "look-up": frame.where(f"sequence = {self.records // 3}"),
        }
        return {query: run_and_count(asked)["requests"] for query, asked in queries.items()}

    def export(self) -> None:
        target = self.folder / "exported"
        shutil.rmtree(target, ignore_errors=True)
        done = export(self.spark, self.replica, str(target))
        if done.rows != self.records:
            raise SystemExit(f"exported {done.rows} records")

    def write_parquet(self) -> None:
        frame = self.frame(SOURCE)
        frame.write.mode("overwrite").option("compression", "zstd").parquet(str(self.folder / "written"))

    def queries(self) -> dict[str, dict[str, Callable[[], object]]]:
        """Map the name of each query to a function for each kind of reader."""
        return {
            "full scan": {kind: lambda kind=kind: self.scan(kind) for kind in (PARQUET, SOURCE, FAST, COLUMNAR)},  # type: ignore[misc]
            "sum of lengths": {
                kind: lambda kind=kind: self.sum_lengths(kind)  # type: ignore[misc]
                for kind in (PARQUET, SOURCE, NARROWED, FAST, WORKER, COLUMNAR)
            },
            "filter and group": {
                kind: lambda kind=kind: self.group(kind)  # type: ignore[misc]
                for kind in (PARQUET, SOURCE, NARROWED, FAST, WORKER, COLUMNAR)
            },
            "count": {kind: lambda kind=kind: self.count(kind) for kind in (PARQUET, FAST, COLUMNAR)},  # type: ignore[misc]
            "look-up": {kind: lambda kind=kind: self.look_up(kind) for kind in (PARQUET, COLUMNAR)},  # type: ignore[misc]
        }


def measure_processors(run: Callable[[], object], records: int) -> str:
    """Return the processor time of one run in the JVM and in the Python workers, scaled to ten million records."""
    before = tree_seconds()
    run()
    spent = {kind: (now - before.get(kind, 0)) * 10_000_000 / records for kind, now in tree_seconds().items()}
    return f"JVM {spent.get('java', 0):.2f} s, Python {spent.get('python', 0):.2f} s"


def measure_planning(objects: int, rounds: int) -> tuple[float, ...]:
    """Return the seconds to plan a scan of a replica with ``objects`` objects, for each round."""
    options = parse_options({"path": make_replica("bench-planning", objects)})
    return tuple(measure(lambda: plan(options)) for _ in range(rounds))


def show(step: str) -> None:
    """Print the current step on standard error."""
    click.echo(f"{time.monotonic() - STARTED:7.1f} s  {step}", err=True)


def require_equal(bench: Bench) -> None:
    """Raise SystemExit if the result of a variant differs from that of Parquet."""
    for query, variants in bench.queries().items():
        show(f"{query}: comparing the results")
        results = {kind: run() for kind, run in variants.items()}
        for kind, result in results.items():
            if result != results[PARQUET]:
                raise SystemExit(f"{query}: the result of {kind} differs from that of Parquet")


def _show_step(query: str, step: str) -> None:
    show(f"{query}: {step}")


@click.command(help=__doc__)
@click.option("--records", default=10_000_000, show_default=True, help="Number of records, of about 100 bytes each.")
@click.option("--rounds", default=4, show_default=True, help="Number of interleaved rounds.")
@click.option(
    "--warming",
    default=4,
    show_default=True,
    help="Number of rounds to warm up, until the JVM has compiled hot code as in a long session.",
)
@click.option(
    "--objects", default=100_000, show_default=True, help="Number of objects in the replica whose planning is measured."
)
@click.option("--master", default="local[2]", show_default=True)
@click.option("--patience", default=0.0, help="Seconds that each run may wait until the machine is quiet.")
@click.option("--folder", help="Folder to work in. It has to be on a disk.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    records: int,
    rounds: int,
    warming: int,
    objects: int,
    master: str,
    patience: float,
    folder: str | None,
    as_json: bool,
) -> None:
    show(f"planning {objects} objects")
    planned = measure_planning(objects, rounds + 1)
    spark = session("bench", master=master, driver_memory="4g", config={"spark.log.level": "ERROR"})
    report = Report(f"Spark, {records} records")
    report.findings.append(Finding(f"planning {objects} objects", "seconds", planned, at_most=2.0, unit="s"))
    with bench_folder(folder) as work:
        bench = Bench(spark, work, records)
        show("writing the replica and its Parquet")
        bench.prepare()
        require_equal(bench)
        report.figures["replica"] = f"{folder_bytes(work / 'replica') / 1e6:.0f} MB"
        report.figures["parquet"] = f"{folder_bytes(work / 'parquet') / 1e6:.0f} MB"
        for query, made in bench.requests().items():
            report.figures[f"{query}, requests of tasks: {COLUMNAR}"] = str(made)
        for query, variants in bench.queries().items():
            show(f"{query}: processor time")
            for kind, run in variants.items():
                report.figures[f"{query}, processors for 10 M: {kind}"] = measure_processors(run, records)
        for query, variants in bench.queries().items():
            calls = {kind: lambda run=run: measure(run) for kind, run in variants.items()}  # type: ignore[misc]
            show_step = partial(_show_step, query)
            times = interleave(calls, rounds, patience, warming=warming, show=show_step)
            for kind, taken in times.items():
                report.figures[f"{query}: {kind}"] = f"{min(taken):.2f} s at best"
                if kind != PARQUET:
                    target = TARGETS.get((query, kind))
                    found = ratios(times[PARQUET], taken)
                    report.findings.append(Finding(f"{query}: {kind}", PARQUET, found, target))
        writers = {"export": lambda: measure(bench.export), "writer": lambda: measure(bench.write_parquet)}
        times = interleave(writers, max(1, rounds // 2), patience, show=show)
        report.figures["export"] = rate(records * 120, times["export"])
        found = ratios(times["writer"], times["export"])
        report.findings.append(Finding("export", "Spark's Parquet writer", found, 2.0))
    spark.stop()
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
