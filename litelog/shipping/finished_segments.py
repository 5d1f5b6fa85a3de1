"""Finds the finished log segments of a log, and reads what they hold. Local files only, read-only."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.errors import CorruptCommitError, DivergedError, SequenceGapError, WrongFormatError
from litelog.formats import Expectation, FinishedTail
from litelog.log.source import GROWTH_BYTES, SegmentFolder
from litelog.log.source_position import SourcePosition, begin_check, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.formats import Scan
    from litelog.log.source import OpenSegment
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.shipping.context import LogSource
    from litelog.system.clock import Clock

PROBE_BYTES = 64 << 10
"""How many bytes of a log segment are read at first to see whether it holds a whole commit."""

READ_BYTES = 4 << 20

UNFIT = (CorruptCommitError, SequenceGapError, WrongFormatError, DivergedError, FileNotFoundError)
"""The errors that show that a log segment is not finished."""


class NotSealableError(Exception):
    """A log segment cannot be sealed, because it is not a finished one: ``file`` and all after it ship as WAL."""

    def __init__(self, file: str) -> None:
        self.file = file
        super().__init__(file)


class FinishedSegments:
    """The finished log segments of a folder. Any thread may use it, except for ``find`` and ``held``."""

    def __init__(self, source: LogSource, clock: Clock) -> None:
        self._folder = source.folder
        self._format = source.format
        self._names = SegmentFolder(
            source.folder, source.format, clock, reports=False, failed_syncs=source.failed_syncs
        )

    def find(self, start_file: str, unfit: str = "") -> list[str]:
        """Return the finished log segments from ``start_file`` (empty: the first) on: a newer one holds a whole commit.
        Only those before ``unfit``, if it is given."""
        names = self._before_newest(self.held(start_file))
        return names[: names.index(unfit)] if unfit in names else names

    def find_after(self, place: SourcePosition) -> list[str]:
        """Return the finished log segments whose beginning a follower at ``place`` would read.

        Empty if the log segment before them has changed since it was finished: a follower reports what happened to it.
        """
        if not self._is_intact(place):
            return []
        if place.file:
            names = self.held(place.file)
            if names[:1] != [place.file]:
                return []
        else:
            names = [name for name in self._names.after(place.behind) if self._size(name)]
        names = self._before_newest(names)[1 if place.offset else 0 :]
        if self._format.finished_tail is FinishedTail.SHIP:
            return names
        return [name for name in names if self.holds_commit(name)]  # a follower skips the others, too

    def _before_newest(self, names: list[str]) -> list[str]:
        """Return those before the newest one that holds a whole commit."""
        newest = next((at for at in reversed(range(len(names))) if self.holds_commit(names[at])), 0)
        return names[:newest]

    def held(self, start_file: str) -> list[str]:
        """Return the log segments that are not empty, from ``start_file`` on."""
        names = self._names.all()
        start = names.index(start_file) if start_file in names else 0
        return [name for name in names[start:] if self._size(name)]

    def sync_folder(self) -> None:
        """Make the names in the folder durable. SourceSyncError."""
        self._names.sync_folder()

    def open(self, name: str) -> OpenSegment:
        """Open a log segment. FileNotFoundError."""
        return self._names.open(name)

    def path(self, name: str) -> str:
        """Return the path of a log segment."""
        return os.path.join(self._folder, name)

    def holds_commit(self, name: str) -> bool:
        """Whether a log segment begins with a whole commit."""
        try:
            with self._names.open(name) as opened:
                return self._scan_head(name, opened, Expectation())
        except UNFIT:
            return False

    def check_begins(self, name: str, expect: Expectation) -> None:
        """Raise NotSealableError unless a log segment begins with the expected commit."""
        try:
            with self._names.open(name) as opened:
                self._scan_head(name, opened, expect)
        except UNFIT as error:
            raise NotSealableError(name) from error

    def place_after(self, entry: SnapshotEntry, last: Scan | None = None) -> SourcePosition:
        """Return where reading of the log continues after the log segment that ``entry`` describes. NotSealableError.

        ``last``: the scan that found its last commit; None: scan all its bytes.
        """
        try:
            with self._names.open(entry.file) as opened:
                scan = last or self._scan_end(opened, entry)
                start = begin_check(scan, entry.length)
                checked = digest(opened.read(start, entry.length - start))
        except UNFIT as error:
            raise NotSealableError(entry.file) from error
        return SourcePosition(
            index=entry.index + 1,
            file="",
            behind=entry.file,
            behind_end=entry.length,
            behind_start=start,
            behind_digest=checked,
            sequence=scan.next,
            epoch=scan.epoch,
        )

    def find_end(self, name: str, opened: OpenSegment) -> int:
        """Return where the last whole commit of a log segment ends that nothing damaged precedes. Scans all of it."""
        end = 0
        with suppress(*UNFIT):
            for scan in self._scans(name, opened, opened.size(), Expectation()):
                end = scan.end
        return end

    def _scan_end(self, opened: OpenSegment, entry: SnapshotEntry) -> Scan:
        """Return the scan of a log segment's last commit. Scans the whole log segment."""
        scans = deque(self._scans(entry.file, opened, entry.length, Expectation(entry.first)), maxlen=1)
        if not scans:
            raise NotSealableError(entry.file)
        return scans[0]

    def _scans(self, name: str, opened: OpenSegment, stop: int, expect: Expectation) -> Iterator[Scan]:
        """Yield scans of the whole commits before ``stop``, piece by piece. Raises one of UNFIT at the first that is
        damaged."""
        offset, length = 0, READ_BYTES
        while offset < stop:
            data = memoryview(opened.read(offset, min(length, stop - offset)))
            scan = self._format.scan(self.path(name), data, offset, expect)
            if scan.end == offset:
                if offset + len(data) >= stop:
                    break
                length = max(2 * length, scan.wanted)
                continue
            yield scan
            offset, expect, length = scan.end, scan.expectation, READ_BYTES

    def _scan_head(self, name: str, opened: OpenSegment, expect: Expectation) -> bool:
        """Whether a log segment begins with a whole commit. Raises if that is not the expected one."""
        length = PROBE_BYTES
        while True:
            data = memoryview(opened.read(0, length))
            scan = self._format.scan(name, data, 0, expect)
            if scan.commits or len(data) < length:
                return scan.commits > 0
            length = max(2 * length, scan.wanted)

    def _is_intact(self, place: SourcePosition) -> bool:
        """Whether the log segment before ``place`` is as it was finished, or is gone together with all before it."""
        if not place.behind or place.behind_end is None:
            return True
        try:
            with self._names.open(place.behind) as opened:
                if self._format.finished_tail is FinishedTail.PREFIX:
                    return True
                opened.finish(place.behind_end, place.behind_start, place.behind_digest)
                return not opened.fault()
        except FileNotFoundError:
            return not self._names.before(place.behind)

    def _size(self, name: str) -> int:
        try:
            return os.stat(self.path(name)).st_size
        except FileNotFoundError:
            return 0


def holds(opened: OpenSegment, length: int, sha256: str, raise_if_stopped: Callable[[], None] = lambda: None) -> bool:
    """Whether a log segment holds ``length`` bytes with that SHA-256 (hex), and only zeros after them.

    ``raise_if_stopped`` is called before each piece is read, and may raise.
    """
    if opened.size() < length:
        return False
    sha, offset = hashlib.sha256(), 0
    while offset < length:
        raise_if_stopped()
        piece = opened.read(offset, min(READ_BYTES, length - offset))
        if not piece:
            return False
        sha.update(piece)
        offset += len(piece)
    return sha.hexdigest() == sha256 and not opened.read(length, GROWTH_BYTES).strip(b"\0")
