"""A restore that was killed among WAL segments continues after those that it had verified."""

from __future__ import annotations

import os
import threading
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import CorruptionError
from litelog.formats.lines import LinesFormat
from litelog.objects.layout import wal_key
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.restore.journal import JOURNAL_NAME, MAX_JOURNAL_BYTES, Journal, VerifiedBytes, read_journal
from tests.builders.child import in_child
from tests.builders.replica_builder import ReplicaBuilder, client_of, make_log
from tests.builders.restoring import files_in, restore_to

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.objects.position import Position
    from litelog.stores.object_store import ObjectReplicaClient

SHAPE = [[1] * 12, [2] * 12]
LOG = make_log(SHAPE)
EXPECTED = {segment.name: segment.data for segment in LOG}
TEMPORARY = ".out.litelog-restoring"
WHOLE, KILLED_AT = 24, 18
"""WAL segments in all, and how many are read before the kill."""


class Counted:
    """A client that counts the WAL segments it gives, and ends the process at the read after a number of them."""

    def __init__(self, client: ObjectReplicaClient, reads_left: Any = 1 << 30) -> None:
        self.client, self.reads_left, self.read, self.lock = client, reads_left, [], threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def read_wal_segment(self, position: Position, *part: int) -> bytes:
        if not part:  # a plan reads only headers
            with self.lock:
                self.reads_left -= 1
                if self.reads_left < 0:
                    os._exit(9)
                self.read.append(position)
        return self.client.read_wal_segment(position, *part)


@pytest.fixture
def builder() -> ReplicaBuilder:
    """Two log segments in twelve WAL segments each."""
    builder = ReplicaBuilder()
    built = builder.add()
    for segment in LOG:
        built.ship_segment(segment, cuts=range(11))
    return builder


@pytest.fixture
def killed(builder: ReplicaBuilder, tmp_path: Path) -> Path:
    """A folder in which a restore was killed after it had read ``KILLED_AT`` WAL segments."""
    child = os.fork()
    if child == 0:
        restore_to(Counted(builder.client, KILLED_AT), tmp_path / "out", parallelism=1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert not (tmp_path / "out").exists()
    return tmp_path


@pytest.mark.slow
def test_only_unverified_bytes_are_read_again(builder: ReplicaBuilder, killed: Path) -> None:
    anew, resumed = Counted(builder.client), Counted(builder.client)
    first = restore_to(anew, killed / "anew")
    again = restore_to(resumed, killed / "out")
    assert files_in(killed / "out") == files_in(killed / "anew") == EXPECTED
    assert (again.records, again.bytes, again.next) == (first.records, first.bytes, first.next)
    assert (len(anew.read), len(resumed.read)) == (WHOLE, WHOLE - KILLED_AT)
    assert sorted(os.listdir(killed)) == ["anew", "out"]


@pytest.mark.slow
@pytest.mark.parametrize("byte", [60, -20])
def test_bytes_that_were_damaged_since_are_read_again(builder: ReplicaBuilder, killed: Path, byte: int) -> None:
    path = killed / TEMPORARY / LOG[0].name
    data = bytearray(path.read_bytes())
    data[byte] ^= 4
    path.write_bytes(data)
    resumed = Counted(builder.client)
    restore_to(resumed, killed / "out")
    assert files_in(killed / "out") == EXPECTED
    assert len(resumed.read) == WHOLE - KILLED_AT + 1


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "gone", "link"])
def test_a_file_that_was_changed_since_is_read_again(builder: ReplicaBuilder, killed: Path, damage: str) -> None:
    path = killed / TEMPORARY / LOG[0].name
    if damage == "cut":
        os.truncate(path, 70)
    elif damage == "gone":
        path.unlink()
    else:
        os.link(path, killed / "other")
    restore_to(builder.client, killed / "out")
    assert files_in(killed / "out") == EXPECTED
    assert damage != "link" or (killed / "other").read_bytes() == LOG[0].data


@pytest.mark.slow
def test_a_journal_with_flipped_bits_is_ignored(builder: ReplicaBuilder, killed: Path) -> None:
    journal = killed / TEMPORARY / JOURNAL_NAME
    lines = journal.read_bytes().splitlines(keepends=True)
    assert sum(b'"wal"' in line for line in lines) == KILLED_AT
    flipped = [line[:80] + bytes([line[80] ^ 1]) + line[81:] if line.strip() else line for line in lines]
    journal.write_bytes(b"".join(flipped))
    resumed = Counted(builder.client)
    restore_to(resumed, killed / "out")
    assert files_in(killed / "out") == EXPECTED
    assert len(resumed.read) == WHOLE


@pytest.mark.slow
def test_the_chain_is_checked_across_kept_wal_segments(builder: ReplicaBuilder, killed: Path) -> None:
    """The object after those that were kept must name the last of them."""
    built = builder.generations[0]
    objects = builder.objects()
    other = ReplicaBuilder()
    forked = other.add()
    for segment in LOG:
        forked.clock += 1
        forked.ship_segment(segment, cuts=range(11))
    key = wal_key(built.positions[KILLED_AT])
    objects[key] = other.objects()[key]
    with pytest.raises(CorruptionError, match="SHA-256 of the object before it"):
        restore_to(client_of(objects), killed / "out")
    assert not (killed / "out").exists()


@pytest.mark.slow
def test_a_resumed_restore_may_have_an_earlier_target(builder: ReplicaBuilder, killed: Path) -> None:
    resumed = Counted(builder.client)
    restore_to(resumed, killed / "out", Target(sequence=5))
    assert files_in(killed / "out") == {LOG[0].name: LOG[0].data[: LOG[0].ends[5]]}


@pytest.mark.slow
def test_a_resumed_restore_reads_log_segments_sealed_and_pruned_since(builder: ReplicaBuilder, killed: Path) -> None:
    built = builder.generations[0]
    built.snapshot(2)
    built.prune(2)
    restore_to(builder.client, killed / "out")
    assert files_in(killed / "out") == EXPECTED


@pytest.mark.slow
def test_a_journal_is_bounded(builder: ReplicaBuilder, killed: Path) -> None:
    journal = killed / TEMPORARY / JOURNAL_NAME
    with journal.open("ab") as file:
        file.writelines(repeat(b"x" * 100, (MAX_JOURNAL_BYTES - journal.stat().st_size) // 100 - 1))
    child = os.fork()
    if child == 0:
        restore_to(Counted(builder.client, 3), killed / "out", parallelism=1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert journal.stat().st_size <= MAX_JOURNAL_BYTES

    def resume() -> None:
        resumed = Counted(builder.client)
        restore_to(resumed, killed / "out")
        assert len(resumed.read) == WHOLE - KILLED_AT

    in_child(resume)
    assert files_in(killed / "out") == EXPECTED


@pytest.mark.slow
def test_lines_that_were_changed_since_are_read_again(tmp_path: Path) -> None:
    """Lines have no checksum, so only the header's checksum shows the change."""
    builder = ReplicaBuilder(LinesFormat("*"))
    built = builder.add()
    lines = [b"line %d\n" % number for number in range(8)]
    for line in lines:
        built.ship(line, "log")
    plan = find_plan(builder.client, Target(), builder.format)
    child = os.fork()
    if child == 0:
        restore(Counted(builder.client, 6), plan, str(tmp_path / "out"), log_format=builder.format, parallelism=1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = tmp_path / TEMPORARY / "log"
    left.write_bytes(left.read_bytes().replace(b"line 3", b"lime 3"))
    resumed = Counted(builder.client)
    restore(resumed, plan, str(tmp_path / "out"), log_format=builder.format)
    assert (tmp_path / "out" / "log").read_bytes() == b"".join(lines)
    assert len(resumed.read) == 8 - 6 + 1


def test_a_thread_adds_to_the_journal_while_another_waits_for_the_disk(tmp_path: Path) -> None:
    """Else all threads of a restore wait for the disk, and it has nothing to do after that."""
    ranges = [VerifiedBytes("1.log", "0" * 64, start, start + 1) for start in range(3)]
    folder = os.open(tmp_path, os.O_RDONLY)
    outcomes: list[str] = []

    def make_durable(file: int) -> None:
        adding = threading.Thread(target=journal.add, args=[ranges[1]], daemon=True)
        adding.start()
        adding.join(timeout=30)
        closing.start()
        os.fsync(file)  # the file is still open
        outcomes.append("waited" if adding.is_alive() else "added")

    journal = Journal(folder, make_durable=make_durable)
    closing = threading.Thread(target=journal.close, daemon=True)
    journal.sync()  # nothing to do yet
    journal.add(ranges[0])
    journal.sync()
    closing.join(timeout=30)
    assert outcomes == ["added"]
    assert read_journal(folder) == ranges[:2]
    journal.add(ranges[2])  # opens the file again
    assert read_journal(folder) == ranges
    journal.close()
    os.close(folder)
