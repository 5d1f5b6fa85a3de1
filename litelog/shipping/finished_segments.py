"""Finds the finished log segments of a log, and reads them. Local files only, read-only."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING

from litelog.errors import CorruptCommitError, DivergedError, SequenceGapError, WrongFormatError
from litelog.formats import Expectation, FinishedTail
from litelog.formats.capabilities import first_sequence, rewrites_finished
from litelog.log.source import SegmentFolder
from litelog.log.source_position import SourcePosition, begin_check, digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.formats import Scan
    from litelog.log.source import OpenSegment
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.shipping.context import LogSource
    from litelog.system.clock import Clock


NOT_FINISHED = (CorruptCommitError, SequenceGapError, WrongFormatError, DivergedError, FileNotFoundError)
"""The errors that show that a log segment is not finished."""


class NotSealableError(Exception):
    """A log segment cannot be sealed, because it is not a finished one: ``file`` and all after it ship as WAL."""

    def __init__(self, file: str) -> None:
        self.file = file
        super().__init__(file)


class FinishedSegments:
    """The finished log segments of a folder. Any thread may use it, except for ``find`` and ``non_empty_from``."""

    def __init__(self, source: LogSource, clock: Clock) -> None:
        self._folder = source.folder
        self._format = source.format
        self._watermark = source.watermark
        self._names = SegmentFolder(
            source.folder, source.format, clock, reports=False, failed_syncs=source.failed_syncs, whole=True
        )

    def find(self, start_file: str, unfit: str = "") -> list[str]:
        """Return the finished log segments from ``start_file`` (empty: the first) on: a newer one holds a whole commit.
        Only those before ``unfit``, if it is given."""
        names = self._before_newest(self.non_empty_from(start_file))
        return names[: names.index(unfit)] if unfit in names else names

    def find_after(self, place: SourcePosition) -> list[str]:
        """Return the finished log segments whose beginning a follower at ``place`` would read.

        Empty if the log segment before them has changed since it was finished: a follower reports what happened to it.
        """
        if not self._is_intact(place):
            return []
        if place.file:
            names = self.non_empty_from(place.file)
            if names[:1] != [place.file]:
                return []
        else:
            names = [name for name in self._names.after(place.finished) if self._size(name)]
            if names and not place.finished and not self.holds_commit(names[0]):
                return []  # a follower begins with it, and reports its damage
        names = self._before_newest(names)[1 if place.offset else 0 :]
        if self._format.finished_tail is FinishedTail.SHIP:
            return names
        return [name for name in names if self.holds_commit(name)]  # a follower skips the others, too

    def _before_newest(self, names: list[str]) -> list[str]:
        """Return those before the newest log segment that holds a whole commit, and at or before the log's
        watermark."""
        newest = next((at for at in reversed(range(len(names))) if self.holds_commit(names[at])), 0)
        mark = None if self._watermark is None else self._watermark.read()
        if mark is None:
            return names[:newest]
        firsts = (first_sequence(self._format, name) for name in names[1 : newest + 1])
        return names[: sum(1 for _ in takewhile(lambda first: first is not None and first <= mark, firsts))]

    def non_empty_from(self, start_file: str) -> list[str]:
        """Return the log segments that are not empty, from ``start_file`` on."""
        names = self._names.all()
        start = names.index(start_file) if start_file in names else 0
        return [name for name in names[start:] if self._size(name)]

    def sync_folder(self) -> None:
        """Make the names in the folder durable. Raises SourceSyncError."""
        self._names.sync_folder()

    def open(self, name: str) -> OpenSegment:
        """Open a log segment. Raises FileNotFoundError."""
        return self._names.open(name)

    def path(self, name: str) -> str:
        """Return the path of a log segment."""
        return os.path.join(self._folder, name)

    def holds_commit(self, name: str) -> bool:
        """Whether a log segment begins with a whole commit."""
        try:
            with self._names.open(name) as opened:
                return opened.scan_head(self._format, name, Expectation()).commits > 0
        except NOT_FINISHED:
            return False

    def check_begins(self, name: str, expect: Expectation) -> None:
        """Raise NotSealableError unless a log segment begins with the expected commit."""
        try:
            with self._names.open(name) as opened:
                opened.scan_head(self._format, name, expect)
        except NOT_FINISHED as error:
            raise NotSealableError(name) from error

    def place_after(self, entry: SnapshotEntry, last: Scan | None = None) -> SourcePosition:
        """Return where reading of the log continues after the log segment that ``entry`` describes. Raises
        NotSealableError.

        ``last``: the scan that found its last commit; None: scan all its bytes.
        """
        try:
            with self._names.open(entry.file) as opened:
                scan = last or self._scan_end(opened, entry)
                start = begin_check(scan, entry.length)
                checked = digest(opened.read(start, entry.length - start))
        except NOT_FINISHED as error:
            raise NotSealableError(entry.file) from error
        return SourcePosition(
            index=entry.index + 1,
            file="",
            finished=entry.file,
            finished_end=entry.length,
            finished_start=start,
            finished_digest=checked,
            sequence=scan.next,
            epoch=scan.epoch,
            checksum=scan.checksum,
        )

    def find_end(self, name: str, opened: OpenSegment) -> int:
        """Return where the last whole commit of a log segment ends that nothing damaged precedes. Scans all of it."""
        end = 0
        with suppress(*NOT_FINISHED):
            for scan in opened.scan_runs(self._format, self.path(name), Expectation(), opened.size()):
                end = scan.end
        return end

    def holds(
        self, opened: OpenSegment, length: int, sha256: str, raise_if_stopped: Callable[[], None] = lambda: None
    ) -> bool:
        """Whether a log segment holds ``length`` bytes with that SHA-256 (hex), and after them only zeros, or what the
        format's writers leave.

        ``raise_if_stopped`` is called before each piece is read, and may raise.
        """
        if opened.size() < length or opened.sha256(0, length, raise_if_stopped) != sha256:
            return False
        return self._format.finished_tail is FinishedTail.PREFIX or not opened.has_grown(length)

    def _scan_end(self, opened: OpenSegment, entry: SnapshotEntry) -> Scan:
        """Return the scan of a log segment's last commit. Scans the whole log segment."""
        last = None
        for scan in opened.scan_runs(self._format, self.path(entry.file), Expectation(entry.first), entry.length):
            last = scan
        if last is None:
            raise NotSealableError(entry.file)
        return last

    def _is_intact(self, place: SourcePosition) -> bool:
        """Whether the log segment before ``place`` is as it was finished, or is gone together with all before it."""
        if not place.finished or place.finished_end is None:
            return True
        try:
            with self._names.open(place.finished) as opened:
                if rewrites_finished(self._format):
                    return True
                may_grow = self._format.finished_tail is FinishedTail.PREFIX
                opened.finish(place.finished_end, place.finished_start, place.finished_digest, may_grow=may_grow)
                return not opened.fault()
        except FileNotFoundError:
            return rewrites_finished(self._format) or not self._names.before(place.finished)

    def _size(self, name: str) -> int:
        try:
            return os.stat(self.path(name)).st_size
        except FileNotFoundError:
            return 0
