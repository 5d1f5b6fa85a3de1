"""A daemon with a retention policy, over days of a manual clock: which objects it deletes and when, or never."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from litelog.objects.layout import parse_sealed, parse_snapshot, snapshot_key
from litelog.retention.policy import RetentionPolicy
from litelog.shipping.context import Settings, SnapshotPolicy
from litelog.stores.object_store import ObjectReplicaClient
from litelog.verify.execution import verify
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import HOUR, Daemon, live, newest_snapshot
from tests.builders.independent_reader import read_replica
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import CountingStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore

DAY = 24 * HOUR


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    return make_log(tmp_path / "log")


def start(
    log: LogBuilder,
    store: ObjectStore,
    tmp_path: Path,
    policy: RetentionPolicy,
    snapshots: SnapshotPolicy = SnapshotPolicy.KEEP,
) -> Daemon:
    settings = Settings(snapshot_policy=snapshots, retention=policy, snapshot_interval=HOUR)
    return Daemon(log, store, str(tmp_path / "state"), clock=ManualClock(), settings=settings)


def indexes(store: MemoryStore, parse: Callable[..., Any]) -> list[int]:
    found = [parse(info.key) for info in store.list("")]
    return sorted(place[1] for place in found if place is not None)


def archived(daemon: Daemon, store: MemoryStore) -> int:
    """How many log segments can be restored, each byte for byte."""
    held = read_replica(store)[daemon.generation].files()
    assert all(daemon.log.texts[name] == data for name, data in held.items())
    assert list(held) == sorted(daemon.log.texts)[-len(held) :]
    return len(held)


@pytest.mark.slow
def test_without_a_policy_all_stays(log: LogBuilder, store: MemoryStore, tmp_path: Path) -> None:
    daemon = start(log, store, tmp_path, RetentionPolicy())
    live(daemon, hours=40, keep=3)
    assert archived(daemon, store) == 40
    assert indexes(store, parse_sealed) == list(range(39))


@pytest.mark.slow
def test_old_snapshots_are_deleted_and_segments_that_the_source_holds_never_are(
    log: LogBuilder, store: MemoryStore, tmp_path: Path
) -> None:
    daemon = start(log, store, tmp_path, RetentionPolicy(max_age=6 * HOUR))
    live(daemon, hours=40)
    assert archived(daemon, store) == 40
    assert 5 <= len(indexes(store, parse_snapshot)) <= 9


@pytest.mark.slow
def test_segments_that_only_the_archive_holds_are_deleted_by_age(
    log: LogBuilder, store: MemoryStore, tmp_path: Path
) -> None:
    daemon = start(log, store, tmp_path, RetentionPolicy(max_age=10 * HOUR))
    live(daemon, hours=60, keep=3)
    assert 10 <= archived(daemon, store) <= 16
    assert len(indexes(store, parse_sealed)) <= 17


@pytest.mark.slow
def test_a_mirror_keeps_segments_of_every_state_in_the_window(
    log: LogBuilder, store: MemoryStore, tmp_path: Path
) -> None:
    daemon = start(log, store, tmp_path, RetentionPolicy(max_age=10 * HOUR), SnapshotPolicy.MIRROR)
    live(daemon, hours=60, keep=3)
    assert 3 <= archived(daemon, store) <= 5
    assert 10 <= len(indexes(store, parse_sealed)) <= 17


@pytest.mark.slow
def test_a_source_that_loses_all_its_past_at_once_leaves_it_in_the_window(
    log: LogBuilder, store: MemoryStore, tmp_path: Path
) -> None:
    daemon = start(log, store, tmp_path, RetentionPolicy(max_age=10 * HOUR))
    live(daemon, hours=30)
    live(daemon, hours=8, keep=2)
    assert archived(daemon, store) == 38
    live(daemon, hours=8, keep=2)
    assert archived(daemon, store) <= 16


@pytest.mark.slow
def test_by_size_archived_segments_are_deleted_and_those_of_the_source_stay(
    log: LogBuilder, store: MemoryStore, tmp_path: Path
) -> None:
    daemon = start(log, store, tmp_path, RetentionPolicy(max_bytes=6000))
    live(daemon, hours=20)
    assert archived(daemon, store) == 20
    live(daemon, hours=10, keep=3)
    assert 3 <= archived(daemon, store) <= 9


@pytest.mark.slow
def test_retention_by_count_keeps_that_number_of_snapshots(log: LogBuilder, store: MemoryStore, tmp_path: Path) -> None:
    daemon = start(log, store, tmp_path, RetentionPolicy(max_snapshots=4))
    live(daemon, hours=20, keep=3)
    assert 4 <= len(indexes(store, parse_snapshot)) <= 6
    assert archived(daemon, store) == 20


@pytest.mark.slow
def test_a_restart_remembers_which_segments_the_source_dropped(
    log: LogBuilder, store: MemoryStore, tmp_path: Path
) -> None:
    daemon = start(log, store, tmp_path, RetentionPolicy(max_age=10 * HOUR))
    for _ in range(20):
        live(daemon, hours=3, keep=3)
        daemon.close()
        daemon.start()
        daemon.sync()
    assert 10 <= archived(daemon, store) <= 18


@pytest.mark.slow
def test_a_lost_state_keeps_more_and_loses_nothing(log: LogBuilder, store: MemoryStore, tmp_path: Path) -> None:
    daemon = start(log, store, tmp_path, RetentionPolicy(max_age=10 * HOUR))
    live(daemon, hours=30)
    daemon.lose_state()
    daemon.start(takeover=True)
    live(daemon, hours=30)
    assert archived(daemon, store) == 60


@pytest.mark.slow
@pytest.mark.parametrize("jump", [-1000 * DAY, 1000 * DAY])
def test_a_clock_that_jumps_takes_nothing_away(log: LogBuilder, store: MemoryStore, tmp_path: Path, jump: int) -> None:
    daemon = start(log, store, tmp_path, RetentionPolicy(max_age=20 * HOUR))
    live(daemon, hours=15, keep=3)
    before = set(indexes(store, parse_snapshot)), archived(daemon, store)
    daemon.clock.jump(jump)
    live(daemon, hours=4, keep=3)
    assert before[0] <= set(indexes(store, parse_snapshot))
    assert archived(daemon, store) == before[1] + 4
    daemon.clock.jump(-jump)
    live(daemon, hours=2, keep=3)
    assert before[0] - {0, 1, 2, 3, 4} <= set(indexes(store, parse_snapshot))
    assert newest_snapshot(daemon).next


@pytest.mark.slow
def test_an_idle_pruner_sends_no_request_and_deletes_nothing(log: LogBuilder, tmp_path: Path) -> None:
    inner = MemoryStore("test")
    store = CountingStore(inner)
    daemon = start(log, store, tmp_path, RetentionPolicy(max_age=6 * HOUR))
    live(daemon, hours=12)
    for _ in range(3):  # deletions that are due after the last put
        daemon.sync()
    requests, there = store.total(), {info.key for info in inner.list("")}
    for _ in range(48):
        daemon.clock.advance(HOUR)
        assert daemon.replica.archive is not None
        daemon.replica.archive.wake()
    assert {info.key for info in inner.list("")} == there
    assert store.total() - requests <= 4  # the last snapshot


def rewind(log: LogBuilder) -> None:
    """The log loses its last commit and continues with another one, so a generation ends."""
    size = len(log.commit())
    log.next -= 2
    log.epoch += 1
    log.truncate(len(log.texts[log.name]) - size)
    log.append(1)


@pytest.mark.slow
@pytest.mark.parametrize("appended", [0, 3])
def test_a_generation_that_retention_took_is_not_an_anomaly(
    log: LogBuilder, store: MemoryStore, tmp_path: Path, appended: int
) -> None:
    daemon = start(log, store, tmp_path, RetentionPolicy(max_snapshots=1))
    log.roll(2)
    daemon.sync()
    for _ in range(appended):
        log.append(1)
        daemon.sync()
    rewind(log)
    first = daemon.generation
    live(daemon, hours=6)
    assert daemon.generation != first
    client = ObjectReplicaClient(store)
    assert (len(list(client.snapshots(first))), len(list(client.wal_segments(first)))) == (0, 2)
    report = verify(store, formats=lambda _: log.format)
    assert report.harmful == 0, report.anomalies
    named = [(str(anomaly.kind), anomaly.key) for anomaly in report.anomalies]
    assert named == ([] if appended else [("missing", snapshot_key(first, 0))])


@pytest.mark.slow
def test_a_snapshot_that_retention_did_not_take_is_missed(log: LogBuilder, store: MemoryStore, tmp_path: Path) -> None:
    daemon = start(log, store, tmp_path, RetentionPolicy())
    log.roll(2)
    daemon.sync()
    for _ in range(2):
        rewind(log)
        daemon.sync()
    first, middle, newest = ObjectReplicaClient(store).generations()
    for name, harmful in ((first, False), (middle, True), (newest, True)):
        body = b"".join(store.open(snapshot_key(name, 0)))
        store.delete([snapshot_key(name, 0)])
        report = verify(store, formats=lambda _: log.format)
        assert [(anomaly.key, anomaly.harmful) for anomaly in report.anomalies] == [(snapshot_key(name, 0), harmful)]
        store.put(snapshot_key(name, 0), [body])
