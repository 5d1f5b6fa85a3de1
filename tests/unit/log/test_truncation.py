"""Truncation of a source: which log segments it deletes, which data is durable first, and how daemons and readers
continue."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ClosedError, LockedError, SourceError, TruncatedError
from litelog.log.disk import LocalDisk
from litelog.log.reader import LogReader
from litelog.log.recovery import list_segments
from litelog.log.replica_registry import (
    ReplicaSet,
    log_state_folder,
    read_generation,
    read_replicated,
)
from litelog.log.sequence_base import read_tombstone
from litelog.log.sparse_index import index_path
from litelog.log.truncation import LocalSegment, Truncation, TruncationPolicy, plan_truncation
from litelog.log.writer import LogWriter
from litelog.objects.claim import Relation
from litelog.objects.snapshot import Snapshot
from litelog.objects.snapshot_entries import SnapshotEntry
from litelog.shipping.context import LogSource, Settings
from litelog.shipping.source_truncation import PATIENCE_SECONDS, LogTruncator, ReplicatedNotes
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, held, start_sealing
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import KilledError, KillingStore
from tests.builders.truncated_logs import NOW, CrashingDisk, fill_log, note_replica

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3600.0


def segments(sizes: list[int], shipped: list[int | None]) -> list[LocalSegment]:
    return [LocalSegment(str(n), size, at) for n, (size, at) in enumerate(zip(sizes, shipped, strict=True))]


@pytest.mark.parametrize(
    ("size", "replicated", "gone"),
    [(500, 0, 0), (5, 0, 0), (25, 1, 0), (25, 2, 1), (5, 3, 1), (0, 3, 1), (30, 3, 0), (29, 3, 1)],
)
def test_by_size_the_oldest_go_as_far_as_they_are_replicated_and_two_stay(
    size: int, replicated: int, gone: int
) -> None:
    log = segments([10, 10, 10], [NOW if number < replicated else None for number in range(3)])
    assert plan_truncation(log, TruncationPolicy(max_bytes=size), NOW) == gone


def test_segments_that_the_last_replica_received_long_ago_are_removed_by_age() -> None:
    ages = [NOW - int(hours * HOUR) * 1_000_000 for hours in (9, 5, 7, 1, 0)]
    log = segments([1] * 5, ages)
    assert plan_truncation(log, TruncationPolicy(max_age=6 * HOUR), NOW) == 1  # the younger one stops it
    assert plan_truncation(log, TruncationPolicy(max_age=4 * HOUR), NOW) == 3
    assert plan_truncation(log, TruncationPolicy(max_age=4 * HOUR, max_bytes=0), NOW) == 3
    assert plan_truncation(log, TruncationPolicy(max_age=10 * HOUR), NOW) == 0


def test_a_policy_without_a_limit_is_none() -> None:
    with pytest.raises(ValueError, match="max-bytes, max-age or both"):
        TruncationPolicy()


@pytest.fixture
def log(tmp_path: Path) -> str:
    """Log segments that begin with the sequences 0, 10, 20, 30 and 40."""
    fill_log(str(tmp_path / "log"))
    return str(tmp_path / "log")


def firsts(log: str) -> list[int]:
    return [int(name[:20]) for name in list_segments(log)]


@pytest.mark.parametrize(
    ("before", "left"),
    [(0, 5), (9, 5), (10, 4), (19, 4), (25, 3), (30, 2), (50, 2), (10**9, 2)],
)
def test_truncate_removes_whole_log_segments_before_a_sequence_and_keeps_two(
    log: str, state: str, before: int, left: int
) -> None:
    note_replica(log, state)
    with LogWriter(log) as writer:
        done = writer.truncate(before, state_dir=state)
        assert firsts(log) == [0, 10, 20, 30, 40][-left:]
        assert [int(name[:20]) for name in done.removed] == [0, 10, 20, 30, 40][:-left]
        assert done.kept is None
        assert writer.append(b"on").first == 50
    with LogWriter(log) as writer:
        assert writer.next_sequence == 51


def test_readers_get_an_error_that_names_the_new_beginning(log: str, state: str) -> None:
    note_replica(log, state)
    with LogWriter(log) as writer:
        writer.truncate(25, state_dir=state)
    with LogReader(log, start=19) as reader, pytest.raises(TruncatedError) as caught:
        reader.read()
    assert (caught.value.requested, caught.value.first_available) == (19, 20)
    with LogReader(log) as reader:
        assert [record.sequence for record in reader] == list(range(20, 50))
    tombstone = read_tombstone(log)
    assert tombstone is not None
    assert (tombstone.first, tombstone.file) == (20, list_segments(log)[0])


def test_a_reader_in_a_truncated_part_reads_it_to_its_end_and_gets_an_error_then(log: str, state: str) -> None:
    note_replica(log, state)
    with LogReader(log) as reader:
        assert next(reader).sequence == 0
        with LogWriter(log) as writer:
            writer.truncate(30, state_dir=state)
        with pytest.raises(TruncatedError):
            list(reader)


def test_indexes_go_with_their_log_segments(log: str, state: str) -> None:
    note_replica(log, state)
    with LogWriter(log) as writer:
        writer.truncate(20, state_dir=state)
    assert sorted(name for name in os.listdir(log) if name.endswith(".index")) == [
        os.path.basename(index_path(os.path.join(log, name))) for name in list_segments(log)
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"s10": {"crc": 1}},
        {"s10": {"length": 5}},
        {"s10": {"first": 11}},
        {"s10": {"file": "00000000000000000011.log"}},
    ],
)
def test_a_segment_that_differs_in_one_replica_stays_with_all_later_ones(
    log: str, state: str, changes: dict[str, dict[str, int | str]]
) -> None:
    note_replica(log, state, "good")
    note_replica(log, state, "other", **changes)
    with LogWriter(log) as writer:
        done = writer.truncate(50, state_dir=state)
    left = firsts(log)
    assert done.kept is not None
    assert "00000000000000000010.log" in done.kept
    if "length" in changes["s10"] or "file" in changes["s10"]:  # the newest that both hold shows their ends
        assert left == [0, 10, 20, 30, 40]
        assert "00000000000000000000.log shows where the replicas end" in done.kept
    else:
        assert left == [10, 20, 30, 40]


def test_a_rewritten_log_segment_of_the_same_size_stays(log: str, state: str) -> None:
    note_replica(log, state)
    with open(os.path.join(log, list_segments(log)[0]), "r+b") as file:
        file.seek(-16, os.SEEK_END)
        file.write(b"\1")
    with LogWriter(log) as writer:
        done = writer.truncate(50, state_dir=state)
    assert (len(firsts(log)), done.removed) == (5, ())


@pytest.mark.parametrize("damage", ["none", "flipped", "cut", "foreign"])
def test_notes_that_cannot_be_read_are_notes_of_nothing(log: str, state: str, damage: str) -> None:
    note_replica(log, state, "good")
    note_replica(log, state, "other")
    path = os.path.join(log_state_folder(state, log), "other", "replicated.json")
    with open(path, "rb") as file:
        body = file.read()
    at = body.index(b"g") + len(body) // 2
    spoilt = {"flipped": body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :], "cut": body[:-1], "foreign": b"[]"}
    os.unlink(path)
    if damage in spoilt:
        with open(path, "wb") as file:
            file.write(spoilt[damage])
    with LogWriter(log) as writer:
        assert writer.truncate(50, state_dir=state).removed == ()
    assert len(firsts(log)) == 5


def test_a_log_without_replicas_or_with_an_unreadable_set_loses_nothing(log: str, state: str) -> None:
    with LogWriter(log) as writer:
        assert writer.truncate(50, state_dir=state).kept is not None
        note_replica(log, state)
        with open(os.path.join(log_state_folder(state, log), "replicas.json"), "w") as file:
            file.write("{}")
        assert writer.truncate(50, state_dir=state).removed == ()
    assert len(firsts(log)) == 5


def test_a_replica_that_was_forgotten_does_not_count(log: str, state: str) -> None:
    note_replica(log, state, "good")
    ReplicaSet(log_state_folder(state, log)).add("gone", "memory://gone")
    with LogWriter(log) as writer:
        assert writer.truncate(50, state_dir=state).removed == ()
        ReplicaSet(log_state_folder(state, log)).remove("gone")
        assert len(writer.truncate(50, state_dir=state).removed) == 3


@pytest.mark.parametrize("damage", ["flipped", "empty", "foreign", "missing"])
def test_an_unreadable_set_loses_no_replica_when_another_one_is_added(
    log: str, state: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    note_replica(log, state, "a")
    note_replica(log, state, "b", s0={"crc": 1})
    folder = log_state_folder(state, log)
    path = os.path.join(folder, "replicas.json")
    with open(path, "rb") as file:
        body = file.read()
    spoilt = {"flipped": body.replace(b"memory://r", b"memory://s", 1), "empty": b"", "foreign": b"[]"}
    os.unlink(path)
    if damage in spoilt:
        with open(path, "wb") as file:
            file.write(spoilt[damage])
    replicas = ReplicaSet(folder)
    assert replicas.names() is None
    replicas.add("a", "memory://r")
    assert replicas.names() == {"a": "memory://r", "b": "b"}
    assert ("is rebuilt" in caplog.text) == (damage in spoilt)
    with LogWriter(log) as writer:
        assert writer.truncate(50, state_dir=state).removed == ()
        replicas.remove("b")
        assert len(writer.truncate(50, state_dir=state).removed) == 3


def test_an_unreadable_set_is_made_again_with_the_log_id_that_its_replicas_ship(tmp_path: Path) -> None:
    place = log_state_folder(str(tmp_path / "state"), str(tmp_path / "log"))
    log = make_log(tmp_path / "log", "lines")
    log.roll(2)
    replicas = ReplicaSet(place)
    source = LogSource(log.folder, log.format, replicas.agree_on_log_id)
    replicas.add("a", "memory://a")
    daemon = Daemon(log, MemoryStore("a"), os.path.join(place, "a"), source=source)
    daemon.sync()
    daemon.close()
    agreed = daemon.claims[-1].log
    with open(os.path.join(place, "replicas.json"), "w") as file:
        file.write("damaged")
    assert replicas.agree_on_log_id("b" * 32) == agreed
    with open(os.path.join(place, "replicas.json"), "w") as file:
        file.write("damaged")
    replicas.add("b", "memory://b")
    assert replicas.agree_on_log_id("b" * 32) == agreed


def test_the_agreed_id_of_a_log_stays_when_replicas_are_added_and_removed(log: str, state: str) -> None:
    replicas = ReplicaSet(log_state_folder(state, log))
    assert replicas.agree_on_log_id("a" * 32) == "a" * 32
    assert replicas.names() == {}
    replicas.add("one", "memory://one")
    assert replicas.agree_on_log_id("b" * 32) == "a" * 32
    replicas.remove("one")
    assert ReplicaSet(log_state_folder(state, log)).agree_on_log_id("c" * 32) == "a" * 32


def test_a_closed_writer_truncates_nothing(log: str, state: str) -> None:
    writer = LogWriter(log)
    writer.close()
    with pytest.raises(ClosedError):
        writer.truncate(50, state_dir=state)


def test_two_truncations_at_once_are_refused(log: str, state: str) -> None:
    import fcntl

    note_replica(log, state)
    held = os.open(log, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with LogWriter(log) as writer:
        with pytest.raises(LockedError):
            writer.truncate(50, state_dir=state)
        os.close(held)
        assert writer.truncate(50, state_dir=state).removed


@pytest.mark.slow
def test_a_truncation_that_dies_leaves_a_suffix_and_the_next_one_finishes_it(log: str, state: str) -> None:
    import shutil

    note_replica(log, state)
    template = log + ".template"
    shutil.copytree(log, template)
    crashes = 0
    for at in range(50):
        shutil.rmtree(log)
        shutil.copytree(template, log)
        held = ReplicaSet(log_state_folder(state, log)).held()
        clock = ManualClock()
        from litelog.formats.litelog import LitelogFormat

        try:
            Truncation(log, LitelogFormat(), clock, CrashingDisk(at), log_state_folder(state, log)).before(held, 35)
        except SourceError:
            crashes += 1
        else:
            break
        left = firsts(log)
        assert left == [0, 10, 20, 30, 40][-len(left) :]
        tombstone = read_tombstone(log)
        assert len(left) == 5 or (tombstone is not None and tombstone.first == 30)
        with LogReader(log) as reader:
            assert [record.sequence for record in reader] == list(range(left[0], 50))
        again = Truncation(log, LitelogFormat(), clock, LocalDisk(), log_state_folder(state, log))
        again.by_policy(held, TruncationPolicy(max_bytes=1 << 40), NOW)
        assert firsts(log) == ([30, 40] if tombstone is not None else left)
    assert crashes == 2 + 3
    assert firsts(log) == [30, 40]


def daemons(
    tmp_path: Path, clock: ManualClock, policy: TruncationPolicy | None, count: int = 2
) -> tuple[LogBuilder, list[Daemon], list[MemoryStore]]:
    """Replicas of one log, each with its state where the log's set of replicas looks for it."""
    log = make_log(tmp_path / "log")
    log.roll(3)
    state = log_state_folder(str(tmp_path / "state"), log.folder)
    replicas = ReplicaSet(state)
    stores = [MemoryStore(f"store{number}") for number in range(count)]
    made = []
    for number, store in enumerate(stores):
        replicas.add(f"r{number}", store.url)
        daemon = Daemon(
            log, store, os.path.join(state, f"r{number}"), clock=clock, settings=Settings(snapshot_segments=1)
        )
        truncator = LogTruncator(LogSource(log.folder, log.format), replicas, policy, clock)
        daemon.when_replicated = truncator.run
        made.append(daemon)
    return log, made, stores


SMALL = TruncationPolicy(max_bytes=0)


def grow(log: LogBuilder, daemons: list[Daemon], count: int) -> None:
    for _ in range(count):
        log.roll(2)
        for daemon in daemons:
            daemon.sync()
            daemon.clock.advance(10)


@pytest.mark.slow
def test_a_daemon_truncates_segments_in_all_replicas_and_keeps_its_generations(tmp_path: Path) -> None:
    from tests.builders.independent_reader import read_replica

    clock = ManualClock()
    log, pair, stores = daemons(tmp_path, clock, SMALL)
    for daemon in pair:
        daemon.sync()
    grow(log, pair, 8)
    assert 2 <= len(log.files()) <= 3
    for daemon, store in zip(pair, stores, strict=True):
        (generation,) = read_replica(store).values()
        assert generation.files() == log.texts
        daemon.close()
        daemon.start()
    grow(log, pair, 2)
    for store in stores:
        (generation,) = read_replica(store).values()  # no new generation: a truncation is not a rewind
        assert generation.files() == log.texts


@pytest.mark.slow
def test_a_replica_that_lags_keeps_the_log(tmp_path: Path) -> None:
    log, pair, _ = daemons(tmp_path, ManualClock(), SMALL)
    for daemon in pair:
        daemon.sync()
    grow(log, pair[:1], 6)
    assert len(log.files()) == 7
    grow(log, pair, 1)
    assert len(log.files()) <= 3


def test_an_owner_that_takes_over_continues_a_log_truncated_up_to_its_replica(tmp_path: Path) -> None:
    clock, log, store = ManualClock(), make_log(tmp_path / "log"), MemoryStore("replica")
    for _ in range(4):
        log.roll(2)
    state = log_state_folder(str(tmp_path / "state"), log.folder)
    replicas = ReplicaSet(state)
    replicas.add("r0", store.url)
    finished = len(log.texts) - 1
    before_wal = 2 + finished + 1  # the claim, twice, sealed segments and the first snapshot
    killing = KillingStore(store, before_wal + 1, after=False)
    daemon = start_sealing(log, killing, os.path.join(state, "r0"), clock)
    with pytest.raises(KilledError):
        daemon.sync()
    daemon.crash()
    assert sorted(read_replicated(daemon.state)) == sorted(log.texts)[:finished]
    for _ in range(3):
        log.roll(2)
    LogTruncator(LogSource(log.folder, log.format), replicas, SMALL, clock).run()
    assert sorted(log.files()) == sorted(log.texts)[finished - 1 :]
    successor = start_sealing(log, store, str(tmp_path / "successor"), clock, takeover=True)
    successor.sync()
    assert successor.claims[-1].relation is Relation.CONTINUES
    assert held(store) == log.texts


@pytest.mark.slow
def test_without_a_policy_nothing_is_ever_written_at_the_source(tmp_path: Path) -> None:
    log, pair, _ = daemons(tmp_path, ManualClock(), None)
    for daemon in pair:
        daemon.sync()
    grow(log, pair, 6)
    assert log.files() == log.texts
    assert sorted(os.listdir(log.folder)) == sorted(log.texts)


def test_a_rewind_clears_the_replicated_segments_before_the_new_claim(tmp_path: Path) -> None:
    log, (daemon,), _ = daemons(tmp_path, ManualClock(), None, count=1)
    daemon.sync()
    grow(log, [daemon], 4)
    assert len(read_replicated(daemon.state)) == 4
    log.next -= 1
    log.truncate(len(log.texts[log.name]) - 64)
    log.write(log.commit(tag=b"x"))
    noted: list[int] = []
    claims = len(daemon.claims)

    class Looking(list):  # type: ignore[type-arg]
        def append(self, claim: object) -> None:
            noted.append(len(read_replicated(daemon.state)))
            super().append(claim)

    daemon.claims = Looking(daemon.claims)
    try:
        daemon.sync()
    except SourceError:
        daemon.sync()
    assert len(daemon.claims) == claims + 1
    assert noted == [0]


def test_a_lost_state_begins_with_nothing_noted(tmp_path: Path) -> None:
    log, (daemon,), _ = daemons(tmp_path, ManualClock(), None, count=1)
    daemon.sync()
    grow(log, [daemon], 4)
    os.unlink(os.path.join(daemon.state, "state.json"))
    daemon.crash()
    daemon.start(takeover=True)
    daemon.sync()
    assert read_generation(daemon.state) == daemon.generation


@pytest.mark.slow
@pytest.mark.parametrize("jump", [-400 * 24 * HOUR, 400 * 24 * HOUR])
def test_a_clock_that_jumps_truncates_nothing_earlier(tmp_path: Path, jump: int) -> None:
    clock = ManualClock()
    log, pair, _ = daemons(tmp_path, clock, TruncationPolicy(max_age=100 * 24 * HOUR))
    for daemon in pair:
        daemon.sync()
    grow(log, pair, 3)
    clock.jump(jump)
    grow(log, pair, 3)
    assert len(log.files()) == 7


def test_the_reason_that_prevents_a_truncation_is_reported_once(
    log: str, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    from litelog.formats.litelog import LitelogFormat

    note_replica(log, state, s10={"crc": 1})
    replicas = ReplicaSet(log_state_folder(state, log))
    truncator = LogTruncator(LogSource(log, LitelogFormat()), replicas, SMALL, ManualClock())
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            truncator.run()
    assert firsts(log) == [10, 20, 30, 40]
    assert len(caplog.records) == 1
    assert "holds other bytes" in caplog.text


class Blocked:
    """A log that the policy would truncate. The replica ``there`` holds all of it, and ``gone`` nothing."""

    def __init__(self, log: str, state: str, policy: TruncationPolicy = SMALL) -> None:
        from litelog.formats.litelog import LitelogFormat

        self.clock = ManualClock()
        self.replicas = ReplicaSet(log_state_folder(state, log))
        note_replica(log, state, "there")
        self.replicas.add("gone", "memory://gone")
        self.truncator = LogTruncator(LogSource(log, LitelogFormat()), self.replicas, policy, self.clock)
        self.truncator.attend("there", MemoryStore())


def test_a_log_that_waits_for_a_replica_that_is_gone_says_so_and_not_each_time(
    log: str, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = Blocked(log, state)
    for _ in range(9):
        blocked.truncator.run()
    assert len(firsts(log)) == 5
    assert [record.consecutive_failures for record in caplog.records] == [1, 2, 4, 8]
    assert {record.event for record in caplog.records} == {"not-truncated"}
    assert "00000000000000000000.log" in caplog.text
    assert "wait for memory://gone to" in caplog.text
    assert f"litelog forget {log} memory://gone" in caplog.text
    blocked.replicas.remove("gone")
    caplog.clear()
    blocked.truncator.run()
    assert (firsts(log), [record for record in caplog.records if record.levelno >= logging.WARNING]) == ([30, 40], [])


def test_a_pending_upload_is_reported_only_if_it_takes_long(
    log: str, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = Blocked(log, state)
    blocked.truncator.attend("gone", MemoryStore())
    blocked.truncator.run()
    blocked.clock.advance(PATIENCE_SECONDS - 1)
    blocked.truncator.run()
    assert not caplog.records
    blocked.clock.advance(1)
    blocked.truncator.run()
    assert "wait for memory://gone to" in caplog.text


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (TruncationPolicy(max_bytes=1 << 30), False),
        (TruncationPolicy(max_age=1e10), False),
        (TruncationPolicy(max_age=0), True),
    ],
)
def test_segments_that_the_policy_keeps_wait_for_no_replica(
    log: str, state: str, caplog: pytest.LogCaptureFixture, policy: TruncationPolicy, said: bool
) -> None:
    Blocked(log, state, policy).truncator.run()
    assert bool(caplog.records) == said


def test_log_segments_that_no_replica_holds_yet_are_not_reported(
    log: str, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = Blocked(log, state)
    blocked.replicas.remove("there")
    blocked.truncator.run()
    assert not caplog.records


def test_a_set_that_cannot_be_read_any_more_is_reported_once(
    log: str, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = Blocked(log, state)
    blocked.replicas.remove("gone")
    with open(os.path.join(blocked.replicas.folder, "replicas.json"), "w") as file:
        file.write("damaged")
    blocked.truncator.run()
    blocked.truncator.run()
    assert len(firsts(log)) == 5
    assert [record.event for record in caplog.records] == ["not-truncated"]


@pytest.mark.slow
def test_only_replicated_segments_of_the_current_generation_count(log: str, tmp_path: Path) -> None:
    from tests.builders.replica_builder import LOG, SECOND

    state = str(tmp_path / "notes")
    os.makedirs(state)

    def snapshot(generation: str) -> Snapshot:
        entry = SnapshotEntry(
            0, generation, 0, list_segments(log)[0], 100, 10, "0" * 64, 1, 0, 1, 1, 0, 0, SECOND, SECOND, True
        )
        return Snapshot(LOG, "litelog", generation, "me", 0, 1, SECOND, segments=(entry,))

    older, newer = "00000001000000a1", "00000002000000a2"
    notes = ReplicatedNotes(state, log)
    notes.begin(older)
    assert notes.note(snapshot(older))
    assert len(read_replicated(state)) == 1
    ReplicatedNotes(state, log).begin(older)  # a restart
    assert len(read_replicated(state)) == 1
    notes.begin(newer)
    assert read_replicated(state) == {}
    assert not notes.note(snapshot(older))  # a step of the old generation's that ended late
    assert read_replicated(state) == {}
    assert notes.note(snapshot(newer))
    notes.lower()
    assert read_replicated(state) == {}
    assert not notes.note(snapshot(newer))
