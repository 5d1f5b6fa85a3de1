"""WAL segments that a snapshot covers: when and in which order they are deleted, and which ones never are."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.errors import StoreError
from litelog.objects.layout import Fencing, parse_claim, parse_sealed, parse_snapshot, parse_wal
from litelog.shipping.archive_state import Covered
from litelog.shipping.cleanup import delete_covered_wal
from litelog.shipping.context import Settings
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, held
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.stores import CountingStore, KilledError, keys_of
from tests.sampling import times

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from litelog.stores.object_store import ObjectStore
    from tests.builders.manual_clock import ManualClock

HOUR = 3600
EACH = Settings(snapshot_segments=1)
"""A snapshot for each sealed segment."""


class DeletingStore(CountingStore):
    """Records deleted keys in order. Raises ``refusal`` instead, or fails after ``fail_after`` deletions."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.deleted: list[str] = []
        self.refusal: Exception | None = None
        self.last_put = ""

    def put(self, key: str, body: Iterable[bytes], *, create_only: bool = True) -> None:  # type: ignore[override]
        super().put(key, body, create_only=create_only)  # type: ignore[arg-type]
        self.last_put = key

    def delete(self, keys: Iterable[str]) -> None:
        wanted = list(keys)
        if self.refusal is not None:
            raise self.refusal
        assert parse_wal(self.last_put) is not None, "a deletion comes right after a WAL PUT"
        super().delete(wanted)
        self.deleted += wanted


@pytest.fixture
def store() -> DeletingStore:
    return DeletingStore(MemoryStore("test"))


def grow(daemon: Daemon, clock: ManualClock, segments: int) -> None:
    for _ in range(segments):
        daemon.log.roll(1)
        for _ in range(2):
            clock.advance(1)
            daemon.sync()
            daemon.log.append(1)
        daemon.sync()


def test_covered_wal_segments_go_after_their_time_and_only_after_a_put(
    log: LogBuilder, store: DeletingStore, clock: ManualClock, tmp_path: Path
) -> None:
    daemon = Daemon(log, store, str(tmp_path / "state"), clock=clock, settings=EACH)
    daemon.sync()
    grow(daemon, clock, 3)
    before = keys_of(store)
    clock.advance(HOUR + 1)
    daemon.sync()
    assert daemon.replica.archive is not None
    daemon.replica.archive.wake()
    assert keys_of(store) == before  # no put, no deletion
    log.append(1)
    daemon.sync()
    assert all(int(key.split("/")[3], 16) == 3 for key in keys_of(store))
    assert store.deleted == [key for key in before if int(key.split("/")[3], 16) < 3]
    assert len(keys_of(store, parse_sealed)) == 3
    assert held(store) == log.files()
    store.requests.clear()
    for _ in range(5):
        clock.advance(HOUR)
        daemon.sync()
        daemon.replica.archive.wake()
    assert store.total() == 0  # idle


def test_nothing_is_deleted_before_its_time(
    log: LogBuilder, store: DeletingStore, clock: ManualClock, tmp_path: Path
) -> None:
    daemon = Daemon(log, store, str(tmp_path / "state"), clock=clock, settings=EACH)
    daemon.sync()
    grow(daemon, clock, 3)
    clock.advance(HOUR - 10)
    log.append(1)
    daemon.sync()
    assert store.deleted == []


@pytest.mark.parametrize("seconds", [10 * 365 * 86400, -10 * 365 * 86400])
def test_a_jump_of_the_clock_deletes_nothing(
    log: LogBuilder, store: DeletingStore, clock: ManualClock, tmp_path: Path, seconds: int
) -> None:
    daemon = Daemon(log, store, str(tmp_path / "state"), clock=clock, settings=EACH)
    daemon.sync()
    grow(daemon, clock, 3)
    clock.jump(seconds)
    log.append(1)
    daemon.sync()
    daemon.close()
    daemon = Daemon(log, store, str(tmp_path / "state"), clock=clock, settings=EACH)
    log.append(1)
    daemon.sync()
    assert store.deleted == []
    assert held(store) == log.files()


def test_the_wait_continues_over_a_restart(
    log: LogBuilder, store: DeletingStore, clock: ManualClock, tmp_path: Path
) -> None:
    """Otherwise runs of ``--once`` would never delete anything."""
    state = str(tmp_path / "state")
    for _ in range(5):
        daemon = Daemon(log, store, state, clock=clock, settings=EACH)
        daemon.sync()
        log.roll(2)
        daemon.sync()
        daemon.close()
        clock.advance(HOUR / 2)
    assert store.deleted


@pytest.mark.parametrize("fencing", Fencing)
def test_a_wal_segment_that_is_adopted_is_no_proof_for_a_deletion(
    log: LogBuilder, store: DeletingStore, clock: ManualClock, tmp_path: Path, fencing: Fencing
) -> None:
    """It was put earlier, and a successor may have ended the generation after it."""
    state, older = str(tmp_path / "state"), str(tmp_path / "older")
    daemon = Daemon(log, store, state, clock=clock, settings=EACH, fencing=fencing)
    daemon.sync()
    grow(daemon, clock, 3)
    daemon.close()
    shutil.copytree(state, older)
    daemon = Daemon(log, store, state, clock=clock, settings=EACH, fencing=fencing)
    log.append(1)
    daemon.sync()
    daemon.crash()
    before = keys_of(store)
    clock.advance(HOUR + 1)
    daemon = Daemon(log, store, older, clock=clock, settings=EACH, fencing=fencing)
    daemon.sync()
    assert daemon.replica.archive is not None
    daemon.replica.archive.wake()
    assert len(daemon.acknowledged) == 1
    assert (store.deleted, keys_of(store)) == ([], before)
    log.append(1)
    daemon.sync()
    assert store.deleted
    assert held(store) == log.files()


def test_the_last_wal_segment_stays_and_shows_the_tip(
    log: LogBuilder, store: DeletingStore, clock: ManualClock, tmp_path: Path
) -> None:
    daemon = Daemon(log, store, str(tmp_path / "state"), clock=clock, settings=EACH)
    daemon.sync()
    grow(daemon, clock, 2)
    last = keys_of(store)[-1]
    clock.advance(2 * HOUR)
    log.append(1)
    daemon.sync()
    assert keys_of(store)[-1] > last
    rival = Daemon(log, store, str(tmp_path / "other"), clock=clock, seed=1, takeover=True, settings=EACH)
    rival.sync()
    assert rival.claims[-1].relation == "continues"
    clock.advance(2 * HOUR)
    grow(rival, clock, 3)
    clock.advance(2 * HOUR)
    log.append(1)
    rival.sync()
    for name in (daemon.generation, rival.generation):
        assert [key for key in keys_of(store) if name in key]
    assert held(store) == log.files()
    assert len(keys_of(store, parse_claim)) == 2


def test_a_generation_that_ended_keeps_its_last_wal_segment_and_its_terminal(
    log: LogBuilder, store: DeletingStore, clock: ManualClock, tmp_path: Path
) -> None:
    daemon = Daemon(log, store, str(tmp_path / "state"), clock=clock, settings=EACH)
    daemon.sync()
    grow(daemon, clock, 2)
    Daemon(log, store, str(tmp_path / "other"), clock=clock, seed=1, takeover=True).sync()
    mine = [key for key in keys_of(store) if daemon.generation in key]
    everything = Covered(daemon.generation, 99, 0.0)
    deleted, done = delete_covered_wal(ObjectReplicaClient(store.inner), everything, lambda: True)
    assert (deleted, done) == (len(mine) - 2, True)
    assert [key for key in keys_of(store) if daemon.generation in key] == mine[-2:]


def test_a_missing_permission_is_reported_once_and_shipping_continues(
    log: LogBuilder, store: DeletingStore, clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.refusal = StoreError("delete", "x", "access denied", retryable=False)
    daemon = Daemon(log, store, str(tmp_path / "state"), clock=clock, settings=EACH)
    daemon.sync()
    for _ in range(3):
        grow(daemon, clock, 2)
        clock.advance(2 * HOUR)
        log.append(1)
        daemon.sync()
    said = [record for record in caplog.records if "access denied" in record.getMessage()]
    assert len(said) == 1
    assert daemon.acknowledged[-1].header.end == len(log.texts[log.name])
    assert daemon.replica.archive is not None
    assert daemon.replica.archive.status.error is None


@pytest.mark.parametrize("at", range(1, 8))
def test_a_crash_between_any_two_deletions_leaves_all_restorable(
    log: LogBuilder, store: DeletingStore, clock: ManualClock, tmp_path: Path, at: int
) -> None:
    daemon = Daemon(log, store, str(tmp_path / "state"), clock=clock, settings=EACH)
    daemon.sync()
    grow(daemon, clock, 3)
    clock.advance(2 * HOUR)
    log.append(1)
    delete, left = store.delete, [at]

    def delete_some(wanted: Iterable[str]) -> None:
        delete(wanted)
        left[0] -= 1
        if not left[0]:
            raise KilledError

    store.delete = delete_some  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        daemon.sync()
    daemon.crash()
    del store.delete
    assert store.deleted == sorted(store.deleted)
    assert held(store) == log.files()
    again = Daemon(log, store, str(tmp_path / "state"), clock=clock, settings=EACH)
    log.append(1)
    again.sync()
    grow(again, clock, 1)
    assert again.generation == daemon.generation
    assert held(store) == log.files()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory if the machine has /dev/shm: a sync does not wait for a disk there, and a day has many."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


SECONDS = times(3, at_night=1)
"""The time between two commits."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hours", "settings", "wal_hours"),
    [
        pytest.param(
            times(3, at_night=24),
            Settings(),
            2,
            id="defaults: an hour until a snapshot covers them, and an hour's grace",
        ),
        pytest.param(
            times(2, at_night=4), Settings(snapshot_segments=1), 1, id="a snapshot at each seal: an hour's grace"
        ),
    ],
)
def test_objects_kept_of_a_commit_a_second(
    memory: Path, clock: ManualClock, hours: int, settings: Settings, wal_hours: int
) -> None:
    """The replica keeps the WAL segments of the last hours and of the log segment where they begin, one object for each
    log segment, and snapshots. The grace of an hour begins with the snapshot that covers the WAL segments; with a
    snapshot at each seal, they stay for no longer than that. The log is of plain bytes, which are read the fastest: a
    day has many appends."""
    log = make_log(memory / "log", "raw")
    log.roll(1)
    store = MemoryStore("day")
    daemon = Daemon(log, store, str(memory / "state"), clock=clock, settings=settings)
    every = HOUR // 2
    most = 0
    for second in range(0, hours * HOUR, SECONDS):
        clock.advance(SECONDS)
        if second and second % every == 0:
            log.roll(1)
        else:
            log.append(1)
        daemon.sync()
        if second % every in (every // 2, every - SECONDS):  # deletions follow a new log segment
            most = max(most, sum(1 for _ in store.list(f"generations/{daemon.generation}/wal/")))
    rolled = hours * HOUR // every
    wal, sealed, snapshots = (len(keys_of(store, parse)) for parse in (parse_wal, parse_sealed, parse_snapshot))
    # One put for each commit, and one for each ``final``.
    assert len(daemon.acknowledged) == hours * HOUR // SECONDS + rolled - 1
    assert max(most, wal) <= (wal_hours * HOUR + every) // SECONDS + 10
    assert sealed == rolled - 1
    assert snapshots <= (hours if wal_hours > 1 else rolled) + 1
    assert len([*store.list("")]) == wal + sealed + snapshots + 1  # and a claim
    assert held(store) == log.files()
