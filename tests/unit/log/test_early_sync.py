"""What is read of a log segment counts only after its sync, which another thread began before the read."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

import pytest

from litelog.errors import SourceSyncError
from litelog.log.early_sync import EarlySync, await_sync
from litelog.log.failed_syncs import FailedSyncs
from litelog.log.source import OpenSegment
from litelog.native import library
from tests.builders.held_syncs import HeldSyncs
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[OpenSegment]:
    path = tmp_path / "a.log"
    path.write_bytes(b"x" * 100)
    with OpenSegment("a.log", os.open(path, os.O_RDWR), FailedSyncs()) as segment:
        yield segment


@pytest.fixture
def syncs() -> HeldSyncs:
    return HeldSyncs()


@pytest.fixture
def early(syncs: HeldSyncs) -> Iterator[EarlySync]:
    early = EarlySync(lambda: None, syncs)
    yield early
    syncs.may_end.release(100)
    early.end()


def test_what_waits_for_a_sync_is_done_after_it(early: EarlySync, segment: OpenSegment, syncs: HeldSyncs) -> None:
    done: list[int] = []
    early.begin(segment, "a.log", 0)
    assert early.covered(segment, 0) == 100
    early.then(lambda: done.append(1))
    wait_until(lambda: syncs.begun == 1)
    assert done == []
    syncs.may_end.release()
    early.then(lambda: done.append(2))
    early.finish()
    assert done == [1, 2]


def test_only_bytes_that_were_there_when_the_sync_began_are_covered(
    early: EarlySync, segment: OpenSegment, syncs: HeldSyncs
) -> None:
    early.begin(segment, "a.log", 0)
    os.pwrite(segment._descriptor, b"y" * 50, 100)
    assert early.covered(segment, 0) == 100
    assert early.covered(segment, 100) is None
    syncs.may_end.release()
    early.begin(segment, "a.log", 100)
    assert early.covered(segment, 100) == 150
    wait_until(lambda: syncs.begun == 2)


def test_nothing_is_synced_without_new_bytes(early: EarlySync, segment: OpenSegment, syncs: HeldSyncs) -> None:
    early.begin(segment, "a.log", 100)
    early.finish()
    assert early.covered(segment, 100) is None
    assert syncs.begun == 0


def test_bytes_that_are_written_over_preallocated_zeros_are_not_covered(
    early: EarlySync, segment: OpenSegment, syncs: HeldSyncs
) -> None:
    early.begin(segment, "a.log", 0)
    syncs.may_end.release()
    os.pwrite(segment._descriptor, b"y" * 10 + bytes(40), 100)
    early.begin(segment, "a.log", 50)
    assert early.covered(segment, 50) is None
    assert syncs.begun == 1


def test_bytes_that_are_written_again_after_they_were_cut_off_are_not_covered(
    early: EarlySync, segment: OpenSegment, syncs: HeldSyncs
) -> None:
    early.begin(segment, "a.log", 50)
    syncs.may_end.release()
    os.ftruncate(segment._descriptor, 50)
    early.begin(segment, "a.log", 50)
    os.pwrite(segment._descriptor, b"y" * 50, 50)
    assert early.covered(segment, 50) is None


def test_another_segment_is_not_covered(early: EarlySync, segment: OpenSegment, tmp_path: Path) -> None:
    early.begin(segment, "a.log", 0)
    with OpenSegment("a.log", os.open(tmp_path / "a.log", os.O_RDONLY), FailedSyncs()) as other:
        assert early.covered(other, 0) is None


def test_a_failed_sync_is_raised_once_and_what_waits_for_it_is_not_done(
    segment: OpenSegment, syncs: HeldSyncs, tmp_path: Path
) -> None:
    woken, done = threading.Event(), list[int]()
    early = EarlySync(woken.set, syncs)
    syncs.number = 5
    early.begin(segment, str(tmp_path / "a.log"), 0)
    early.then(lambda: done.append(1))
    syncs.may_end.release()
    assert woken.wait(WAIT_SECONDS)
    with pytest.raises(SourceSyncError, match=r"a\.log.*Input/output error"):
        early.finish()
    early.finish()
    assert early.covered(segment, 0) is None
    with pytest.raises(SourceSyncError, match="frozen"):
        early.begin(segment, str(tmp_path / "a.log"), 0)
    early.end()
    assert done == []


def test_no_sync_begins_without_a_further_thread_or_descriptor(
    early: EarlySync, segment: OpenSegment, syncs: HeldSyncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    def refuse(_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = os.listdir("/proc/self/fd")
    for place, name, value in ((os, "dup", refuse), (threading, "Thread", Refusing)):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            early.begin(segment, "a.log", 0)
        assert early.covered(segment, 0) is None
        early.close()
    assert os.listdir("/proc/self/fd") == before
    early.begin(segment, "a.log", 0)
    assert early.covered(segment, 0) == 100
    wait_until(lambda: syncs.begun == 1)


def test_the_segment_may_be_closed_while_it_is_synced(early: EarlySync, segment: OpenSegment, syncs: HeldSyncs) -> None:
    done: list[int] = []
    early.begin(segment, "a.log", 0)
    segment.close()
    early.then(lambda: done.append(1))
    syncs.may_end.release()
    early.finish()
    assert done == [1]


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_sync_with_and_without_the_compiled_part(is_compiled: bool, tmp_path: Path) -> None:
    if is_compiled and library.load() is None:
        pytest.skip("it is not compiled")
    reads, writes = os.pipe()
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    asked = [file.to_bytes(4, "little"), writes.to_bytes(4, "little"), (1 << 30).to_bytes(4, "little"), b"\xff" * 4]
    os.write(writes, b"".join(asked))

    def results() -> list[int]:
        return [await_sync(reads) for _ in asked]

    if is_compiled:
        found = results()
    else:
        with library.without_library():
            found = results()
    assert found == [0, 22, 9, -1]  # EINVAL for a pipe, and EBADF
    os.close(writes)
    assert await_sync(reads) == -1
    os.close(reads)
    os.close(file)
