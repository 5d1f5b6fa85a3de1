"""Shipping a log to a replica: what is put, what is acknowledged, and what follows each refusal and failure."""

from __future__ import annotations

import hashlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from litelog.errors import CorruptionError, FencedError, OtherLogError, SourceMissingError, StoreError
from litelog.objects import wal_segment
from litelog.objects.layout import wal_key
from litelog.objects.wal_segment import LASTING_SEGMENTS
from litelog.retention.policy import GRACE_SECONDS
from litelog.shipping.context import Executors
from litelog.shipping.state import StateFolder
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, held
from tests.builders.independent_reader import objects, read_replica
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import AnswerLosingStore, CountingStore, Fault, FaultyStore, KilledError, KillingStore
from tests.sampling import examples, sampled_cases

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer

FORMATS = ("litelog", "lines", "raw", "spacetimedb", "netlog", "influxdb")
ALL_FORMATS = pytest.mark.parametrize("log", FORMATS, indirect=True)


def rises(daemon: Daemon) -> bool:
    """Whether the acknowledged place never went back."""
    ends = [event.end for event in daemon.acknowledged]
    return ends == sorted(ends)


@ALL_FORMATS
def test_all_of_a_log_is_shipped_and_acknowledged_in_order(log: LogBuilder, store: MemoryStore, state: str) -> None:
    daemon = Daemon(log, store, state)
    assert daemon.sync()
    for _ in range(3):
        log.append(2)
        daemon.sync()
        log.roll(2)
        daemon.sync()
    assert held(store) == log.files()
    ends = [event.end for event in daemon.acknowledged]
    assert ends == sorted(ends)
    (generation,) = read_replica(store).values()
    assert len(daemon.acknowledged) == len(generation.segments)
    assert [header.get("final", False) for header, _, _ in generation.segments].count(True) == 3


def test_headers_state_the_facts_of_their_bytes(log: LogBuilder, store: MemoryStore, state: str) -> None:
    clock = ManualClock()
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    clock.jump(-3600)  # time shipped never goes back
    log.append(2)
    daemon.sync()
    (generation,) = read_replica(store).values()
    (first, data, _), (second, more, _) = generation.segments
    assert data + more == log.files()[log.name]
    assert (first["first"], first["next"], first["records"]) == (0, 3, 3)
    assert (first["lowest"], first["highest"]) == (0, 2_000_000)
    assert (second["first"], second["next"], second["records"]) == (3, 5, 2)
    assert second["shipped"] == first["shipped"]
    assert first["file"] == second["file"] == log.name
    assert {first["log"], generation.claim["log"]} == {"0123456789abcdef0123456789abcdef"}


def test_the_chain_begins_with_the_snapshot(log: LogBuilder, store: MemoryStore, state: str) -> None:
    Daemon(log, store, state).sync()
    (generation,) = read_replica(store).values()
    assert generation.segments[0][0]["previous"] == hashlib.sha256(generation.snapshot).hexdigest()


def test_idle_means_no_request_and_a_sync_means_no_listing(log: LogBuilder, state: str) -> None:
    store = CountingStore(MemoryStore("test"))
    daemon = Daemon(log, store, state)
    daemon.sync()
    store.requests.clear()
    for _ in range(10):
        assert not daemon.sync()
        daemon.replica.changed()
    assert store.total() == 0
    for _ in range(10):
        log.append(1)
        daemon.sync()
    assert store.requests == {"put": 10}


def test_a_restart_with_valid_state_costs_three_requests(log: LogBuilder, state: str) -> None:
    store = CountingStore(MemoryStore("test"))
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.close()
    store.requests.clear()
    daemon = Daemon(log, store, state)
    assert not daemon.sync()
    assert store.requests == {"list": 2, "open": 1}
    log.append(1)
    daemon.sync()
    assert store.requests == {"list": 2, "open": 1, "put": 1}


def test_a_sync_ships_existing_bytes_and_leaves_later_ones_for_the_next(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    """Otherwise a busy log would cause as many puts as fit into its interval."""
    daemon = Daemon(log, store, state)
    daemon.on_shipped = lambda event: log.append(1) and None if len(daemon.acknowledged) < 50 else None
    daemon.sync()
    assert len(daemon.acknowledged) == 1
    assert daemon.replica.changed()
    daemon.sync()
    assert len(daemon.acknowledged) == 2


@ALL_FORMATS
def test_a_backlog_of_many_log_segments_and_a_small_limit_is_one_sync(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    for _ in range(5):
        log.roll(30)
    daemon = Daemon(log, store, state, limit=300)
    daemon.sync()
    assert held(store) == log.files()
    assert not daemon.sync()


def test_a_sync_ends_early_on_request(log: LogBuilder, store: MemoryStore, state: str) -> None:
    for _ in range(5):
        log.roll(3)
    daemon = Daemon(log, store, state)
    daemon.replica.sync(lambda: len(daemon.acknowledged) < 2)
    assert len(daemon.acknowledged) == 2
    daemon.sync()
    assert held(store) == log.files()


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", sampled_cases(range(1, 12), 3, "puts at which a daemon crashes"))
@pytest.mark.parametrize("kept", ["kept", "rolled back"])
def test_a_crash_at_any_put_loses_nothing_and_fences_no_owner(
    log: LogBuilder, store: MemoryStore, state: str, at: int, after: bool, kept: str
) -> None:
    log.roll(2)
    log.roll(2)
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.close()
    shutil.copytree(state, state + ".old")
    log.append(2)
    log.replace(b"".join(log.header() for _ in range(0)) + log.texts[log.name])
    log.truncate(len(log.texts[log.name]) - 8)  # rewound by one commit: a new generation
    log.truncate(log.texts[log.name].rfind(b"r") // 8 * 8 - 40)
    killing = KillingStore(store, at, after=after)
    daemon = Daemon(log, killing, state)
    try:
        daemon.sync()
        log.next = 100
        log.roll(3)
        daemon.sync()
    except KilledError:
        pass
    daemon.crash()
    if kept == "rolled back":
        shutil.rmtree(state)
        shutil.copytree(state + ".old", state)
    daemon = Daemon(log, store, state)
    for _ in range(3):
        daemon.sync()
    generations = read_replica(store)
    assert daemon.generation == max(generations)
    files = held(store)
    assert files == {name: log.files()[name] for name in files}
    assert max(log.files()) in files


@pytest.mark.slow
@ALL_FORMATS
def test_a_segment_that_was_put_but_not_saved_is_adopted(log: LogBuilder, store: MemoryStore, state: str) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.close()
    shutil.copytree(state, state + ".old")
    daemon = Daemon(log, store, state)
    daemon.sync()
    for _ in range(3):
        log.append(1)
        daemon.sync()
        log.roll(2)
        daemon.sync()
    before = objects(store)
    daemon.crash()
    shutil.rmtree(state)
    shutil.copytree(state + ".old", state)
    daemon = Daemon(log, store, state)
    daemon.sync()
    assert objects(store) == before
    log.append(2)
    daemon.sync()
    assert held(store) == log.files()
    assert len(read_replica(store)) == 1


@ALL_FORMATS
def test_a_put_whose_answer_was_lost_is_adopted_and_fences_no_owner(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    faulty = FaultyStore(store)
    daemon = Daemon(log, faulty, state)
    daemon.sync()
    for _ in range(5):
        log.append(1)
        faulty._script["put"] = [Fault.AFTER]
        with pytest.raises(StoreError):
            daemon.sync()
        assert daemon.replica.changed()
        log.append(1)
        daemon.sync()
    daemon.sync()
    assert held(store) == log.files()
    assert len(read_replica(store)) == 1


def test_a_retry_sends_the_same_bytes(log: LogBuilder, state: str) -> None:
    class Recording(FaultyStore):
        def __init__(self, inner: MemoryStore) -> None:
            super().__init__(inner)
            self.bodies: list[tuple[str, bytes]] = []

        def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
            self.bodies.append((key, b"".join(body)))
            super().put(key, body, create_only=create_only)

    faulty = Recording(MemoryStore("test"))
    clock = ManualClock()
    daemon = Daemon(log, faulty, state, clock=clock)
    daemon.sync()
    log.append(1)
    faulty._script["put"] = [Fault.BEFORE] * 3
    faulty.bodies.clear()
    for _ in range(3):
        with pytest.raises(StoreError):
            daemon.sync()
        clock.advance(60)
        log.append(1)
    daemon.sync()
    assert len({body for _, body in faulty.bodies[:4]}) == 1


@pytest.fixture
def threads() -> Iterator[Executors]:
    with ThreadPoolExecutor(2) as compressing, ThreadPoolExecutor(2) as putting:
        yield Executors(compressing, putting)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_a_failed_put_during_which_the_next_one_was_encoded_loses_nothing(
    log: LogBuilder, store: MemoryStore, state: str, threads: Executors, fault: Fault
) -> None:
    faulty = FaultyStore(store)
    daemon = Daemon(log, faulty, state, limit=8192, workers=threads)
    daemon.sync()
    log.append(200, size=500)
    log.roll(100, size=500)
    for failed in range(40):
        faulty._script["put"] = [Fault.NONE] * (failed % 3) + [fault]
        try:
            daemon.sync()
        except StoreError:
            continue
        break
    faulty.enabled = False
    daemon.sync()
    assert held(store) == log.files()
    ends = [event.end for event in daemon.acknowledged]
    assert ends == sorted(set(ends))
    assert len(read_replica(store)) == 1


def test_bytes_after_a_failure_are_shipped_after_the_failed_ones(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    faulty = FaultyStore(store)
    daemon = Daemon(log, faulty, state)
    daemon.sync()
    log.append(1)
    faulty._script["put"] = [Fault.BEFORE]
    with pytest.raises(StoreError):
        daemon.sync()
    log.append(1)
    daemon.sync()
    assert held(store) == log.files()


@pytest.mark.slow
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30), limit=st.sampled_from([4096, 1 << 20]))
def test_everything_arrives_once_and_in_order_after_any_failure(
    seed: int, limit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("faulty")
    log = make_log(folder / "log")
    log.roll(2)
    store = MemoryStore("test")
    faults = ([Fault.BEFORE, Fault.AFTER], 0.3)
    faulty = FaultyStore(
        store, rates={"put": faults, "open": ([Fault.BEFORE], 0.2), "list": ([Fault.BREAK], 0.2)}, seed=seed
    )
    daemon = Daemon(log, faulty, str(folder / "state"), limit=limit, seed=seed)
    for step in range(30):
        log.append(1 + step % 3, size=300)
        if step % 7 == 6:
            log.roll(1)
        if step % 11 == 10:
            assert rises(daemon)
            daemon.restart()
            daemon.acknowledged.clear()
        try:
            daemon.sync()
        except StoreError:
            continue
    faulty.enabled = False
    daemon.sync()
    daemon.sync()
    assert len(read_replica(store)) == 1
    assert held(store) == log.files()
    assert rises(daemon)
    daemon.close()


def test_a_terminal_in_the_slot_fences_for_good(log: LogBuilder, store: MemoryStore, state: str) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    other = Daemon(log, store, state + ".other", takeover=True, seed=1)
    other.sync()
    log.append(2)
    told = len(daemon.acknowledged)
    for _ in range(3):
        with pytest.raises(FencedError):
            daemon.sync()
        log.append(1)
    assert len(daemon.acknowledged) == told
    other.sync()
    assert held(store) == log.files()


def test_another_owners_object_in_the_slot_fences(log: LogBuilder, store: MemoryStore, state: str) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    position = daemon.replica.position
    assert position is not None
    (_, data, digest) = read_replica(store)[daemon.generation].segments[0]
    own = wal_segment.decode_header(*next(item for item in objects(store).items() if "/wal/" in item[0]))
    stranger = replace(own, owner="f" * 32, offset=len(data), previous=digest)
    store.put(wal_key(position), wal_segment.encode(stranger, data))
    log.append(1)
    told = len(daemon.acknowledged)
    for _ in range(2):
        with pytest.raises(FencedError):
            daemon.sync()
    assert len(daemon.acknowledged) == told


def test_own_object_with_other_bytes_begins_a_new_generation(log: LogBuilder, store: MemoryStore, state: str) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.close()
    shutil.copytree(state, state + ".old")
    size = len(log.texts[log.name])
    log.append(1, size=20)
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.close()
    shutil.rmtree(state)
    shutil.copytree(state + ".old", state)
    log.truncate(size)
    log.next -= 1
    log.write(log.commit(size=20, tag=b"other"))
    daemon = Daemon(log, store, state)
    daemon.sync()
    old, new = read_replica(store).values()
    assert old.terminal is not None
    assert new.claim["relation"] == "diverged"
    assert new.files() == log.files()
    assert old.files() != new.files()


def test_after_half_the_grace_ownership_is_proved_before_a_put(log: LogBuilder, state: str) -> None:
    store, clock = CountingStore(MemoryStore("test")), ManualClock()
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    clock.advance(GRACE_SECONDS / 2 + 1)
    store.requests.clear()
    daemon.sync()
    assert store.total() == 0  # idle
    log.append(1)
    daemon.sync()
    assert store.requests == {"list": 2, "open": 1, "put": 1}
    log.append(1)
    daemon.sync()
    assert store.requests == {"list": 2, "open": 1, "put": 2}


def test_a_daemon_that_slept_does_not_write_into_a_pruned_slot(log: LogBuilder, store: MemoryStore, state: str) -> None:
    clock = ManualClock()
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    other = Daemon(log, store, state + ".other", takeover=True, seed=1)
    other.sync()
    gone = [key for key in objects(store) if f"/{daemon.generation}/wal/" in key]
    store.delete(gone)
    clock.advance(GRACE_SECONDS)
    log.append(1)
    before = objects(store)
    for _ in range(2):
        with pytest.raises(FencedError):
            daemon.sync()
    assert objects(store) == before


@pytest.mark.parametrize("stands_still", ["after its proof", "before its put", "before a put whose answer is lost"])
def test_a_daemon_that_stands_still_acknowledges_nothing_in_a_slot_that_was_emptied(
    log: LogBuilder, store: MemoryStore, state: str, stands_still: str
) -> None:
    """The state was older than the replica, so a successor's retention emptied the slot while the daemon slept."""
    clock = ManualClock()
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    daemon.close()
    shutil.copytree(state, state + ".old")
    daemon = Daemon(log, store, state, clock=clock)
    for _ in range(LASTING_SEGMENTS):
        log.append(1)
        daemon.sync()
    generation = daemon.generation
    daemon.crash()
    slow = AnswerLosingStore(store) if "lost" in stands_still else CountingStore(store)
    daemon = Daemon(log, slow, state + ".old", clock=clock)

    def sleep() -> None:
        Daemon(log, store, state + ".other", takeover=True, seed=1, clock=clock).sync()
        shipped = sorted(key for key in objects(store) if f"/{generation}/wal/" in key)
        store.delete(shipped[:-LASTING_SEGMENTS])
        clock.advance(GRACE_SECONDS)

    pause = slow.after_list if stands_still == "after its proof" else slow.before_put
    pause("generations/", sleep)
    with pytest.raises(FencedError):
        daemon.sync()
    assert daemon.acknowledged == []


@pytest.mark.parametrize("seconds", [1, GRACE_SECONDS])
def test_a_slow_put_of_the_only_owner_is_acknowledged(
    log: LogBuilder, store: MemoryStore, state: str, seconds: float
) -> None:
    clock, slow = ManualClock(), CountingStore(store)
    daemon = Daemon(log, slow, state, clock=clock)
    daemon.sync()
    log.append(1)
    slow.requests.clear()
    slow.before_put("generations/", lambda: clock.advance(seconds))
    daemon.sync()
    assert slow.requests == ({"put": 1} if seconds == 1 else {"list": 2, "open": 1, "put": 1})
    assert held(store) == log.files()


def test_a_last_wal_segment_that_is_gone_begins_a_new_generation_that_continues(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    clock = ManualClock()
    daemon = Daemon(log, store, state, clock=clock)
    daemon.sync()
    log.append(1)
    daemon.sync()
    store.delete([max(key for key in objects(store) if "/wal/" in key)])
    clock.advance(GRACE_SECONDS)
    log.append(1)
    daemon.sync()
    _, new = read_replica(store).values()
    assert new.claim["relation"] == "continues"
    assert new.files() == log.files()


@ALL_FORMATS
def test_a_rewound_log_begins_a_diverged_generation_with_the_reason(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    log.truncate(len(log.texts[log.name]) - 3)
    log.truncate(0)
    log.next = 0
    log.write(log.header())
    log.append(1, size=40)
    daemon.sync()
    old, new = read_replica(store).values()
    assert old.terminal is not None
    assert new.claim["relation"] == "diverged"
    assert new.claim["predecessor"] == old.claim["generation"]
    assert log.name in new.claim["reason"] or "was" in new.claim["reason"]
    assert new.files() == log.files()


@ALL_FORMATS
@pytest.mark.parametrize("state_kept", [False, True])
def test_a_log_rewritten_in_commits_of_the_same_size_does_not_continue(
    log: LogBuilder, store: MemoryStore, state: str, state_kept: bool
) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.close()
    log.next = 0
    log.overwrite(0, log.header() + b"".join(log.commit(tag=b"R") for _ in range(3)))
    log.append(1)
    if not state_kept:
        shutil.rmtree(state)
    daemon = Daemon(log, store, state, takeover=True, seed=2)
    if not state_kept and not log.format.has_log_id:
        with pytest.raises(OtherLogError):
            daemon.sync()
        return
    daemon.sync()
    old, new = read_replica(store).values()
    assert old.terminal is not None
    assert new.claim["relation"] == "diverged"
    assert new.files() == log.files()


@pytest.mark.parametrize("how", ["rewound", "first log segment deleted"])
def test_a_log_that_forks_before_its_predecessors_end_begins_another_generation(
    log: LogBuilder, store: MemoryStore, state: str, how: str
) -> None:
    """Readers would leave the predecessor for a generation that lacks what was acknowledged in it."""
    first = log.name
    newer = log.roll(3)
    begin = log.next - 3
    Daemon(log, store, state + ".other", seed=1).sync()
    faulty = FaultyStore(store, {"put": [Fault.NONE] * 4 + [Fault.BEFORE]})  # all but the first WAL segment
    daemon = Daemon(log, faulty, state, takeover=True)
    with pytest.raises(StoreError):
        daemon.sync()
    if how == "rewound":
        log.next = begin
        log.overwrite(0, log.header() + b"".join(log.commit(tag=b"R") for _ in range(3)), newer)
    else:
        log.delete(first)
    daemon.restart()
    daemon.sync()
    old, between, new = read_replica(store).values()
    assert between.claim["relation"] == "continues"
    assert not between.holds(1, 1)
    assert new.claim["relation"] == "diverged"
    assert new.claim["predecessor"] == old.claim["generation"]
    assert new.files() == log.files()


def test_a_promise_that_is_kept_is_looked_at_once(log: LogBuilder, store: MemoryStore, state: str) -> None:
    Daemon(log, store, state + ".other", seed=1).sync()
    daemon = Daemon(log, store, state, takeover=True)
    daemon.sync()
    log.append(1)
    daemon.sync()
    daemon.close()
    with StateFolder(state, "test") as folder:
        kept = folder.load()
    assert kept is not None
    assert kept.promised is None
    assert len(read_replica(store)) == 2


@pytest.mark.parametrize("log", ["litelog", "lines", "raw"], indirect=True)  # others leave garbage there
def test_growth_after_final_begins_a_diverged_generation_that_holds_it(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    older = log.name
    log.roll(2)
    daemon = Daemon(log, store, state)
    daemon.sync()
    if log.format.self_numbered:
        log.write(b"garbage!", older)
        with pytest.raises(CorruptionError):
            daemon.sync()
    else:
        log.write(b"late\n", older)
        daemon.sync()
    generations = list(read_replica(store).values())
    assert len(generations) == 2
    assert generations[1].claim["relation"] == "diverged"
    assert "grew" in generations[1].claim["reason"]
    if not log.format.self_numbered:
        assert generations[1].files() == log.files()


@pytest.mark.parametrize("failing", range(1, 6))
def test_a_fork_is_remembered_while_the_store_fails_and_logged_once(
    log: LogBuilder, store: MemoryStore, state: str, failing: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The new generation's claim or the old one's terminal may be there when a later step fails."""
    lines = make_log(log.folder + ".lines", "lines")
    older = lines.roll(3)
    lines.roll(2)
    faulty = FaultyStore(store)
    daemon = Daemon(lines, faulty, state)
    daemon.sync()
    lines.write(b"late\n", older)
    faulty._script["put"] = [Fault.NONE] * (failing - 1) + [Fault.BEFORE]
    try:
        daemon.sync()
    except StoreError:
        assert daemon.replica.changed()
    lines.append(1)
    daemon.sync()
    generations = list(read_replica(store).values())
    assert len(generations) == 2
    assert generations[1].claim["relation"] == "diverged"
    assert generations[1].files() == lines.files()
    assert [record.getMessage() for record in caplog.records if "a new generation begins" in record.getMessage()] == [
        f"{lines.folder}: {older}: grew after it was finished; a new generation begins in {store.url}"
    ]


def test_a_log_that_comes_back_meanwhile_is_not_fenced_by_its_own_terminal(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    daemon = Daemon(log, FaultyStore(store), state)
    daemon.sync()
    whole = log.texts[log.name]
    log.truncate(len(whole) - 8)
    faulty = daemon.store
    assert isinstance(faulty, FaultyStore)
    faulty._script["put"] = [Fault.NONE] * 3 + [Fault.BEFORE]  # claim, claim again, terminal; no snapshot
    with pytest.raises(StoreError):
        daemon.sync()
    log.overwrite(0, whole)
    log.append(1)
    daemon.sync()
    assert held(store) == log.files()


def test_a_gap_begins_a_generation_after_it(log: LogBuilder, store: MemoryStore, state: str) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    log.next += 10
    behind = log.roll(2)
    daemon.sync()
    old, new = read_replica(store).values()
    assert new.claim["relation"] == "diverged"
    assert "jumps from 3 to 13" in new.claim["reason"]
    assert new.files() == {behind: log.texts[behind]}
    assert old.files() | new.files() == log.files()
    daemon.close()
    daemon = Daemon(log, store, state)
    log.append(1)
    daemon.sync()
    assert len(read_replica(store)) == 2


@ALL_FORMATS
def test_an_unmounted_disk_is_not_a_rewind(log: LogBuilder, store: MemoryStore, state: str) -> None:
    daemon = Daemon(log, store, state)
    daemon.sync()
    before = objects(store)
    os.rename(log.folder, log.folder + ".away")
    with pytest.raises(SourceMissingError):
        daemon.sync()
    os.mkdir(log.folder)
    for _ in range(2):
        with pytest.raises(SourceMissingError):
            daemon.sync()
        daemon.restart()
    os.rmdir(log.folder)
    os.rename(log.folder + ".away", log.folder)
    log.append(1)
    daemon.sync()
    assert len(read_replica(store)) == 1
    assert set(objects(store)) > set(before)
    assert held(store) == log.files()


def test_the_commits_before_a_corrupt_one_are_acknowledged_before_the_log_freezes(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    bad = len(log.texts[log.name])
    log.append(2)
    log.overwrite(bad + 45, b"\xff")
    daemon = Daemon(log, store, state)
    for _ in range(2):
        with pytest.raises(CorruptionError):
            daemon.sync()
    assert held(store) == {log.name: log.texts[log.name][:bad]}


def test_closing_twice_is_harmless_and_releases_the_lock(log: LogBuilder, store: MemoryStore, state: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    daemon = Daemon(log, store, state)
    daemon.sync()
    daemon.close()
    daemon.close()
    with StateFolder(state, "test") as folder:
        assert folder.load() is not None
    assert len(os.listdir("/proc/self/fd")) == before


def test_once_fenced_always_fenced(log: LogBuilder, store: MemoryStore, state: str) -> None:
    """Even a daemon that may take over does not come back by itself."""
    daemon = Daemon(log, store, state, takeover=True)
    daemon.sync()
    Daemon(log, store, state + ".other", takeover=True, seed=1).sync()
    log.append(1)
    before = objects(store)
    for _ in range(3):
        with pytest.raises(FencedError):
            daemon.sync()
    assert objects(store) == before


@pytest.mark.slow
def test_a_log_segment_that_was_replaced_and_deleted_unseen_is_a_hole_and_no_damage(
    log: LogBuilder, store: MemoryStore, state: str
) -> None:
    daemon = Daemon(log, store, state)
    older = log.name
    torn = log.commit()
    log.write(torn[:5])
    daemon.sync()
    log.replace(log.texts[older] + torn[5:])
    log.roll(1)
    log.delete(older)
    daemon.sync()
    _, new = read_replica(store).values()
    assert new.claim["reason"].startswith(f"{older}: vanished")
    assert new.files() == log.files()
