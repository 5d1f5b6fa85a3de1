"""Recorded partitions are shipped, restored, and read by every reader, with gaps, markers and compressed batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

from litelog.api.open_replica import open_replica
from litelog.errors import SourceMissingError
from litelog.formats.kafka import KafkaFormat
from litelog.log.reader import LogReader
from litelog.restore.history_plan import find_plan
from litelog.restore.plan import Target, TooEarlyError
from litelog.shipping.context import Settings
from litelog.spark.options import parse_options
from litelog.spark.query.counting import count_records
from litelog.spark.scan.decoding import read_partition
from litelog.spark.scan.planning import plan, stated_columns
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store
from tests.builders.daemon_builder import Daemon, newest_snapshot, restored
from tests.builders.kafka_log import SERVED_SCENES, as_served, recording
from tests.builders.log_builder import LogBuilder
from tests.builders.manual_clock import ManualClock
from tests.builders.verify_helper import found, verified

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def ship(scene: str, tmp_path: Path) -> tuple[Daemon, str]:
    """Ship a recorded partition, with a snapshot at each seal. Returns the daemon and the replica's URL."""
    folder = recording(scene).write(tmp_path)
    url = f"file://{tmp_path}/replica"
    log = LogBuilder(str(folder), KafkaFormat())
    settings = Settings(max_segment_bytes=1 << 20, snapshot_segments=1)
    daemon = Daemon(log, open_store(url), str(tmp_path / "state"), clock=ManualClock(), settings=settings)
    daemon.sync()
    return daemon, url


def served(scene: str) -> list[dict[str, Any]]:
    """The records that the broker served: not those before its first offset in the same log segment."""
    return recording(scene).served["read_uncommitted"]


@pytest.mark.parametrize("scene", SERVED_SCENES)
def test_a_partition_is_restored_and_verified(scene: str, tmp_path: Path) -> None:
    daemon, _ = ship(scene, tmp_path)
    copy = restored(daemon.store, tmp_path / "out", daemon.log.format)
    files = {name: body for name, body in recording(scene).files.items() if name in copy}
    assert {name: body.rstrip(b"\0") for name, body in copy.items()} == {
        name: body.rstrip(b"\0") for name, body in files.items()
    }
    assert {
        name for name in recording(scene).files if name.endswith((".log", "checkpoint", ".metadata"))
    } >= copy.keys()
    assert found(verified(daemon.store, daemon.log.format, against=daemon.log.folder)) == []


@pytest.mark.parametrize("scene", SERVED_SCENES)
def test_every_reader_gives_the_records_that_the_broker_served(scene: str, tmp_path: Path) -> None:
    daemon, url = ship(scene, tmp_path)
    expected = served(scene)
    first = recording(scene).bounds["read_uncommitted"]["first"]
    with open_replica(url, start=first) as records:
        assert [as_served(record) for record in records] == expected
    with LogReader(daemon.log.folder, KafkaFormat(), start=first) as reader:
        assert [as_served(record) for record in reader] == expected
    with open_replica(url, start=first, isolation="read_committed") as records:
        assert [as_served(record) for record in records] == recording(scene).served["read_committed"]


def test_a_daemon_waits_for_the_file_that_precedes_the_first_record(tmp_path: Path) -> None:
    folder = recording("plain_none").write(tmp_path)
    log, metadata = folder / f"{0:020d}.log", folder / "partition.metadata"
    bodies = {path: path.read_bytes() for path in (log, metadata)}
    log.write_bytes(bytes(64))
    metadata.unlink()
    store = open_store(f"file://{tmp_path}/replica")

    def begin(state: str) -> Daemon:
        return Daemon(LogBuilder(str(folder), KafkaFormat()), store, str(tmp_path / state), clock=ManualClock())

    with pytest.raises(SourceMissingError, match="no record yet"):
        begin("first").sync()
    assert [info.key for info in store.list("") if "snapshot" in info.key] == []
    metadata.write_bytes(bodies[metadata])
    daemon = begin("second")
    daemon.sync()
    assert bodies[metadata] in [file.body for file in newest_snapshot(daemon).side_files]


def test_a_partition_of_an_old_broker_has_no_topic_id_to_wait_for(tmp_path: Path) -> None:
    folder = recording("plain_none").write(tmp_path)
    (folder / "partition.metadata").unlink()
    log = LogBuilder(str(folder), KafkaFormat())
    daemon = Daemon(log, open_store(f"file://{tmp_path}/replica"), str(tmp_path / "state"), clock=ManualClock())
    assert daemon.sync()


def test_a_lowest_time_that_no_header_shows_is_left_out_of_messages(tmp_path: Path) -> None:
    daemon, _ = ship("plain_none", tmp_path)
    with pytest.raises(TooEarlyError, match="it begins with sequence 0, shipped"):
        find_plan(ObjectReplicaClient(daemon.store), Target(timestamp=1), daemon.log.format)


def spark_rows(url: str, **options: object) -> list[tuple[object, ...]]:
    """What the tasks of Spark read: offset, key, value and time of each row."""
    parsed = parse_options({"path": url, **{name.lower(): str(value) for name, value in options.items()}})
    batches = (
        batch for partition in plan(parsed).partitions for batch in read_partition(partition, stated_columns(parsed))
    )
    names = ("offset", "key", "value", "timestamp")
    return [tuple(row[name] for name in names) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("scene", SERVED_SCENES)
def test_the_tasks_of_spark_give_the_same_rows(scene: str, tmp_path: Path) -> None:
    _, url = ship(scene, tmp_path)
    first = recording(scene).bounds["read_uncommitted"]["first"]
    with open_replica(url) as records:
        expected = [(r.sequence, r.key, None if r.is_null else r.value, r.time) for r in records]
    assert spark_rows(url) == expected
    assert count_records(parse_options({"path": url})) in {None, len(expected)}
    assert spark_rows(url, startingSequence=first + 7) == [row for row in expected if row[0] >= first + 7]
