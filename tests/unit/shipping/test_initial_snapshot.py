"""How a generation begins with an existing log: which log segments go up sealed, and which do not go up again."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from litelog.errors import CorruptionError, FencedError, StoreError
from litelog.objects.layout import parse_sealed, parse_snapshot, parse_wal
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.shipping.context import Settings
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import held, newest_snapshot, start_sealing
from tests.builders.independent_reader import read_replica
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.stores import CountingStore, Fault, FaultyStore, KilledError, KillingStore, keys_of
from tests.sampling import at_night, sampled_cases

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.builders.manual_clock import ManualClock

ALL_FORMATS = pytest.mark.parametrize("log", ["litelog", *at_night("lines"), "raw"], indirect=True)


@pytest.fixture
def log(request: pytest.FixtureRequest, tmp_path: Path) -> LogBuilder:
    """Five log segments, of which four are finished."""
    made = make_log(tmp_path / "log", getattr(request, "param", "litelog"))
    for commits in (3, 1, 4, 2, 5):
        made.roll(commits)
    return made


@ALL_FORMATS
def test_finished_log_segments_go_up_sealed_and_the_last_one_as_wal(
    log: LogBuilder, state: str, clock: ManualClock
) -> None:
    store = MemoryStore("test")
    daemon = start_sealing(log, store, state, clock)
    daemon.sync()
    assert held(store) == log.files()
    assert len(keys_of(store, parse_sealed)) == 4
    assert [event.header.index for event in daemon.acknowledged] == [4]
    assert (daemon.claims[0].first, newest_snapshot(daemon).first, newest_snapshot(daemon).next) == (4, 0, 4)
    assert [entry.file for entry in newest_snapshot(daemon).segments] == sorted(log.files())[:4]
    assert [event.left for event in daemon.sealed_events] == [3, 2, 1, 0]
    for _ in range(3):
        log.append(2)
        daemon.sync()
        log.roll(2)
        daemon.sync()
    assert held(store) == log.files()
    assert daemon.replica.archive is not None
    daemon.replica.archive.request_snapshot()
    assert newest_snapshot(daemon).next == 7
    assert held(store) == log.files()


@ALL_FORMATS
def test_a_new_owner_that_verifies_its_bytes_uploads_nothing_again(
    log: LogBuilder, state: str, clock: ManualClock
) -> None:
    store = CountingStore(MemoryStore("test"))
    start_sealing(log, store, state, clock).sync()
    sealed = keys_of(store, parse_sealed)
    store.put_keys.clear()
    for number in (1, 2):
        other = start_sealing(log, store, f"{state}.{number}", clock, seed=number, takeover=True)
        other.sync()
        assert other.claims[0].relation == "continues"
        assert held(store) == log.files()
        assert keys_of(store, parse_sealed) == sealed
        assert [entry.key for entry in newest_snapshot(other).segments] == sealed
        log.append(1)
        other.sync()
        assert held(store) == log.files()


def test_only_new_data_is_uploaded_if_a_generation_is_continued(
    log: LogBuilder, state: str, clock: ManualClock
) -> None:
    store = MemoryStore("test")
    start_sealing(log, store, state, clock).sync()
    before = keys_of(store, parse_sealed)
    log.roll(2)
    log.roll(2)
    other = start_sealing(log, store, state + ".other", clock, seed=1, takeover=True)
    other.sync()
    added = [key for key in keys_of(store, parse_sealed) if key not in before]
    assert [parse_sealed(key) for key in added] == [(other.generation, 4), (other.generation, 5)]
    assert held(store) == log.files()
    assert len(other.acknowledged) == 1


def test_bytes_that_differ_are_not_referred_to(log: LogBuilder, state: str, clock: ManualClock, tmp_path: Path) -> None:
    """A log rewritten in commits of the same size: same names, same lengths."""
    store = MemoryStore("test")
    first = start_sealing(log, store, state, clock)
    first.sync()
    first.crash()
    shutil.rmtree(log.folder)
    again = make_log(log.folder)
    for commits in (3, 1, 4, 2, 5):
        again.name = f"{again.next:020d}"
        name = sorted(log.texts)[len(again.texts)]
        again.name = name
        again.write(again.header())
        again.write(b"".join(again.commit(10, b"x") for _ in range(commits)))
    other = start_sealing(again, store, state + ".other", clock, seed=1, takeover=True)
    other.sync()
    assert other.claims[0].relation == "diverged"
    assert held(store) == again.files()
    assert all(entry.generation == other.generation for entry in newest_snapshot(other).segments)


def test_segments_that_the_source_has_dropped_stay_in_the_history(
    log: LogBuilder, state: str, clock: ManualClock
) -> None:
    store = MemoryStore("test")
    start_sealing(log, store, state, clock).sync()
    everything = log.files()
    for name in sorted(everything)[:2]:
        log.delete(name)
    other = start_sealing(log, store, state + ".other", clock, seed=1, takeover=True)
    other.sync()
    assert (other.claims[0].relation, other.claims[0].shift, other.claims[0].first) == ("continues", 0, 4)
    assert held(store) == everything
    log.append(1)
    log.roll(1)
    other.sync()
    assert held(store) == everything | log.files()


@pytest.mark.parametrize("rolled", [0, 1, 2])
@pytest.mark.parametrize("gone", [1, 2])
@pytest.mark.parametrize("name", ["lines", "raw"])
def test_numbering_continues_if_nothing_at_the_source_shows_the_numbers(
    name: str, gone: int, rolled: int, state: str, clock: ManualClock, tmp_path: Path
) -> None:
    """The state is lost with the tombstone, and the oldest log segments are gone: a snapshot names the first one."""
    log, store = make_log(tmp_path / "log", name), MemoryStore("test")
    log.roll(3)
    log.roll(2)
    first = start_sealing(log, store, state, clock)
    first.sync()
    log.roll(2)
    first.sync()
    everything = log.files()
    for file in sorted(everything)[:gone]:
        log.delete(file)
    for _ in range(rolled):
        log.roll(1)
    other = start_sealing(log, store, state + ".other", clock, seed=1, takeover=True)
    other.sync()
    assert other.claims[0].relation == "continues"
    client = ObjectReplicaClient(store)
    plan = find_plan(client, Target(), log.format)
    restored = restore(client, plan, str(tmp_path / "out"), log_format=log.format)
    assert make_log(tmp_path / "out", name).files() == everything | log.files()
    data = b"".join((everything | log.files()).values())
    assert restored.next == (data.count(b"\n") if name == "lines" else len(data))


@pytest.mark.parametrize("name", ["lines", "raw"])
def test_numbering_continues_after_a_log_segment_that_a_wal_segment_stands_for(
    name: str, state: str, clock: ManualClock, tmp_path: Path
) -> None:
    log, store = make_log(tmp_path / "log", name), MemoryStore("test")
    log.roll(3)
    first = start_sealing(log, store, state, clock)
    first.sync()
    first.crash()
    for _ in range(3):  # finished while the daemon was away
        log.roll(2)
    before = b"".join(log.files()[file] for file in sorted(log.files())[:2])
    first.start()
    first.sync()
    for file in sorted(log.files())[:2]:
        log.delete(file)
    other = start_sealing(log, store, state + ".other", clock, seed=1, takeover=True)
    other.sync()
    assert other.claims[0].relation == "continues"
    assert newest_snapshot(other).segments[0].first == (before.count(b"\n") if name == "lines" else len(before))


def test_a_gap_is_met_where_it_is_and_nothing_before_it_is_lost(
    log: LogBuilder, state: str, clock: ManualClock
) -> None:
    store = MemoryStore("test")
    log.next += 5
    log.roll(2)
    log.roll(2)
    files = log.files()
    daemon = start_sealing(log, store, state, clock)
    for _ in range(3):
        daemon.sync()
    assert daemon.claims[-1].relation == "diverged"
    generations = [one.files() for one in read_replica(store).values() if one.files()]
    names = sorted(files)
    assert generations[-2] == {name: files[name] for name in names[:5]}
    assert generations[-1] == {name: files[name] for name in names[5:]}


def test_the_commits_before_a_corrupt_one_are_shipped_before_the_log_freezes(
    log: LogBuilder, state: str, clock: ManualClock
) -> None:
    store = MemoryStore("test")
    names = sorted(log.files())
    good = log.files()
    text = bytearray(good[names[2]])
    text[len(text) // 2] ^= 1
    log.overwrite(0, bytes(text), names[2])
    daemon = start_sealing(log, store, state, clock)
    with pytest.raises(CorruptionError):
        daemon.sync()
    there = held(store)
    assert [there[name] for name in names[:2]] == [good[name] for name in names[:2]]
    assert good[names[2]].startswith(there.get(names[2], b""))


@pytest.mark.slow
@ALL_FORMATS
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", sampled_cases(range(1, 9), 3, "puts of a first contact at which a daemon crashes"))
@pytest.mark.parametrize("continues", [False, True])
def test_after_a_crash_at_any_put_of_the_first_contact_the_daemon_resumes(
    log: LogBuilder, state: str, clock: ManualClock, at: int, after: bool, continues: bool
) -> None:
    store = MemoryStore("test")
    if continues:
        start_sealing(log, store, state + ".before", clock, seed=9).sync()
        for _ in range(4):
            log.roll(2)
    daemon = start_sealing(log, KillingStore(store, at, after=after), state, clock, takeover=True)
    with pytest.raises(KilledError):
        daemon.sync()
    daemon.crash()
    if continues:
        assert held(store) or at < 9
    again = start_sealing(log, store, state, clock, takeover=True)
    again.sync()
    assert held(store) == log.files()
    assert again.generation == list(read_replica(store))[-1]
    log.roll(1)
    again.sync()
    assert held(store) == log.files()
    assert len(again.claims) == 1


def test_a_former_owner_that_seals_after_the_first_snapshot_ends_no_daemon(
    log: LogBuilder, state: str, clock: ManualClock
) -> None:
    """The new owner crashes right after the put. What it then finds sealed is not what its first snapshot names."""
    store, changes = MemoryStore("test"), CountingStore(MemoryStore("test"))
    first = start_sealing(log, store, state + ".before", clock, seed=9)
    first.sync()
    for _ in range(2):
        log.roll(2)
        first.sync()
    for key, body in ((info.key, store.open(info.key).read()) for info in store.list("")):
        changes.inner.put(key, [body])
    start_sealing(log, changes, state + ".tried", clock, takeover=True).sync()
    at = 1 + next(number for number, key in enumerate(changes.put_keys) if parse_snapshot(key))
    killed = start_sealing(log, KillingStore(store, at, after=True), state, clock, takeover=True)
    with pytest.raises(KilledError):
        killed.sync()
    killed.crash()
    assert first.replica.archive is not None
    first.replica.archive.request_snapshot()
    assert newest_snapshot(first).next == 6
    again = start_sealing(log, store, state, clock, takeover=True)
    again.sync()
    assert held(store) == log.files()
    log.roll(1)
    again.sync()
    assert held(store) == log.files()


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_a_first_sync_ends_well_if_any_request_fails(
    log: LogBuilder, state: str, clock: ManualClock, fault: Fault
) -> None:
    for operation in ("put", "open", "list"):
        for at in range(12):
            store = MemoryStore("test")
            faulty = FaultyStore(store, {operation: [*[Fault.NONE] * at, fault]})
            daemon = start_sealing(log, faulty, f"{state}.{operation}.{at}", clock)
            for _ in range(3):
                try:
                    daemon.sync()
                except StoreError:
                    clock.advance(31)
            assert held(store) == log.files()
            daemon.close()


def test_an_owner_that_is_overtaken_while_it_seals_ships_nothing(
    log: LogBuilder, state: str, clock: ManualClock
) -> None:
    store = MemoryStore("test")

    class Interrupting(CountingStore):
        """A rival takes over when the second sealed segment goes up."""

        def put(self, key: str, body: Iterable[bytes], *, create_only: bool = True) -> None:  # type: ignore[override]
            super().put(key, body, create_only=create_only)  # type: ignore[arg-type]
            if parse_sealed(key) is not None and len(keys_of(store, parse_sealed)) == 2:
                rival.sync()

    rival = start_sealing(log, store, state + ".rival", clock, seed=1, takeover=True)
    daemon = start_sealing(log, Interrupting(store), state, clock)
    with pytest.raises(FencedError):
        daemon.sync()
    assert daemon.acknowledged == []
    assert held(store) == log.files()
    assert list(read_replica(store))[-1] == rival.generation


@pytest.mark.slow
def test_a_covered_history_is_continued_where_only_its_snapshot_shows_it(
    log: LogBuilder, state: str, clock: ManualClock
) -> None:
    """The first snapshot covers all of the log except one commit, and nothing was shipped as WAL segments."""
    store = MemoryStore("test")
    daemon = start_sealing(log, store, state, clock)
    daemon.replica.sync(lambda: False)
    assert keys_of(store, parse_wal) == []
    other = start_sealing(log, store, state + ".other", clock, seed=1, takeover=True, settings=Settings())
    other.sync()
    assert other.claims[0].relation == "continues"
    assert held(store) == log.files()
    assert len(keys_of(store, parse_sealed)) == 4
    assert os.listdir(log.folder)
