"""Measures Spark streams over a replica: their latency, and how fast they catch up with many small WAL segments.

Latency is the time from when a WAL segment is durable in the replica until the sink has its rows. For the catch-up, the
store answers each GET after some milliseconds. One stream reads all WAL segments in one batch, another one a sample of
them with a task for each; the time of its tasks is scaled to all WAL segments.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click
from measuring import Finding, Report, bench_folder, measure, milliseconds
from slow_gets import register

from litelog.formats.lines import LinesFormat
from litelog.spark import session
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.file import FileStore
from tests.builders.replica_builder import GenerationBuilder, ReplicaBuilder

if TYPE_CHECKING:
    from pathlib import Path

WAIT_SECONDS = 60.0
PHASES = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
LINE = b"x" * 99 + b"\n"


class GrowingReplica:
    """A replica that grows by small WAL segments of ten lines each."""

    def __init__(self, folder: Path, count: int) -> None:
        self.path = str(folder)
        builder = ReplicaBuilder(LinesFormat("app.*"))
        builder.store = FileStore(self.path)  # type: ignore[assignment]
        builder.client = ObjectReplicaClient(builder.store)
        self._generation: GenerationBuilder = builder.add()
        self.records = 0
        for _ in range(count):
            self.ship()

    def ship(self) -> float:
        """Ship one more WAL segment, and return the monotonic time at which it was durable."""
        self._generation.ship(LINE * 10, "app.0")
        self.records += 10
        return time.monotonic()


def latencies(spark: Any, folder: Path, count: int, poll: str) -> tuple[list[float], dict[str, list[float]]]:
    """Ship ``count`` WAL segments one by one.

    Returns:
        For each WAL segment the seconds from durable to visible, and Spark's own figures: seconds by phase.
    """
    replica, visible = GrowingReplica(folder / "replica", 1), {}

    def record(frame: Any, batch: int) -> None:
        rows = frame.select("sequence").collect()
        if rows:
            visible[rows[-1].sequence + 1] = time.monotonic()

    stream = spark.readStream.format("litelog").option("pollInterval", poll).load(replica.path)
    checkpoint = str(folder / "checkpoint")
    query = stream.writeStream.foreachBatch(record).option("checkpointLocation", checkpoint).start()
    taken: list[float] = []
    phases: dict[str, list[float]] = {}
    try:
        for number in range(count + 3):
            _wait(query, lambda: replica.records in visible)
            time.sleep(0.3 + 0.037 * (number % 10))  # spreads the arrivals over the interval between two polls
            durable = replica.ship()
            _wait(query, lambda: replica.records in visible)
            taken.append(visible[replica.records] - durable)
            for progress in query.recentProgress[-1:]:
                for name, spent in progress["durationMs"].items():
                    phases.setdefault(name, []).append(spent / 1000)
    finally:
        query.stop()
    return taken[3:], phases  # during the first three Spark started its workers


def _wait(query: Any, condition: Any) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if not query.isActive or time.monotonic() > deadline:
            raise click.ClickException(f"the stream delivered nothing: {query.exception()}")
        time.sleep(0.005)


def catch_up(spark: Any, url: str, folder: Path, records: int, **options: object) -> float:
    """Return the seconds that a new stream takes to read the whole replica."""
    counts = []

    def record(frame: Any, batch: int) -> None:
        counts.append(frame.count())

    stream = spark.readStream.format("litelog").options(**options).load(url)
    writer = (
        stream.writeStream.foreachBatch(record).option("checkpointLocation", str(folder)).trigger(availableNow=True)
    )
    taken = measure(lambda: writer.start().awaitTermination())
    if sum(counts) != records:
        raise click.ClickException(f"{sum(counts)} of {records} records were read")
    return taken


@click.command()
@click.option("--arrivals", default=20, help="Number of WAL segments whose latency is measured.")
@click.option("--pieces", default=10_000, help="Number of small WAL segments to catch up with.")
@click.option("--sample", default=200, help="Number of WAL segments that are read by a task each.")
@click.option("--milliseconds", "wait", default=30, help="Milliseconds that a GET takes.")
@click.option("--poll", default="100ms", help="The stream's poll interval.")
@click.option("--folder", "given", help="Folder to work in. It has to be on a disk.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(arrivals: int, pieces: int, sample: int, wait: int, poll: str, given: str | None, as_json: bool) -> None:
    """Measure a stream's latency, and how it catches up with many small WAL segments."""
    report = Report("Spark streams")
    with bench_folder(given) as folder:
        register(folder / "drivers")
        spark = session("bench", master="local[2]", driver_memory="2g")
        spark.sparkContext.setLogLevel("ERROR")
        taken, phases = latencies(spark, folder / "latency", arrivals, poll)
        report.figures["durable to visible"] = milliseconds(taken)
        report.figures |= {f"{name}, part of it": milliseconds(phases.get(name, [0.0])) for name in PHASES}
        report.findings.append(Finding("latency under 400 ms", "0.4 s", tuple(0.4 / each for each in taken), 1.0))
        small, few = GrowingReplica(folder / "small", pieces), GrowingReplica(folder / "few", sample)
        many = catch_up(spark, f"latent://{wait}{small.path}", folder / "a", small.records)
        each = catch_up(spark, f"latent://{wait}{few.path}", folder / "b", few.records, numPartitions=sample)
        estimate = each * pieces / sample
        report.figures[f"{pieces} WAL segments, {wait} ms per GET"] = f"{many:.2f} s"
        report.figures["one task per WAL segment"] = f"{each:.2f} s for {sample}, so {estimate:.1f} s for all"
        report.findings.append(Finding("one batch", "one task per WAL segment", (estimate / many,), 10.0))
        spark.stop()
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
