"""Sealing and snapshots while the daemon ships: when each object is written, crashes, and the status."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from litelog.errors import FencedError, StoreError
from litelog.objects.layout import parse_sealed, parse_snapshot, parse_wal, sealed_key, snapshot_key
from litelog.reading.contents import read_snapshot
from litelog.reading.latest import read_claims
from litelog.retention.policy import RetentionPolicy
from litelog.shipping.context import Settings, SnapshotPolicy
from litelog.shipping.sealer import read_sealed_footer
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import INLINE, Daemon, newest_snapshot, restored
from tests.builders.independent_reader import objects
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.stores import CountingStore, Fault, FaultyStore, KilledError, KillingStore, keys_of
from tests.sampling import at_night, sampled_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from litelog.objects.snapshot import Snapshot
    from tests.builders.manual_clock import ManualClock

ALL_FORMATS = pytest.mark.parametrize("log", ["litelog", *at_night("lines"), "raw"], indirect=True)


def grow(daemon: Daemon, clock: ManualClock, segments: int, commits: int = 3) -> None:
    """Roll the log a number of times. Each commit is shipped by itself, a second after the one before."""
    for _ in range(segments):
        daemon.log.roll(1)
        for _ in range(commits - 1):
            clock.advance(1)
            daemon.sync()
            daemon.log.append(1)
        clock.advance(1)
        daemon.sync()


@ALL_FORMATS
def test_a_finished_log_segment_is_sealed_from_the_local_file(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    first = log.name
    assert keys_of(store, parse_sealed) == []
    grow(daemon, clock, 1)
    name = daemon.generation
    assert keys_of(store, parse_sealed) == [sealed_key(name, 0)]
    footer, size = read_sealed_footer(ObjectReplicaClient(store), name, 0)
    assert (footer.file, footer.length) == (first, len(log.files()[first]))
    assert size == len(objects(store)[sealed_key(name, 0)])
    (event,) = daemon.sealed_events
    assert (event.entry.key, event.left) == (sealed_key(name, 0), 0)


def test_marks_say_when_each_commit_was_shipped(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    grow(daemon, clock, 2, commits=5)
    footer, _ = read_sealed_footer(ObjectReplicaClient(store), daemon.generation, 1)
    shipped = [event.header for event in daemon.acknowledged if event.header.index == 1 and event.header.length]
    assert footer.marks.exact
    assert footer.marks.offsets == tuple(header.end for header in shipped)
    assert footer.marks.times == tuple(header.shipped for header in shipped)


def test_marks_from_before_a_crash_are_lost_and_the_others_are_inexact(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    log.append(1)
    clock.advance(2)
    daemon.sync()
    daemon.restart()
    log.append(1)
    daemon.sync()
    log.roll(1)
    daemon.sync()
    footer, _ = read_sealed_footer(ObjectReplicaClient(store), daemon.generation, 0)
    assert not footer.marks.exact
    assert footer.marks.offsets[-1] == footer.length


@ALL_FORMATS
def test_a_segment_gone_or_changed_at_the_source_is_sealed_from_its_wal_segments(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, tmp_path: Path
) -> None:
    failing = FaultyStore(store)
    daemon = Daemon(log, failing, state, clock=clock)
    daemon.sync()
    first, before = log.name, dict(log.files())
    refuse_sealed(failing)
    grow(daemon, clock, 3)
    os.unlink(log.path(first))
    second = sorted(before)[0] if len(before) > 1 else sorted(log.files())[1]
    text = log.files()[second]
    with open(log.path(second), "r+b") as file:
        file.write(bytes(reversed(text)))
    failing.put = type(failing).put.__get__(failing)  # type: ignore[method-assign]
    clock.advance(60)
    assert daemon.replica.archive is not None
    daemon.replica.archive.wake()
    client, name = ObjectReplicaClient(store), daemon.generation
    for index, content in ((0, before[first]), (1, text)):
        footer, _ = read_sealed_footer(client, name, index)
        assert footer.length == len(content)
    assert len(keys_of(store, parse_sealed)) == 3


def refuse_sealed(failing: FaultyStore) -> None:
    """Have the store fail for sealed segments."""
    put = type(failing).put.__get__(failing)

    def refuse(key: str, body: Iterable[bytes], *, create_only: bool = True) -> None:
        if parse_sealed(key) is not None:
            raise StoreError("put", key, "injected: no sealed segments today")
        put(key, body, create_only=create_only)

    failing.put = refuse  # type: ignore[method-assign]


def test_a_failing_seal_is_reported_and_tried_again_and_shipping_continues(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    failing = FaultyStore(store)
    daemon = Daemon(log, failing, state, clock=clock)
    daemon.sync()
    refuse_sealed(failing)
    grow(daemon, clock, 4)
    archive = daemon.replica.archive
    assert archive is not None
    assert archive.status.unsealed == 4
    assert archive.status.failures > 0
    assert "no sealed segments today" in str(archive.status.error)
    assert daemon.acknowledged[-1].header.end == len(log.texts[log.name])
    due = archive.due
    assert due is not None
    assert due > clock.monotonic()
    del failing.put
    clock.advance(due - clock.monotonic())
    archive.wake()
    assert (archive.status.unsealed, archive.status.failures, archive.status.error) == (0, 0, None)
    assert len(keys_of(store, parse_sealed)) == 4


def test_a_failing_seal_is_logged_with_its_event(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    failing = FaultyStore(store)
    daemon = Daemon(log, failing, state, clock=clock)
    daemon.sync()
    refuse_sealed(failing)
    grow(daemon, clock, 1)
    (line,) = [line for line in caplog.records if getattr(line, "event", None) == "sealing-failed"][:1]
    assert line.name == "litelog.shipping.archiver"
    assert f"{log.folder} to {store.url}: sealing failed 1 times in a row, trying again in" in line.getMessage()


class WaitedFor:
    """A checkpointer that never stops working. It records for how long it was waited for."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return False


def test_one_deadline_limits_the_wait_for_the_archive_and_its_checkpoint(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    """The time that the archive takes is not there for the checkpoint any more."""
    held: list[Callable[[], None]] = []
    daemon = Daemon(log, store, state, clock=clock, workers=replace(INLINE, background=held.append))
    daemon.sync()
    grow(daemon, clock, 1)
    assert len(held) == 1
    archive = daemon.replica.archive
    assert archive is not None
    archive.checkpointer = checkpointer = WaitedFor()  # type: ignore[assignment]
    assert not archive.wait(0.01)
    assert checkpointer.seconds == []
    held.pop()()
    assert not archive.wait(1000)
    assert checkpointer.seconds == [1000]
    archive.checkpointer = None
    assert archive.wait(0)


def test_once_fenced_nothing_is_sealed(log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock) -> None:
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    Daemon(log, store, state + ".other", seed=1, takeover=True).sync()
    before = objects(store)
    log.roll(1)
    with pytest.raises(FencedError):
        daemon.sync()
    clock.advance(7200)
    assert daemon.replica.archive is not None
    daemon.replica.archive.request_snapshot()
    assert objects(store) == before


def test_a_snapshot_is_due_after_the_interval_if_anything_was_sealed(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, tmp_path: Path
) -> None:
    daemon = Daemon(log, store, state, clock=clock, settings=Settings(snapshot_interval=3600))
    daemon.sync()
    archive = daemon.replica.archive
    assert archive is not None
    assert archive.due is None
    (first,) = daemon.snapshots
    assert (first.key, first.first, first.next) == (newest_snapshot(daemon).key, 0, 0)
    grow(daemon, clock, 2)
    assert len(keys_of(store, parse_snapshot)) == 1
    due = archive.due
    assert due is not None
    clock.advance(due - clock.monotonic() - 1)
    archive.wake()
    assert daemon.snapshots == [first]
    clock.advance(1)
    archive.wake()
    (event,) = daemon.snapshots[1:]
    snapshot = newest_snapshot(daemon)
    assert (event.key, event.first, event.next) == (snapshot.key, 0, 2)
    assert [entry.file for entry in snapshot.segments] == sorted(log.files())[:2]
    assert archive.due is None
    assert restored(store, tmp_path / "out", log.format) == log.files()


def test_a_number_of_sealed_segments_makes_a_snapshot_due(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    daemon = Daemon(log, store, state, clock=clock, settings=Settings(snapshot_segments=3))
    daemon.sync()
    grow(daemon, clock, 7)
    assert [event.next for event in daemon.snapshots] == [0, 3, 6]
    assert [entry.index for entry in newest_snapshot(daemon).segments] == list(range(6))


def test_a_snapshot_that_is_asked_for_names_all_that_is_finished(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    grow(daemon, clock, 2)
    assert daemon.replica.archive is not None
    daemon.replica.archive.request_snapshot()
    assert newest_snapshot(daemon).next == 2
    before = objects(store)
    daemon.replica.archive.request_snapshot()  # nothing new: nothing is written
    assert objects(store) == before


@pytest.mark.parametrize("policy", SnapshotPolicy)
def test_segments_that_the_source_dropped_are_kept_or_mirrored(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, policy: SnapshotPolicy
) -> None:
    daemon = Daemon(log, store, state, clock=clock, settings=Settings(snapshot_policy=policy))
    daemon.sync()
    grow(daemon, clock, 3)
    for name in sorted(log.files())[:2]:
        log.delete(name)
    assert daemon.replica.archive is not None
    daemon.replica.archive.request_snapshot()
    snapshot = newest_snapshot(daemon)
    assert (snapshot.first, snapshot.next) == (0, 3)  # else no snapshot would ever name them
    grow(daemon, clock, 1)
    daemon.replica.archive.request_snapshot()
    snapshot = newest_snapshot(daemon)
    assert (snapshot.first, snapshot.next) == ((0, 4) if policy is SnapshotPolicy.KEEP else (2, 4))


def test_a_snapshot_names_the_chain_that_continues_after_it(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    daemon = Daemon(log, store, state, clock=clock, settings=Settings(snapshot_segments=1))
    daemon.sync()
    grow(daemon, clock, 3)
    first_of = {event.header.index: event.header for event in daemon.acknowledged if event.header.offset == 0}
    client = ObjectReplicaClient(store)
    claim = read_claims(client)[daemon.generation]
    for index in (1, 2, 3):
        assert read_snapshot(client, claim, index)[0].chain == first_of[index].previous


def test_before_a_snapshot_after_a_long_silence_ownership_is_proved(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    grow(daemon, clock, 1)
    Daemon(log, store, state + ".other", seed=1, takeover=True).sync()
    before = objects(store)
    clock.advance(7200)
    assert daemon.replica.archive is not None
    daemon.replica.archive.wake()
    assert objects(store) == before
    with pytest.raises(FencedError):
        daemon.sync()


def test_a_restart_with_valid_state_costs_three_requests_and_continues(
    log: LogBuilder, state: str, clock: ManualClock, tmp_path: Path
) -> None:
    store = CountingStore(MemoryStore("test"))
    daemon = Daemon(log, store, state, clock=clock, settings=Settings(snapshot_segments=2))
    daemon.sync()
    grow(daemon, clock, 3)
    daemon.close()
    store.requests.clear()
    daemon = Daemon(log, store, state, clock=clock, settings=Settings(snapshot_segments=2))
    daemon.sync()
    assert store.requests == {"list": 2, "open": 1}
    grow(daemon, clock, 1)
    assert newest_snapshot(daemon).next == 4
    assert restored(store, tmp_path / "out", log.format) == log.files()


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["all", "the archive's"])
def test_facts_that_the_state_lacks_are_read_from_the_replica(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, lost: str, tmp_path: Path
) -> None:
    daemon = Daemon(log, store, state, clock=clock, settings=Settings(snapshot_segments=2))
    daemon.sync()
    grow(daemon, clock, 3)
    daemon.close()
    if lost == "all":
        shutil.rmtree(state)
    else:
        folder = daemon.folder
        kept = folder.load()
        assert kept is not None
        folder.save(kept.__class__(**{**{n: getattr(kept, n) for n in kept.__slots__}, "archive": None}))
    daemon = Daemon(log, store, state, clock=clock, seed=5, takeover=True, settings=Settings(snapshot_segments=2))
    daemon.sync()
    grow(daemon, clock, 3)
    assert restored(store, tmp_path / "out", log.format) == log.files()
    if lost != "all":
        assert newest_snapshot(daemon).next == 6
    assert [entry.file for entry in newest_snapshot(daemon).segments] == sorted(log.files())[
        : newest_snapshot(daemon).next
    ]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
@pytest.mark.parametrize("at", range(1, 16))
def test_all_segments_are_sealed_in_the_end_if_any_put_fails(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, at: int, fault: Fault, tmp_path: Path
) -> None:
    faulty = FaultyStore(store, {"put": [*[Fault.NONE] * (at - 1), fault]})
    daemon = Daemon(log, faulty, state, clock=clock, settings=Settings(snapshot_segments=2))
    for step in range(12):
        if step < 5:
            log.roll(2)
        try:
            daemon.sync()
        except StoreError:
            clock.advance(40)
        clock.advance(31)
    assert faulty.injected.total() == 1
    assert newest_snapshot(daemon).next == 4
    assert [entry.index for entry in newest_snapshot(daemon).segments] == [0, 1, 2, 3]
    assert sorted(event.key for event in daemon.snapshots) == keys_of(store, parse_snapshot)
    assert sorted(event.entry.key for event in daemon.sealed_events) == keys_of(store, parse_sealed)
    assert restored(store, tmp_path / "out", log.format) == log.files()


class LosingStore(CountingStore):
    """Loses the answer to the next put of a snapshot after it was ``armed``."""

    armed = False

    def put(self, key: str, body: Iterable[bytes], *, create_only: bool = True) -> None:  # type: ignore[override]
        super().put(key, body, create_only=create_only)  # type: ignore[arg-type]
        if self.armed and parse_snapshot(key) is not None:
            self.armed = False
            raise StoreError("put", key, "lost")


def lose_answer(daemon: Daemon, losing: LosingStore) -> Snapshot:
    """Grow the log until the answer to the put of a snapshot is lost. Returns that snapshot."""
    losing.armed = True
    while losing.armed:
        daemon.log.roll(1)
        daemon.sync()
        assert daemon.log.next < 20
    return newest_snapshot(daemon)


def test_segments_dropped_before_a_snapshot_was_found_are_dropped_now(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    """They are not dropped as of the time when the snapshot was made, hours earlier."""
    losing = LosingStore(store)
    settings = Settings(snapshot_segments=2, retention=RetentionPolicy(max_age=86_400))
    daemon = Daemon(log, losing, state, clock=clock, settings=settings)
    daemon.sync()
    made = lose_answer(daemon, losing)
    assert made.key not in [event.key for event in daemon.snapshots]
    clock.advance(5 * 3600)
    log.delete(min(log.files()))
    for _ in range(3):
        daemon.sync()
        clock.advance(31)
    drop = daemon.replica.archive.state.drops[-1]
    assert made.next == newest_snapshot(daemon).next
    assert drop.first == 1
    assert drop.time >= made.created + 5 * 3600 * 1_000_000


def test_a_snapshot_with_another_owner_chain_or_content_is_not_adopted(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    losing = LosingStore(store)
    daemon = Daemon(log, losing, state, clock=clock, settings=Settings(snapshot_segments=2))
    daemon.sync()
    made, archive = lose_answer(daemon, losing), daemon.replica.archive
    is_own, sealed = archive._snapshots.is_own, archive.state.sealed
    assert is_own(made, sealed)
    *rest, last = made.segments
    for other in (
        replace(made, owner="0" * 32),
        replace(made, chain="0" * 64),
        replace(made, next=made.next + 1),
        replace(made, segments=(*rest, replace(last, digest="0" * 64))),
    ):
        assert not is_own(other, sealed)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", sampled_cases(range(1, 22), 3, "puts at which an archiving daemon crashes"))
def test_a_crash_at_any_put_leaves_all_restorable_and_all_is_sealed_afterwards(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, at: int, after: bool, tmp_path: Path
) -> None:
    settings = Settings(snapshot_segments=2)
    daemon = Daemon(log, KillingStore(store, at, after=after), state, clock=clock, settings=settings)
    try:
        daemon.sync()
        grow(daemon, clock, 5)
        pytest.fail("never killed")
    except KilledError:
        held = max((event.end for event in daemon.acknowledged), default=None)
        daemon.crash()
    if held is not None:
        files = restored(store, tmp_path / "out", log.format)
        assert sum(map(len, files.values())) >= sum(event.header.length for event in daemon.acknowledged)
    daemon = Daemon(log, store, state, clock=clock, settings=settings)
    daemon.sync()
    grow(daemon, clock, 6)
    assert restored(store, tmp_path / "out", log.format) == log.files()
    last = newest_snapshot(daemon)
    assert last.next >= 4
    assert [entry.file for entry in last.segments] == sorted(log.files())[: last.next]
    assert daemon.replica.archive is not None
    assert daemon.replica.archive.status.error is None


def test_own_sealed_segments_and_snapshots_are_adopted_and_others_refused(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    daemon.close()
    old = state + ".old"
    shutil.copytree(state, old)
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    grow(daemon, clock, 2)
    assert daemon.replica.archive is not None
    daemon.replica.archive.request_snapshot()
    daemon.close()
    before = objects(store)
    again = Daemon(log, store, old, clock=clock)  # an older state folder: all objects are adopted
    again.sync()
    assert again.replica.archive is not None
    again.replica.archive.request_snapshot()
    assert again.replica.archive.status.error is None
    assert again.generation == daemon.generation
    assert objects(store) == before
    assert again.replica.archive.status.snapshot == snapshot_key(daemon.generation, 2)


def test_an_owner_with_an_older_state_continues_after_a_snapshot_beyond_it(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, tmp_path: Path
) -> None:
    settings = Settings(snapshot_segments=2)
    daemon = Daemon(log, store, state, clock=clock, settings=settings)
    daemon.sync()
    grow(daemon, clock, 1)
    daemon.close()
    old = state + ".old"
    shutil.copytree(state, old)
    daemon = Daemon(log, store, state, clock=clock, settings=settings)
    daemon.sync()
    grow(daemon, clock, 4)
    daemon.close()
    slow = FaultyStore(store, {"put": [Fault.BEFORE]})
    again = Daemon(log, slow, old, clock=clock, settings=settings)
    with pytest.raises(StoreError):  # it has not come to the newest snapshot, which its archiver finds
        again.sync()
    archive = again.replica.archive
    assert archive is not None
    archive.request_snapshot()
    assert archive.status.error is None
    assert archive.status.snapshot == snapshot_key(daemon.generation, 4)
    clock.advance(40)
    again.sync()
    grow(again, clock, 2)
    assert newest_snapshot(again).next == 6
    assert restored(store, tmp_path / "out", log.format) == log.files()


@pytest.mark.slow
def test_a_sealed_segment_of_the_same_name_with_other_bytes_begins_a_generation(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, tmp_path: Path
) -> None:
    """The log was rewritten after the segment went up, and before a snapshot or a ``final`` named it."""
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    key = sealed_key(daemon.generation, 0)
    put_sealed_of_another_log(daemon, store, tmp_path, clock, seed=0)
    grow(daemon, clock, 2)
    daemon.sync()
    first, second = daemon.claims
    assert (second.relation, second.predecessor) == ("continues", first.generation)
    assert daemon.replica.archive is not None
    assert daemon.replica.archive.blocked is None
    grow(daemon, clock, 1)
    daemon.replica.archive.request_snapshot()
    assert daemon.replica.archive.status.error is None
    assert key not in {entry.key for entry in newest_snapshot(daemon).segments}
    assert restored(store, tmp_path / "out", log.format) == log.files()


@pytest.mark.slow
def test_another_owners_sealed_segment_under_our_name_is_an_error_and_no_fence(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock, tmp_path: Path
) -> None:
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    key = sealed_key(daemon.generation, 0)
    put_sealed_of_another_log(daemon, store, tmp_path, clock, seed=1)
    grow(daemon, clock, 2)
    assert daemon.replica.archive is not None
    status = daemon.replica.archive.status
    assert key in str(status.error)
    assert status.failures > 0
    assert daemon.acknowledged[-1].header.end == len(log.texts[log.name])


def put_sealed_of_another_log(daemon: Daemon, store: MemoryStore, folder: Path, clock: ManualClock, seed: int) -> None:
    """Put another log's sealed segment where this daemon will put its first one; with seed 0 it is this owner's."""
    other = make_log(folder / "other")
    other.roll(7)
    second = Daemon(other, MemoryStore("second"), f"{folder}/second", clock=clock, seed=seed)
    second.sync()
    grow(second, clock, 1)
    body = objects(second.store)[sealed_key(second.generation, 0)]
    store.put(sealed_key(daemon.generation, 0), [body])


@pytest.mark.slow
def test_wal_segments_lie_untouched_before_their_time(
    log: LogBuilder, store: MemoryStore, state: str, clock: ManualClock
) -> None:
    daemon = Daemon(log, store, state, clock=clock, settings=Settings(snapshot_segments=1))
    daemon.sync()
    grow(daemon, clock, 5)
    assert len(keys_of(store, parse_wal)) == len(daemon.acknowledged)
