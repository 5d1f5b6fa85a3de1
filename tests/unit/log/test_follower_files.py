"""The follower and the files of a log: it changes nothing, syncs what it ships, and keeps few descriptors open."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.errors import (
    DivergedError,
    SourceError,
    SourceMissingError,
    SourceSyncError,
)
from litelog.formats.lines import LinesFormat
from litelog.formats.litelog import segment_name
from litelog.formats.raw import RawFormat
from litelog.log.failed_syncs import FailedSyncs
from litelog.log.follower import Follower
from litelog.log.source import OpenSegment, SegmentFolder
from litelog.log.source_position import SourcePosition
from litelog.shipping.log_identity import ShippedEnd, find_shift, read_log_id
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.log_following import ALL_FORMATS, LIMIT, collect, drain, follow, status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.formats import LogFormat
    from tests.builders.manual_clock import ManualClock


@pytest.fixture
def log(request: pytest.FixtureRequest, tmp_path: Path) -> LogBuilder:
    """A log without log segments."""
    return make_log(tmp_path / "log", getattr(request, "param", "litelog"))


@ALL_FORMATS
def test_nothing_of_the_source_is_changed_not_even_an_access_time(log: LogBuilder, clock: ManualClock) -> None:
    for _ in range(3):
        log.roll(5)
    Path(log.path("notes.gz")).write_bytes(b"foreign")
    old = 1_600_000_000
    for name in os.listdir(log.folder):
        os.utime(log.path(name), (old, old + 100))
    first, last = min(log.texts), max(log.texts)
    before = status(log.folder)
    follower = follow(log, clock)
    drain(follower)
    follower.changed()
    follower.read_again(SourcePosition(0, first), len(log.texts[first]), final=False)
    find_shift(log.folder, log.format, clock, ShippedEnd(last, 2, 10, 0, 0, "", final=False))
    read_log_id(log.folder, log.format, clock)
    follower.close()
    after = status(log.folder)
    del before["."], after["."]  # a listing may note the folder's access time, as any ls does
    assert after == before


def test_foreign_files_are_reported_once_and_skipped(
    log: LogBuilder, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    log.roll(1)
    for name in ("core", "00000000000000000000.index", ".hidden", "1.log"):
        Path(log.path(name)).write_bytes(b"?")
    os.symlink(log.path(), log.path(segment_name(50)))
    os.mkdir(log.path(segment_name(51)))
    follower = follow(log, clock)
    found = collect(drain(follower))
    log.roll(1)
    collect(drain(follower), found)
    assert found == log.texts
    reported = [record.file for record in caplog.records]  # type: ignore[attr-defined]
    assert sorted(reported) == [segment_name(50), "1.log", "core"]


@pytest.mark.parametrize("log_format", [LinesFormat("app-*.log"), RawFormat("app-*.log")])
def test_a_log_segment_that_sorts_before_shipped_ones_is_reported_once(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture, log_format: LogFormat
) -> None:
    (tmp_path / "app-0004.log").write_bytes(b"a\n")
    (tmp_path / "app-0005.log").write_bytes(b"b\n")
    follower = Follower(str(tmp_path), log_format, SourcePosition(0, ""), clock)
    drain(follower)
    assert not caplog.records
    (tmp_path / "app-0001.log").write_bytes(b"too late\n")
    (tmp_path / "app-0006.log").write_bytes(b"c\n")
    for _ in range(3):
        clock.advance(60)
        drain(follower)
    assert follower.place.file == "app-0006.log"
    assert [record.event for record in caplog.records] == ["file-too-late"]  # type: ignore[attr-defined]
    assert "app-0001.log appeared when app-0005.log was being shipped" in caplog.text
    follower.close()


def test_a_log_segment_that_is_not_reached_yet_is_not_too_late(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 5):
        (tmp_path / f"app-{number}.log").write_bytes(b"a\n")
    follower = Follower(str(tmp_path), LinesFormat("app-*.log"), SourcePosition(0, ""), clock)
    assert follower.next_run(1) is not None
    (tmp_path / "app-3.log").write_bytes(b"c\n")
    clock.advance(60)
    assert [run.start.file for run in drain(follower) if len(run.data)] == ["app-3.log", "app-5.log"]
    assert not caplog.records
    follower.close()


@pytest.mark.slow
@ALL_FORMATS
def test_descriptors_are_bounded_and_closed(log: LogBuilder, clock: ManualClock) -> None:
    before = len(os.listdir("/proc/self/fd"))
    follower = follow(log, clock)
    for _ in range(30):
        log.roll(2)
        drain(follower)
        assert len(os.listdir("/proc/self/fd")) <= before + 3
    follower.close()
    follower.close()
    assert len(os.listdir("/proc/self/fd")) == before


class WatchedSegment(OpenSegment):
    """A log segment that records the calls of its methods."""

    def __init__(self, name: str, descriptor: int, done: list[str]) -> None:
        super().__init__(name, descriptor, FailedSyncs())
        self.done = done

    def read(self, offset: int, length: int) -> bytes:
        data = super().read(offset, length)
        self.done.append(f"read {self.name} to {offset + len(data)}")
        return data

    def sync(self, path: str) -> None:
        super().sync(path)
        self.done.append(f"sync {self.name} at {self.size()}")


class UnopenedNames(SegmentFolder):
    """While it ``fails``, the folder cannot be opened, for want of descriptors."""

    fails = True

    def sync_folder(self) -> None:
        if self.fails:
            raise SourceError(f"{self._folder}: cannot be opened")
        super().sync_folder()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Within this context, no file can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class WatchedNames(SegmentFolder):
    """Opens log segments that record calls."""

    def __init__(self, log: LogBuilder, clock: ManualClock) -> None:
        super().__init__(log.folder, log.format, clock)
        self.done: list[str] = []

    def open(self, name: str) -> OpenSegment:
        segment = super().open(name)
        descriptor = os.dup(segment._descriptor)
        segment.close()
        return WatchedSegment(name, descriptor, self.done)

    def sync_folder(self) -> None:
        super().sync_folder()
        self.done.append("sync folder")


@ALL_FORMATS
def test_nothing_is_shipped_that_was_not_synced_and_no_file_whose_name_was_not(
    log: LogBuilder, clock: ManualClock
) -> None:
    follower = follow(log, clock)
    names = follower._names = WatchedNames(log, clock)
    for step in range(6):
        if step % 3 == 0:
            log.roll(2)
        elif step == 5:
            log.replace()
        log.append(1)
        names.done.clear()
        for run in drain(follower):
            synced = [int(what.split()[-1]) for what in names.done if what.startswith(f"sync {run.start.file} ")]
            assert not run.data or max(synced) >= run.end.offset
            if run.start.offset == 0 or step == 5:
                assert "sync folder" in names.done
    follower.close()


def test_a_commit_over_preallocated_zeros_is_synced_after_the_read(log: LogBuilder, clock: ManualClock) -> None:
    end = os.path.getsize(log.path(log.roll(2)))
    log.preallocate(4096)
    synced: list[bytes] = []

    class WrittenSegment(OpenSegment):
        def sync(self, path: str) -> None:
            super().sync(path)
            synced.append(self._read_file(0, 4096))
            if len(synced) == 1:
                log.overwrite(end, log.commit())

    class WrittenNames(SegmentFolder):
        def open(self, name: str) -> OpenSegment:
            with super().open(name) as segment:
                return WrittenSegment(name, os.dup(segment._descriptor), FailedSyncs())

    follower = follow(log, clock)
    follower._names = WrittenNames(log.folder, log.format, clock)
    run = follower.next_run(LIMIT)
    assert run is not None
    assert run.end.offset > end
    assert synced[-1][: run.end.offset] == run.data
    follower.close()


@pytest.mark.parametrize("left", ["nothing", "a file"])
def test_a_folder_deleted_before_its_names_are_synced_is_missing(
    log: LogBuilder, clock: ManualClock, left: str
) -> None:
    names = SegmentFolder(log.folder, log.format, clock)
    log.roll(2)
    assert names.all()
    os.rename(log.folder, f"{log.folder}-moved")
    if left == "a file":
        Path(log.folder).touch()
    with pytest.raises(SourceMissingError, match="no such folder"):
        names.sync_folder()


def test_a_folder_that_cannot_be_opened_to_sync_its_names_has_lost_nothing(log: LogBuilder, clock: ManualClock) -> None:
    """It does not freeze the log: during a short lack of descriptors, no disk reported a failure."""
    names = SegmentFolder(log.folder, log.format, clock)
    log.roll(2)
    with no_descriptors(), pytest.raises(SourceError, match="cannot be opened: Too many open files") as caught:
        names.sync_folder()
    assert not isinstance(caught.value, SourceSyncError)
    names.sync_folder()


def test_a_replaced_log_segment_is_compared_even_after_a_failed_sync_of_its_folder(
    log: LogBuilder, clock: ManualClock
) -> None:
    log.roll(30, size=100)
    follower = follow(log, clock)
    drain(follower)
    content = bytearray(log.texts[log.name])
    content[200] ^= 1  # ahead of the last commits, which are all that is compared of a file that stayed
    log.replace(bytes(content))
    names = follower._names = UnopenedNames(log.folder, log.format, clock)
    with pytest.raises(SourceError, match="cannot be opened"):
        follower.next_run(LIMIT)
    names.fails = False
    with pytest.raises(DivergedError, match="was replaced by a file with other bytes"):
        follower.next_run(LIMIT)
    follower.close()


@pytest.mark.slow
def test_a_failed_sync_is_reported_for_good(log: LogBuilder, clock: ManualClock) -> None:
    """The kernel reports lost bytes only once. A second sync succeeds."""
    log.roll(1)
    with SegmentFolder(log.folder, log.format, clock).open(log.name) as segment:
        good, closed = segment._descriptor, os.open(log.folder, os.O_RDONLY)
        os.close(closed)
        segment._descriptor = closed  # fdatasync fails there
        with pytest.raises(SourceSyncError):
            segment.sync(log.path())
        segment._descriptor = good
        with pytest.raises(SourceSyncError):
            segment.sync(log.path())
