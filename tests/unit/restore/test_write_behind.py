"""Runs that wait are written and synced together, in order, and nothing is written after a failure."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from litelog.restore import write_behind
from litelog.restore.write_behind import WriteBehind
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Written = tuple[str, int, bytes, int]


class Disk:
    """Notes what is written and synced: name, start, bytes and the number of runs; and the name alone. A thread's write
    waits until it may end."""

    def __init__(self) -> None:
        self.written: list[Written] = []
        self.done: list[str] = []
        """The writes and syncs, in order."""
        self.may_end = threading.Event()
        self.begun = threading.Event()
        self.error: Exception | None = None

    def write(self, name: str, start: int, runs: Sequence[memoryview]) -> None:
        self.begun.set()
        assert self.may_end.wait(WAIT_SECONDS)
        if self.error is not None:
            raise self.error
        self.written.append((name, start, b"".join(runs), len(runs)))
        self.done.append(f"write {name}")

    def sync(self, name: str) -> None:
        self.done.append(f"sync {name}")


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def behind(disk: Disk) -> Iterator[WriteBehind]:
    made = WriteBehind(disk.write, disk.sync)
    yield made
    disk.may_end.set()
    made.close()


def test_runs_that_came_during_a_write_are_written_together_and_in_order(disk: Disk, behind: WriteBehind) -> None:
    for at, data in ((0, b"1"), (1, b"2")):
        behind.put("a", at, memoryview(data))
    assert disk.begun.wait(WAIT_SECONDS)
    for at, data in ((2, b"3"), (3, b"4")):
        behind.put("a", at, memoryview(data))
    behind.put("b", 0, memoryview(b"5"))
    behind.put("b", 1, memoryview(b"6"))
    assert (behind.holds("a"), behind.holds("b"), behind.holds("c")) == (True, True, False)
    assert disk.written == []
    disk.may_end.set()
    behind.flush()
    assert disk.written == [("a", 0, b"1", 1), ("a", 1, b"234", 3), ("b", 0, b"5", 1), ("b", 1, b"6", 1)]
    assert not behind.holds("a")


def test_a_sync_follows_each_file_and_each_flush_and_is_shared_by_the_runs(disk: Disk, behind: WriteBehind) -> None:
    disk.may_end.set()
    for at in range(3):
        behind.put("a", at, memoryview(b"1"))
        wait_until(lambda: not behind._waiting or behind._waiting[-1][2].done())
    behind.put("b", 0, memoryview(b"2"))
    behind.flush()
    assert disk.done == [*["write a"] * 3, "sync a", "write b", "sync b"]
    behind.flush()
    behind.put("b", 1, memoryview(b"3"))
    behind.flush()
    assert disk.done[6:] == ["write b", "sync b"]


def test_a_sync_follows_many_bytes(disk: Disk, behind: WriteBehind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_behind, "SYNC_BYTES", 2)
    disk.may_end.set()
    for at in range(5):
        behind.put("a", at, memoryview(b"1"))
        wait_until(lambda: not behind._waiting or behind._waiting[-1][2].done())
    behind.flush()
    assert disk.done == [*["write a"] * 2, "sync a", *["write a"] * 2, "sync a", "write a", "sync a"]


def test_a_copy_that_has_caught_up_writes_in_the_thread_of_its_caller(behind: WriteBehind, disk: Disk) -> None:
    disk.may_end.set()
    for at in range(3):
        behind.put("a", at, memoryview(b"1"))
        behind.flush()
    assert not behind._executor._threads
    assert len(disk.written) == 3


def test_a_run_waits_for_room_and_a_single_larger_one_has_it(
    disk: Disk, behind: WriteBehind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_behind, "HELD_BYTES", 3)
    behind.put("a", 0, memoryview(b"larger"))
    behind.put("a", 6, memoryview(b"2"))
    assert disk.begun.wait(WAIT_SECONDS)
    third = threading.Thread(target=behind.put, args=("a", 7, memoryview(b"3")))
    third.start()
    third.join(0.05)
    assert third.is_alive()
    disk.may_end.set()
    third.join(WAIT_SECONDS)
    behind.flush()
    assert b"".join(data for _, _, data, _ in disk.written) == b"larger23"


def test_nothing_is_written_after_a_failure_and_each_call_raises_it(disk: Disk, behind: WriteBehind) -> None:
    disk.error = OSError("full")
    behind.put("a", 0, memoryview(b"1"))
    behind.put("b", 0, memoryview(b"2"))
    assert disk.begun.wait(WAIT_SECONDS)
    disk.may_end.set()
    with pytest.raises(OSError, match="full"):
        behind.flush()
    disk.error = None
    for _ in range(3):
        with pytest.raises(OSError, match="full"):
            behind.put("b", 1, memoryview(b"3"))
        with pytest.raises(OSError, match="full"):
            behind.flush()
    assert disk.done == []


def test_a_failure_in_the_thread_of_the_caller_is_the_last_write_too(disk: Disk, behind: WriteBehind) -> None:
    disk.may_end.set()
    disk.error = OSError("full")
    behind.put("a", 0, memoryview(b"1"))
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            behind.flush()
        disk.error = None
    assert disk.done == []


def test_what_is_written_is_forgotten_without_a_flush(disk: Disk, behind: WriteBehind) -> None:
    """A copy that catches up gets many small runs, which never fill the room."""
    disk.may_end.set()
    for at in range(101):
        behind.put("a", at, memoryview(b"1"))
        if at:
            wait_until(behind._waiting[-1][2].done)
    assert len(behind._waiting) == 1
    assert b"".join(data for _, _, data, _ in disk.written) == b"1" * 100


def test_what_was_not_begun_at_the_close_is_not_written(disk: Disk) -> None:
    behind = WriteBehind(disk.write, disk.sync)
    behind.put("a", 0, memoryview(b"1"))
    behind.put("b", 0, memoryview(b"2"))
    assert disk.begun.wait(WAIT_SECONDS)
    behind.put("b", 1, memoryview(b"3"))
    closing = threading.Thread(target=behind.close)
    closing.start()
    wait_until(behind._waiting[-1][2].cancelled)
    disk.may_end.set()
    closing.join(WAIT_SECONDS)
    assert disk.written == [("a", 0, b"1", 1)]
