"""Truncation of logs whose records carry no numbers: lines and bytes. All readers number the rest as before."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from litelog.errors import SourceError, TruncatedError
from litelog.log.disk import LocalDisk
from litelog.log.reader import LogReader
from litelog.log.replica_registry import ReplicaSet, log_state_folder
from litelog.log.sequence_base import SequenceBase, read_tombstone
from litelog.log.source import SegmentFolder
from litelog.log.truncation import LocalSegment, Truncation, TruncationPolicy, note_empty
from litelog.reading.replica_reader import ReplicaReader
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.shipping.context import LogSource, Settings
from litelog.shipping.source_truncation import LogTruncator
from litelog.stores.object_store import ObjectReplicaClient
from litelog.system.clock import SystemClock
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, newest_snapshot
from tests.builders.independent_reader import read_replica
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.truncated_logs import CrashingDisk

if TYPE_CHECKING:
    from pathlib import Path

SMALL = TruncationPolicy(max_bytes=0)
NOW = 10**18


class Place:
    """A log of lines or of bytes, and daemons that replicate and truncate it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.log: LogBuilder = make_log(folder / "log", name)
        self.clock = ManualClock()
        self.state_dir = str(folder / "state")
        self.replicas = ReplicaSet(log_state_folder(self.state_dir, self.log.folder))
        self.names = SegmentFolder(self.log.folder, self.log.format, self.clock)
        self.numbering = SequenceBase(self.log.folder, self.log.format, self.names, self.replicas.folder)
        self.daemons: list[Daemon] = []
        self.log.roll(3)

    def start(
        self, policy: TruncationPolicy | None = SMALL, *, backlog_sealer: bool = True, number: int = -1
    ) -> Daemon:
        number = len(self.daemons) if number < 0 else number
        store = MemoryStore(f"store{number}")
        self.replicas.add(f"r{number}", store.url)
        log, name = self.log, os.path.join(self.replicas.folder, f"r{number}")
        settings = Settings(snapshot_segments=1)
        source = LogSource(log.folder, log.format, first_sequence=self.numbering.beginning)
        daemon = Daemon(
            log,
            store,
            name,
            clock=self.clock,
            seed=number,
            settings=settings,
            backlog_sealer=backlog_sealer,
            source=source,
        )
        truncator = LogTruncator(source, self.replicas, policy, self.clock)
        daemon.when_replicated = truncator.run
        self.daemons.append(daemon)
        return daemon

    def grow(self, count: int) -> None:
        for _ in range(count):
            self.log.roll(2)
            for daemon in self.daemons:
                daemon.sync()
                self.clock.advance(10)

    def local(self, **more: object) -> list[tuple[int, bytes]]:
        """Sequence and value of all records in the log."""
        with LogReader(self.log.folder, self.log.format, state_dir=self.state_dir, **more) as reader:  # type: ignore[arg-type]
            return [(record.sequence, bytes(record.value)) for record in reader]

    def replicated(self, daemon: Daemon) -> list[tuple[int, bytes]]:
        with ReplicaReader(ObjectReplicaClient(daemon.store)) as reader:
            return [(record.sequence, bytes(record.value)) for batch in reader.batches() for record in batch.records()]

    def expect(self) -> None:
        """Check that log and replicas agree with each other and with the written records."""
        written = b"".join(data for _, data in sorted(self.log.texts.items()))
        local = self.local()
        start = local[0][0]
        for daemon in self.daemons:
            assert self.flat(self.replicated(daemon)) == self.flat([(0, b"")], written)
            assert read_replica(daemon.store)[daemon.generation].files() == self.log.texts
        assert self.flat(local) == self.flat([(start, b"")], written)

    def flat(self, records: list[tuple[int, bytes]], written: bytes | None = None) -> list[tuple[int, bytes]]:
        """The records one by one: lines as they are, and each byte. ``written``: take these bytes from the first record
        on instead."""
        lines = self.log.format.name == "lines"
        if written is not None:
            first = records[0][0]
            whole = written.split(b"\n")[:-1] if lines else [bytes([byte]) for byte in written]
            return list(enumerate(whole))[first:]
        return records if lines else [(at + n, bytes([byte])) for at, value in records for n, byte in enumerate(value)]


@pytest.fixture(params=["lines", "raw"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, request.param)


@pytest.mark.slow
@pytest.mark.parametrize("backlog_sealer", [False, True])
def test_after_each_truncation_the_log_and_its_replicas_number_records_alike(
    place: Place, backlog_sealer: bool
) -> None:
    daemons = [place.start(backlog_sealer=backlog_sealer), place.start(backlog_sealer=backlog_sealer)]
    for _ in range(6):
        place.grow(2)
        place.expect()
    assert 2 <= len(place.log.files()) <= 3
    for daemon in daemons:
        daemon.close()
        daemon.start()
    place.grow(2)
    place.expect()
    assert all(len({claim.generation for claim in daemon.claims}) == 1 for daemon in daemons)
    with pytest.raises(TruncatedError) as caught:
        place.local(start=3)
    assert caught.value.first_available == place.local()[0][0]
    assert place.local(start=caught.value.first_available) == place.local()


@pytest.mark.slow
def test_empty_files_in_the_log_are_removed_with_the_segments_before_them(place: Place) -> None:
    daemon = place.start(policy=None)
    empty = [place.log.path("app.")]
    open(empty[0], "x").close()
    for _ in range(4):
        place.grow(1)
        empty.append(place.log.path(f"{place.log.name}.empty"))
        open(empty[-1], "x").close()
    place.grow(2)
    assert all(os.path.exists(path) for path in empty)
    truncation = Truncation(place.log.folder, place.log.format, place.clock, LocalDisk(), place.replicas.folder)
    done = truncation.by_policy(place.replicas.held(), SMALL, NOW)
    assert (done.kept, [path for path in empty if os.path.exists(path)]) == (None, [])
    assert len(os.listdir(place.log.folder)) == 2
    assert daemon.sync() is False
    place.expect()


def test_a_file_that_is_not_empty_any_more_stays(place: Place) -> None:
    place.start(policy=None)
    place.grow(1)
    late = place.log.path(f"{place.log.name}.late")
    open(late, "x").close()
    place.grow(3)
    held = place.replicas.held()
    with open(late, "ab") as file:
        file.write(b"late\n")
    truncation = Truncation(place.log.folder, place.log.format, place.clock, LocalDisk(), place.replicas.folder)
    done = truncation.by_policy(held, SMALL, NOW)
    assert done.removed[-1] < os.path.basename(late)
    assert os.path.exists(late)


def test_an_empty_file_counts_as_replicated_only_once_the_log_has_passed_it() -> None:
    def segment(name: str, size: int, shipped: int | None) -> LocalSegment:
        return LocalSegment(name, size, shipped)

    segments = [segment("a", 0, None), segment("b", 9, 7), segment("c", 0, None), segment("d", 0, None)]
    assert [each.shipped for each in note_empty(segments)] == [0, 7, None, None]
    segments += [segment("e", 9, None), segment("f", 0, None)]
    assert [each.shipped for each in note_empty(segments)] == [0, 7, None, None, None, None]
    segments += [segment("g", 9, 8)]
    assert [each.shipped for each in note_empty(segments)] == [0, 7, 7, 7, None, None, 8]


def test_truncation_keeps_files_of_other_programs(place: Place, tmp_path: Path) -> None:
    for name in ("app.000000.index", "app.index", "other.ofs"):
        (tmp_path / "log" / name).write_bytes(b"of another program")
    place.start()
    place.grow(6)
    assert len(place.log.files()) <= 3
    others = {"app.000000.index", "app.index", "other.ofs"}
    assert set(os.listdir(place.log.folder)) == set(place.log.files()) | others


@pytest.mark.slow
def test_a_restore_also_holds_truncated_log_segments(place: Place, tmp_path: Path) -> None:
    daemon = place.start()
    place.grow(6)
    client = ObjectReplicaClient(daemon.store)
    plan = find_plan(client, Target(), place.log.format)
    restore(client, plan, str(tmp_path / "out"), log_format=place.log.format)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").glob("app.*")} == place.log.texts


@pytest.mark.slow
@pytest.mark.parametrize("backlog_sealer", [False, True])
def test_a_generation_that_begins_after_a_truncation_counts_on(place: Place, backlog_sealer: bool) -> None:
    """For a new replica, and for a replica whose state was lost."""
    first = place.start(backlog_sealer=backlog_sealer)
    place.grow(5)
    kept = place.local()
    place.start(backlog_sealer=backlog_sealer)
    for daemon in place.daemons:
        daemon.sync()
    place.log.append(1)
    first.lose_state()
    first.start(takeover=True)
    for daemon in place.daemons:
        daemon.sync()
    assert first.claims[-1].relation == "continues"
    start = kept[0][0]
    added = place.flat(place.replicated(place.daemons[1]))
    assert added == place.flat(place.local())
    assert added[0][0] == start > 0
    before = place.local()[0][0]
    place.grow(4)
    assert place.local()[0][0] > before  # both number alike, so shipping continues
    whole = place.flat([(0, b"")], b"".join(data for _, data in sorted(place.log.texts.items())))
    again = place.flat(place.replicated(first))
    assert again == whole[0 if backlog_sealer else start :]  # if sealed, the dropped log segments are referred to


@pytest.mark.slow
def test_a_rewind_after_a_truncation_keeps_the_sequences_of_remaining_records(place: Place) -> None:
    daemon = place.start()
    place.grow(5)
    start = place.local()[0][0]
    place.log.truncate(len(place.log.texts[place.log.name]) - 12)
    place.log.next -= 1
    place.log.write(place.log.commit(tag=b"R"))
    daemon.sync()
    assert daemon.claims[-1].relation == "diverged"
    assert place.flat(place.replicated(daemon)) == place.flat(place.local())
    assert place.local()[0][0] == start


def test_a_reader_in_a_truncated_part_gets_an_error_with_the_logs_beginning(place: Place) -> None:
    daemon = place.start(policy=None)
    place.grow(5)
    with LogReader(place.log.folder, place.log.format, state_dir=place.state_dir) as reader:
        assert next(reader).sequence == 0
        truncation = Truncation(place.log.folder, place.log.format, place.clock, LocalDisk(), place.replicas.folder)
        assert len(truncation.by_policy(place.replicas.held(), SMALL, NOW).removed) == 4
        with pytest.raises(TruncatedError) as caught:
            list(reader)
    assert caught.value.first_available == place.local()[0][0]
    assert daemon.sync() is False
    place.expect()


def test_a_reader_in_a_removed_log_segment_reads_on(place: Place) -> None:
    place.start(policy=None)
    place.grow(5)
    truncation = Truncation(place.log.folder, place.log.format, place.clock, LocalDisk(), place.replicas.folder)
    at = place.numbering.count("app.000000") + place.numbering.count("app.000001")
    with LogReader(place.log.folder, place.log.format, start=at, state_dir=place.state_dir) as reader:
        assert next(reader).sequence == at
        held = place.replicas.held()
        limit = sum(map(len, list(place.log.files().values())[3:]))
        assert truncation.by_policy(held, TruncationPolicy(max_bytes=limit), NOW).removed[-1] == "app.000002"
        rest = [record.sequence for record in reader]
    assert rest == [number for number in rest if number > at]
    assert rest[-1] == place.local()[-1][0]


@pytest.mark.slow
def test_a_truncation_that_dies_anywhere_leaves_every_number_as_it_was(place: Place) -> None:
    place.start(policy=None)
    place.grow(5)
    whole = place.flat(place.local())
    held = place.replicas.held()
    tombstone = os.path.join(place.replicas.folder, ".tombstone")
    template = place.log.folder + ".template"
    shutil.copytree(place.log.folder, template)
    crashes = 0
    for at in range(50):
        shutil.rmtree(place.log.folder)
        shutil.copytree(template, place.log.folder)
        if os.path.exists(tombstone):
            os.unlink(tombstone)
        arguments = (place.log.folder, place.log.format, place.clock)
        try:
            Truncation(*arguments, CrashingDisk(at), place.replicas.folder).by_policy(held, SMALL, NOW)
        except SourceError:
            crashes += 1
        else:
            break
        left = place.flat(place.local())
        assert left == whole[len(whole) - len(left) :]
        again = Truncation(*arguments, LocalDisk(), place.replicas.folder)
        again.by_policy(held, TruncationPolicy(max_bytes=1 << 40), NOW)
        left = place.flat(place.local())
        assert left == whole[len(whole) - len(left) :]
        assert len(place.log.files()) == (2 if os.path.exists(tombstone) else 6)
    assert crashes == 2 + 4


def test_a_replica_that_counts_from_elsewhere_keeps_the_log(place: Place) -> None:
    """Log segments were removed before the replica existed, so no count can be shown to be right."""
    place.start(policy=None)
    place.grow(3)
    place.log.delete("app.000000")
    place.daemons[0].sync()
    place.start(policy=None)
    place.grow(3)
    truncation = Truncation(place.log.folder, place.log.format, place.clock, LocalDisk(), place.replicas.folder)
    done = truncation.by_policy(place.replicas.held(), SMALL, NOW)
    assert done.removed == ()
    assert done.kept is not None
    assert "app.000001" in done.kept
    assert "counts its records from" in done.kept


def test_a_tombstone_of_files_that_are_others_now_says_nothing(place: Place) -> None:
    place.start()
    place.grow(5)
    assert place.numbering.first() > 0
    oldest = min(place.log.files())
    place.log.replace(b"another file of that name\n", oldest)
    assert place.numbering.first() == 0
    place.log.delete(oldest)
    assert place.numbering.first() == 0


def test_the_tombstone_is_in_the_state_folder_and_names_the_first_remaining_segment(place: Place) -> None:
    daemon = place.start()
    place.grow(5)
    tombstone = read_tombstone(place.replicas.folder)
    assert tombstone is not None
    assert tombstone.file == min(place.log.files())
    snapshot = newest_snapshot(daemon)
    assert [tombstone.first] == [entry.first for entry in snapshot.segments if entry.file == tombstone.file]
    assert read_tombstone(place.log.folder) is None


@pytest.mark.slow
def test_a_last_line_without_an_end_takes_no_number(tmp_path: Path) -> None:
    place = Place(tmp_path, "lines")
    place.log.write(b"cut off")
    daemon = place.start()
    place.grow(4)
    assert "app.000000" not in place.log.files()
    assert place.local()[-1] == place.replicated(daemon)[-1]
    assert place.local() == place.replicated(daemon)[-len(place.local()) :]


@pytest.mark.slow
def test_lines_are_counted_across_reads(tmp_path: Path) -> None:
    from litelog.log import source

    place = Place(tmp_path, "lines")
    long = b"x" * (source.READ_BYTES + 7) + b"\n"
    place.log.write(long + b"short\n" * 1000 + long + b"rest")
    names = SegmentFolder(place.log.folder, place.log.format, SystemClock())
    counting = SequenceBase(place.log.folder, place.log.format, names, place.replicas.folder)
    assert counting.count(place.log.name) == 3 + 1002
