"""``spark.readStream.format("litelog")`` on real Spark: every record once in the sink, whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from litelog.log.writer import LogWriter
from litelog.shipping.context import Settings
from litelog.spark import StreamLag, describe, lag, lag_listener
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store
from replica_clients.file import FileStore
from tests.builders.daemon_builder import Daemon
from tests.builders.fault_proxy import Fault, When, fault_proxy
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.recorded_logs import unpack
from tests.builders.replica_builder import ReplicaBuilder
from tests.builders.replica_builder import make_log as make_segments
from tests.builders.servers import REGION
from tests.builders.spark_shipping import iso_time, micros, read, shipping, value_of
from tests.sampling import sampled_cases, times
from tests.spark.conftest import killed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.builders.fault_proxy import FaultProxy
    from tests.builders.servers import S3Server

RECORDS = 120
QUICK = {"pollInterval": "50ms"}
SECONDS = 240
"""Time for an awaited state on a busy machine."""


class Written:
    """A replica on disk, whose log grows commit by commit: partly sealed."""

    def __init__(self, folder: Path, records: int, *, segment: int = 20) -> None:
        self.url = str(folder / "replica")
        self.log: LogBuilder = make_log(folder / "log")
        settings = Settings(max_segment_bytes=1 << 20, snapshot_segments=2)
        self.daemon = Daemon(self.log, FileStore(self.url), str(folder / "state"), settings=settings)
        self.segment = segment
        self.add(records)

    def add(self, records: int) -> None:
        """Ship more records, two to a WAL segment."""
        for _ in range(records // 2):
            if self.log.next % self.segment == 0:
                self.log.roll(2)
            else:
                self.log.append(2)
            while self.daemon.sync():
                pass


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    made = Written(tmp_path_factory.mktemp("stream"), RECORDS)
    yield made
    made.daemon.close()


def stream(spark: Any, url: str, **options: str) -> Any:
    return spark.readStream.format("litelog").options(**{**QUICK, **options}).load(url)


def to_parquet(frame: Any, folder: Path, **trigger: Any) -> Any:
    """A query into ``folder``, which continues from its checkpoint."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "table"))
    return (
        writer.option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**trigger or {"processingTime": "0 seconds"})
        .start()
    )


def all_now(frame: Any, folder: Path) -> Any:
    """Run a query that writes the existing records into ``folder``."""
    query = to_parquet(frame, folder, availableNow=True)
    assert query.awaitTermination(SECONDS)
    return query


def table(spark: Any, folder: Path) -> list[Any]:
    """The rows in the sink, according to the sink's log."""
    metadata = (folder / "table" / "_spark_metadata").glob("[0-9]*")
    if not any(b'"path"' in path.read_bytes() for path in metadata):
        return []
    return sorted(spark.read.parquet(str(folder / "table")).collect())


def wait(condition: Callable[[], Any], query: Any = None) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        assert query is None or query.isActive, query.exception()
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("options", "first", "batches"),
    sampled_cases(
        [
            ({}, 0, 2),
            ({"startingSequence": "33", "includeMetadata": "true", "numPartitions": "3"}, 33, 2),
            ({"startingTimestamp": iso_time(70_000_000), "maxFilesPerTrigger": "1"}, 70, 4),
            ({"startingSequence": "latest"}, RECORDS, 1),
            ({"startingTimestamp": "earliest", "maxBytesPerTrigger": "3k", "mode": "PERMISSIVE"}, 0, 5),
        ],
        2,
        "options of a stream",
    ),
)
def test_it_gives_the_records_of_the_log(
    spark: Any, written: Written, tmp_path: Path, options: dict[str, str], first: int, batches: int
) -> None:
    all_now(stream(spark, written.url, **options), tmp_path)
    rows = table(spark, tmp_path)
    kept = {name: value for name, value in options.items() if name in ("includeMetadata", "mode")}
    expected = [row for row in read(spark, written.url, **kept) if row.sequence >= first]
    assert [tuple(row) for row in rows] == [tuple(row) for row in sorted(expected)]
    assert [micros(row.timestamp) // 1_000_000 for row in rows] == list(range(first, RECORDS))
    assert _commits(tmp_path) >= batches


def test_available_now_ends_and_continues_from_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    written = Written(tmp_path, 30)
    frame = stream(spark, written.url, maxOffsetsPerTrigger="7").select("sequence", "value")
    for count in (30, 30, 64):
        written.add(count - written.log.next)
        query = all_now(frame, tmp_path)
        behind = lag(query.lastProgress) if query.lastProgress else {}
        assert behind in ({written.url.strip("/"): StreamLag(0, 0, 0.0)}, {})
        assert behind or count == 30
        rows = table(spark, tmp_path)
        assert [row.sequence for row in rows] == list(range(count))
        assert [bytes(row.value) for row in rows] == [(b"r%d" % number).ljust(10, b".") for number in range(count)]
    written.daemon.close()


def test_a_listener_hears_how_far_it_is_behind_in_records_bytes_and_seconds(spark: Any, written: Written) -> None:
    found: list[StreamLag] = []
    name = written.url.strip("/")
    listener = lag_listener(lambda query, lags: found.append(lags[name]) if query == "behind" else None)
    spark.streams.addListener(listener)
    frame = stream(spark, written.url, maxRecordsPerTrigger="50").select("sequence")
    query = frame.writeStream.format("noop").queryName("behind").trigger(availableNow=True).start()
    assert query.awaitTermination(SECONDS)
    wait(lambda: found and found[-1].records == 0)
    spark.streams.removeListener(listener)
    assert [one.records for one in found] == sorted((one.records or 0 for one in found), reverse=True)
    assert max(one.records or 0 for one in found) >= RECORDS - 50
    assert all((one.bytes or 0) > 0 and (one.seconds or 0) > 0 for one in found if one.records)
    assert found[-1] == lag(query.lastProgress)[name] == StreamLag(0, 0, 0.0)
    assert describe(query.lastProgress).startswith(f"{name}: next is record {RECORDS} in generation 00000001")


def test_a_schema_prunes_columns_and_options_are_checked(spark: Any, written: Written) -> None:
    pruned = spark.readStream.format("litelog").schema("value binary not null, log string").load(written.url)
    assert pruned.columns == ["value", "log"]
    query = pruned.writeStream.format("memory").queryName("pruned").trigger(availableNow=True).start()
    assert query.awaitTermination(SECONDS)
    assert spark.table("pruned").count() == RECORDS
    for options, said in (({"endingSequence": "3"}, "a stream has no end"), ({"maxFiles": "3"}, "maxFilesPerTrigger")):
        with pytest.raises(Exception, match=said):
            stream(spark, written.url, **options).writeStream.format("noop").start().processAllAvailable()


def test_a_journal_is_followed_as_its_fragments_appear(spark: Any, tmp_path: Path) -> None:
    """Also in a session with the columnar reader; a query that begins again continues at the same line."""
    files = (path for path in unpack("gazette", "journal", tmp_path).rglob("*") if path.is_file())
    fragments = sorted(files, key=lambda path: path.name)
    journal = tmp_path / "growing"
    journal.mkdir()
    for some in (fragments[:1], fragments[1:-1], fragments[-1:]):
        for path in some:
            shutil.copy(path, journal / path.name)
        frame = stream(spark, str(journal), format="gazette", maxFilesPerTrigger="2")
        all_now(frame, tmp_path)
    rows = table(spark, tmp_path)
    assert [row.sequence for row in rows] == sorted({row.sequence for row in rows})
    assert [json.loads(row.value)["n"] for row in rows] == list(range(150))


@pytest.mark.timeout(900)
def test_it_follows_daemons_that_ship_seal_prune_and_succeed_each_other(spark: Any, tmp_path: Path) -> None:
    log, place = str(tmp_path / "log"), str(tmp_path / "replica")
    with LogWriter(log, segment_bytes=32 << 10) as writer:
        writer.append([value_of(0)])
        query = None
        for owner in range(2):
            with shipping(log, place, tmp_path / f"state{owner}"):
                wait(lambda: (Path(place) / "epochs").exists() and any(Path(place).rglob("*.wal.lz4")))
                query = query or to_parquet(stream(spark, place, includeMetadata="true"), tmp_path)
                for _ in range(times(2, at_night=5)):
                    first = writer.next_sequence
                    writer.append([value_of(number) for number in range(first, first + 700)])
                    wait(lambda first=first: len(table(spark, tmp_path)) >= first, query)  # type: ignore[misc]
        total = writer.next_sequence
    wait(lambda: len(table(spark, tmp_path)) >= total, query)
    query.stop()
    rows = table(spark, tmp_path)
    assert [(row.sequence, bytes(row.value)) for row in rows] == [(number, value_of(number)) for number in range(total)]
    assert len({row.generation for row in rows}) == 2
    assert any(Path(place).rglob("*.segment.lz4"))


def test_retention_that_overtook_it_is_an_error_or_a_warning(spark: Any, tmp_path: Path) -> None:
    url = str(tmp_path / "replica")
    builder = ReplicaBuilder()
    builder.store = FileStore(url)  # type: ignore[assignment]
    builder.client = ObjectReplicaClient(builder.store)
    generation, log = builder.add(), make_segments([[2, 1], [2, 2], [3]])
    generation.ship(log[0].data[: log[0].ends[0]], log[0].name)
    frames = {word: stream(spark, url, failOnDataLoss=word) for word in ("true", "false")}
    for word, frame in frames.items():
        all_now(frame, tmp_path / word)
        assert [row.sequence for row in table(spark, tmp_path / word)] == [0, 1]
    generation.ship(log[0].data[log[0].ends[0] :], log[0].name, final=True)
    generation.ship_segment(log[1])
    generation.ship_segment(log[2], final=None)
    generation.snapshot(2, first=1)
    generation.prune(2)
    builder.client.delete_sealed_segments([(generation.name, 0)])
    with pytest.raises(Exception, match=f"PrunedError.*{generation.name}/{0:016x}/{log[0].ends[0]:016x}"):
        all_now(frames["true"], tmp_path / "true")
    all_now(frames["false"], tmp_path / "false")
    assert [row.sequence for row in table(spark, tmp_path / "false")] == [0, 1, *range(3, 10)]


@contextmanager
def _bucket(server: S3Server) -> Iterator[tuple[FaultProxy, str, dict[str, str]]]:
    """A replica of 60 records behind a proxy, and the options for it, with a real secret."""
    with fault_proxy(server.endpoint) as proxy:
        name = server.make_bucket()
        secrets = {"access-key-id": "canary-key", "secret-access-key": "canary-secret"}
        options = {"endpoint": proxy.endpoint, "region": REGION, **secrets}
        yield proxy, f"s3://{name}/log", {f"s3.{option}": value for option, value in options.items()}


@pytest.mark.timeout(600)
def test_an_idle_stream_lists_nothing_survives_store_failures_and_writes_no_secret(
    spark: Any, server: S3Server, tmp_path: Path
) -> None:
    with _bucket(server) as (proxy, url, options):
        store = open_store(url, {name.removeprefix("s3."): value for name, value in options.items()})
        log = make_log(tmp_path / "log")
        daemon = Daemon(log, store, str(tmp_path / "state"))
        log.roll(10)
        while daemon.sync():
            pass
        query = to_parquet(stream(spark, url, **options).select("sequence"), tmp_path)
        wait(lambda: len(table(spark, tmp_path)) == 10, query)
        proxy.reset_counts()
        wait(lambda: proxy.operations["GET"] >= 20, query)
        assert proxy.operations["LIST"] == 0
        for fault in (Fault.SLOW_DOWN, Fault.INTERNAL_ERROR, Fault.RESET):
            proxy.plan.next("GET", fault, When.BEFORE, times=2)
        wait(lambda: proxy.plan.unused == 0, query)
        log.append(5)
        while daemon.sync():
            pass
        wait(lambda: len(table(spark, tmp_path)) == 15, query)
        query.stop()
        daemon.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b'"generation":' in kept
    assert b"canary" not in kept


DRIVER = """
import sys
from litelog.spark.spark_session import session
from tests.spark.conftest import JVM

url, folder = sys.argv[1:]
spark = session("killed", master="local[2,4]", driver_memory="512m", config=JVM)
frame = spark.readStream.format("litelog").options(maxFilesPerTrigger="3", pollInterval="50ms").load(url)
writer = frame.writeStream.format("parquet").option("path", folder + "/table")
writer.option("checkpointLocation", folder + "/checkpoint").start().awaitTermination()
"""


def _commits(folder: Path) -> int:
    place = folder / "checkpoint" / "commits"
    return sum(not name.startswith(".") for name in os.listdir(place)) if place.exists() else 0


def _workers(session: int) -> list[int]:
    """The ids of the Python workers in a session, except the process that forks them."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            command = Path(f"/proc/{name}/cmdline").read_bytes()
            parent = Path(f"/proc/{fields[1]}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and b"pyspark.daemon" in command and b"pyspark.daemon" in parent:
            found.append(int(name))
    return found


@killed("stream")
@pytest.mark.timeout(1200)
def test_killed_drivers_and_workers_leave_every_record_once(spark: Any, tmp_path: Path) -> None:
    """kill -9 ends the Python workers, and the driver with all of its processes, in the middle of a stream: at night
    three times. Meanwhile the log grows and is sealed."""
    written = Written(tmp_path, 200)
    killed, kills = 0, times(1, at_night=3)
    for _ in range(kills):
        before = _commits(tmp_path)
        with open(tmp_path / "output", "wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, written.url, str(tmp_path)],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            wait(lambda: _commits(tmp_path) > before or process.poll() is not None)  # noqa: B023
            assert process.poll() is None, (tmp_path / "output").read_text()[-2000:]
            workers = _workers(process.pid)
            for worker in workers[:2]:
                killed += 1
                os.kill(worker, signal.SIGKILL)
            reached = _commits(tmp_path)
            wait(lambda: _commits(tmp_path) > reached or process.poll() is not None)  # noqa: B023
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        written.add(40)
    assert killed
    assert 0 < len(table(spark, tmp_path)) < written.log.next
    all_now(stream(spark, written.url, maxFilesPerTrigger="30"), tmp_path)
    rows = table(spark, tmp_path)
    assert [row.sequence for row in rows] == list(range(200 + 40 * kills))
    written.daemon.close()
