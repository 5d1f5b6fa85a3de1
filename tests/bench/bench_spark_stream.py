"""Streams of Spark over a replica: how soon what is durable there is visible in the sink, and what small pieces cost.

Latency is counted from the moment at which a WAL segment is durable in the replica to the one at which the sink has its
rows. Small pieces lie in a store that answers each GET after some milliseconds; a stream's batch of all of them is held
against a task for each object, of which as many as are asked for are run, and the others reckoned.
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


class Pieces:
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
        """Ship one more; when it was durable."""
        self._generation.ship(LINE * 10, "app.0")
        self.records += 10
        return time.monotonic()


def latencies(spark: Any, folder: Path, count: int, poll: str) -> tuple[list[float], dict[str, list[float]]]:
    """Seconds from durable to visible, for a number of WAL segments in turn, and Spark's own figures."""
    pieces, seen = Pieces(folder / "replica", 1), {}

    def note(frame: Any, batch: int) -> None:
        rows = frame.select("sequence").collect()
        if rows:
            seen[rows[-1].sequence + 1] = time.monotonic()

    stream = spark.readStream.format("litelog").option("pollInterval", poll).load(pieces.path)
    checkpoint = str(folder / "checkpoint")
    query = stream.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint).start()
    taken: list[float] = []
    phases: dict[str, list[float]] = {}
    try:
        for number in range(count + 3):
            _wait(query, lambda: pieces.records in seen)
            time.sleep(0.3 + 0.037 * (number % 10))  # at any moment between two polls
            durable = pieces.ship()
            _wait(query, lambda: pieces.records in seen)
            taken.append(seen[pieces.records] - durable)
            for progress in query.recentProgress[-1:]:
                for name, spent in progress["durationMs"].items():
                    phases.setdefault(name, []).append(spent / 1000)
    finally:
        query.stop()
    return taken[3:], phases  # workers were started meanwhile


def _wait(query: Any, condition: Any) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if not query.isActive or time.monotonic() > deadline:
            raise click.ClickException(f"the stream gave nothing: {query.exception()}")
        time.sleep(0.005)


def catch_up(spark: Any, url: str, folder: Path, records: int, **options: object) -> float:
    """Seconds of a stream that reads all there is, from its start on."""
    found = []

    def note(frame: Any, batch: int) -> None:
        found.append(frame.count())

    stream = spark.readStream.format("litelog").options(**options).load(url)
    writer = stream.writeStream.foreachBatch(note).option("checkpointLocation", str(folder)).trigger(availableNow=True)
    taken = measure(lambda: writer.start().awaitTermination())
    if sum(found) != records:
        raise click.ClickException(f"{sum(found)} of {records} records came")
    return taken


@click.command()
@click.option("--arrivals", default=20, help="WAL segments whose way is measured.")
@click.option("--pieces", default=10_000, help="Small WAL segments that are caught up with.")
@click.option("--sample", default=200, help="How many of them are read by a task each.")
@click.option("--milliseconds", "wait", default=30, help="What a GET takes.")
@click.option("--poll", default="100ms", help="The stream's poll interval.")
@click.option("--folder", "given", help="Where to work; a temporary one there is removed afterwards.")
@click.option("--json", "as_json", is_flag=True)
def main(arrivals: int, pieces: int, sample: int, wait: int, poll: str, given: str | None, as_json: bool) -> None:
    """Measure a stream's latency, and how it catches up with many small pieces."""
    report = Report("Spark streams")
    with bench_folder(given) as folder:
        register(folder / "drivers")
        spark = session("bench", master="local[2]", driver_memory="2g")
        spark.sparkContext.setLogLevel("ERROR")
        taken, phases = latencies(spark, folder / "latency", arrivals, poll)
        report.figures["durable to visible"] = milliseconds(taken)
        report.figures |= {f"of that {name}": milliseconds(phases.get(name, [0.0])) for name in PHASES}
        report.findings.append(Finding("latency under 400 ms", "0.4 s", tuple(0.4 / each for each in taken), 1.0))
        small, few = Pieces(folder / "small", pieces), Pieces(folder / "few", sample)
        many = catch_up(spark, f"latent://{wait}{small.path}", folder / "a", small.records)
        each = catch_up(spark, f"latent://{wait}{few.path}", folder / "b", few.records, numPartitions=sample)
        reckoned = each * pieces / sample
        report.figures[f"{pieces} pieces, {wait} ms a GET"] = f"{many:.2f} s"
        report.figures["a task for each"] = f"{each:.2f} s for {sample}: {reckoned:.1f} s for all"
        report.findings.append(Finding("small pieces", "a task for each", (reckoned / many,), 10.0))
        spark.stop()
    report.print(as_json=as_json)


if __name__ == "__main__":
    main()
