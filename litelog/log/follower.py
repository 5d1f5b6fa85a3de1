"""Follows a log that somebody else writes: what is durable, whole and contiguous, and nothing else. Read-only.

The rules are REPLICA.md's "Writing" 1 to 4. A log segment is read through one descriptor that stays open for its life;
before each read the descriptor is synced, so that what is shipped is never ahead of the source's own disk.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.checksum import crc32c
from litelog.errors import (
    CorruptCommitError,
    DivergedError,
    SequenceGapError,
    SourceMissingError,
)
from litelog.formats import MAX_COMMIT_BYTES, FinishedTail, Tail
from litelog.log.place import Place, Run, make_run
from litelog.log.source import SETTLED_MICROSECONDS, OpenSegment, SegmentNames

if TYPE_CHECKING:
    from uuid import UUID

    from litelog.clock import Clock
    from litelog.formats import Expectation, LogFormat, Scan

HEAD_BYTES = 4096
"""How much of a log segment is read for its header."""

PROBE_BYTES = 1 << 20
"""How much of a newer log segment is read at first to see whether it holds a whole commit."""


class GapError(DivergedError):
    """The log goes on with another sequence in log segment ``file``: a new history begins there."""

    def __init__(self, path: str, file: str, reason: str) -> None:
        self.file = file
        super().__init__(path, reason)


class Follower:
    """Reads a log forward from a place. Used by one thread at a time.

    Raises SourceMissingError (wait for it), DivergedError (a new generation is due), CorruptionError and other
    SourceErrors (stop, and say so).
    """

    def __init__(self, folder: str, log_format: LogFormat, place: Place, clock: Clock) -> None:
        self._folder = folder
        self._format = log_format
        self._place = place
        self._clock = clock
        self._current: OpenSegment | None = None
        self._finished: OpenSegment | None = None
        self._names = SegmentNames(folder, log_format, clock)
        self._seen: tuple[tuple[int, ...], ...] | None = None
        self.settled = False
        """Whether ``changed`` can be relied on; False for a moment after a change, within a tick of the clock."""

    @property
    def place(self) -> Place:
        """Where the next run starts."""
        return self._place

    @property
    def folder_inode(self) -> int:
        """What the folder is, whatever its name."""
        return self._names.inode()

    def close(self) -> None:
        """Let go of the descriptors. Idempotent."""
        for segment in (self._current, self._finished):
            if segment is not None:
                segment.close()
        self._current = self._finished = None

    def changed(self) -> bool:
        """Whether anything may have happened since the last run was looked for: three calls, and no read."""
        return self._seen is None or self._signature() != self._seen

    def pending_bytes(self) -> int:
        """About how many bytes of the current log segment are not read yet."""
        return 0 if self._current is None else max(0, self._current.size() - self._place.offset)

    def next_run(self, limit: int) -> Run | None:
        """The next run, of about ``limit`` bytes at most (one commit may be larger); None if there is none yet."""
        self._seen = self._signature()
        newest = max((part[-1] for part in self._seen or ()), default=0)
        self.settled = self._clock.now() - newest // 1000 >= SETTLED_MICROSECONDS
        run = self._find_run(limit)
        if run is not None:
            self._place = run.after
            if run.final:
                self._finish_current(run.end.offset)
        return run

    def read_again(self, place: Place, length: int, *, final: bool) -> Run:
        """The run of ``length`` bytes at ``place`` as the log has it now; DivergedError if it has none such."""
        path = os.path.join(self._folder, place.file)
        try:
            with self._names.open(place.file) as segment:
                data = memoryview(segment.read(place.offset, length))
        except FileNotFoundError:
            raise DivergedError(path, "vanished before all of it was shipped") from None
        scan = self._format.scan(path, data, place.offset, place.expectation) if length else None
        if scan is not None and final and self._format.finished_tail is FinishedTail.SHIP:
            scan = replace(scan, end=scan.start + len(data))
        if (0 if scan is None else scan.end - scan.start) != length:
            raise DivergedError(path, f"does not hold the {length} bytes at {place.offset} that were shipped")
        return make_run(place, data, scan, final=final)

    def rewind(self, place: Place) -> None:
        """Go to ``place``; what was opened for another log segment is let go."""
        if self._current is not None and self._current.name != place.file:
            self._current.close()
            self._current = None
        self._place = place
        self._seen = None

    # --- one run

    def _find_run(self, limit: int) -> Run | None:
        if self._current is None:
            if not self._choose_segment():
                return None
            if not self._open_current():
                return self._pass_vanished()
        assert self._current is not None
        self._check_continuity()
        size = self._current.size()
        if size > self._place.offset:
            self._sync_current()
        data, scan = self._read_run(size, limit)
        if scan is not None and scan.end > self._place.offset and scan.end < size and scan.tail is not Tail.ZEROS:
            return make_run(self._place, data, scan, final=False)  # more lies behind it: look at that next
        return self._run_at_end(size, data, scan)

    def _run_at_end(self, size: int, data: memoryview, scan: Scan | None) -> Run | None:
        """The run at what seems to be the log segment's end: finished, if a newer one continues it."""
        assert self._current is not None
        expect = self._place.expectation if scan is None else scan.expectation
        shipped = self._place.offset if scan is None else scan.end
        whole = shipped >= size or scan is None or scan.tail is Tail.ZEROS
        finished = self._find_successor(expect, may_be_gap=whole and shipped == self._place.offset)
        if self._current.size() != size or not finished:
            # Not finished, or it grew while the newer one was looked at: its own bytes come first.
            return make_run(self._place, data, scan, final=False) if shipped > self._place.offset else None
        if scan is None or scan.tail in (Tail.NOTHING, Tail.ZEROS):
            return make_run(self._place, data, scan, final=True)
        if self._format.finished_tail is FinishedTail.ERROR:
            damage = scan.damage
            raise CorruptCommitError(
                self._path,
                shipped,
                damage.what if damage else "commit",
                damage.expected if damage else "whole, as a newer log segment follows",
                damage.actual if damage else "cut off",
            )
        if self._format.finished_tail is FinishedTail.SHIP:
            return make_run(self._place, data, replace(scan, end=scan.start + len(data)), final=True)
        return make_run(self._place, data, scan, final=True)

    def _read_run(self, size: int, limit: int) -> tuple[memoryview, Scan | None]:
        assert self._current is not None
        place = self._place
        if size == place.offset:
            return memoryview(b""), None
        length = min(limit, size - place.offset)
        while True:
            data = memoryview(self._current.read(place.offset, length))
            scan = self._format.scan(self._path, data, place.offset, place.expectation)
            longer = min(size - place.offset, max(scan.wanted, 2 * length), MAX_COMMIT_BYTES + PROBE_BYTES)
            if scan.end > place.offset or longer <= length:
                return data, scan
            length = longer  # a commit larger than the limit

    # --- the log segment at hand

    @property
    def _path(self) -> str:
        return os.path.join(self._folder, self._place.file)

    def _choose_segment(self) -> bool:
        """At the start of an index, find its log segment: the one that continues. False: not yet."""
        place = self._place
        if not place.file:
            name = self._successor_name(place.expectation) if place.behind else self._first_segment()
            if name is None:
                return False
            self._place = replace(place, file=name)
        return True

    def _open_current(self) -> bool:
        """Open the log segment of the place. False: it is not there."""
        place = self._place
        try:
            self._current = self._names.open(place.file)
        except FileNotFoundError:
            return False
        if place.offset and self._current.checksum(place.offset) != place.crc_total:
            raise DivergedError(self._path, "its bytes are not those that were shipped")
        return True

    def _first_segment(self) -> str | None:
        for name in self._names.all():
            with self._names.open(name) as segment:
                if segment.size() > 0:
                    return name
        return None

    def _pass_vanished(self) -> Run:
        """The log segment is gone. Where commits are numbered, one that continues proves that nothing is missing."""
        place = self._place
        following = self._names.after(place.file)
        if not following and not self._names.all():
            raise SourceMissingError(self._folder, "holds no log segment any more")
        if self._format.self_numbered and place.offset and self._find_successor(place.expectation, may_be_gap=False):
            return make_run(place, memoryview(b""), None, final=True)
        raise DivergedError(self._path, "vanished before all of it was shipped")

    def _check_continuity(self) -> None:
        """Compare the source with what was shipped: size, inode, and the last commit's bytes."""
        assert self._current is not None
        place = self._place
        if self._finished is not None and self._finished.grew():
            raise DivergedError(os.path.join(self._folder, self._finished.name), "grew after it was finished")
        if (inode := self._names.inode_of(place.file)) not in (None, self._current.inode):
            self._reopen_replaced()
        if inode is None:
            self._names.require_folder()
        if self._current.size() < place.offset:
            raise DivergedError(self._path, f"was cut from {place.offset} bytes to {self._current.size()}")
        checked = self._current.read(place.check_start, place.offset - place.check_start)
        if crc32c(checked) != place.check_crc:
            raise DivergedError(self._path, f"was rewritten before offset {place.offset}")

    def _reopen_replaced(self) -> None:
        assert self._current is not None
        place = self._place
        self._current.close()
        self._current = self._names.open(place.file)
        if self._current.size() < place.offset or self._current.checksum(place.offset) != place.crc_total:
            raise DivergedError(self._path, "was replaced by a file with other bytes")

    def _sync_current(self) -> None:
        assert self._current is not None
        if self._place.offset == 0:
            self._names.sync_folder()
        self._current.sync(self._path)

    def _finish_current(self, end: int) -> None:
        if self._finished is not None:
            self._finished.close()
        self._finished, self._current = self._current, None
        if self._finished is not None:
            skips_garbage = self._format.finished_tail is FinishedTail.PREFIX
            self._finished.finish(self._finished.size() if skips_garbage else end)

    # --- the log segments behind it

    def _find_successor(self, expect: Expectation, *, may_be_gap: bool) -> bool:
        try:
            return self._successor_name(expect) is not None
        except GapError:
            if may_be_gap:
                raise
            return False  # the older one has bytes of its own left: those decide first

    def _successor_name(self, expect: Expectation) -> str | None:
        """The next log segment, once it (or one behind it) holds a whole commit that continues."""
        unfinished: str | None = None
        for name in self._names.after(self._place.file or self._place.behind):
            scan, size = self._probe(name, expect)
            if size == 0:
                continue  # left empty: writers come back to the one before, or to this one
            ships_as_is = self._format.finished_tail is FinishedTail.SHIP
            if scan is not None and scan.commits:
                return unfinished or name
            if ships_as_is:
                unfinished = unfinished or name
        return None

    def _probe(self, name: str, expect: Expectation) -> tuple[Scan | None, int]:
        path = os.path.join(self._folder, name)
        try:
            segment = self._names.open(name)
        except FileNotFoundError:
            return None, 0
        with segment:
            size = segment.size()
            if size == 0:
                return None, 0
            self._names.sync_folder()
            segment.sync(path)
            length = min(size, PROBE_BYTES)
            while True:
                data = memoryview(segment.read(0, length))
                try:
                    scan = self._format.scan(path, data, 0, expect)
                except SequenceGapError as error:
                    raise GapError(path, name, f"the log jumps from {error.expected} to {error.actual}") from error
                longer = min(size, max(scan.wanted, 2 * length), MAX_COMMIT_BYTES + PROBE_BYTES)
                if scan.commits or longer <= length:
                    return scan, size
                length = longer

    def _signature(self) -> tuple[tuple[int, ...], ...] | None:
        """What changes when the log does: sizes and times of change, the time last; None before it is open."""
        if self._current is None:
            return None
        parts = (self._names.signature(), self._current.signature())
        return parts if self._finished is None else (*parts, self._finished.signature())


def find_shift(
    folder: str, log_format: LogFormat, clock: Clock, file: str, index: int, end: int, crc_total: int
) -> int | None:
    """What to add to another generation's index to get this log's; None if it does not hold what that one shipped.

    To hold it is to have ``file``, there at ``index``, with CRC-32C ``crc_total`` over its
    bytes [0, ``end``).
    """
    names = SegmentNames(folder, log_format, clock)
    ours = 0
    for name in names.all():
        with names.open(name) as segment:
            if name == file:
                held = segment.size() >= end and segment.checksum(end) == crc_total
                return ours - index if held else None
            ours += segment.size() > 0
    return None


def read_log_id(folder: str, log_format: LogFormat, clock: Clock) -> UUID | None:
    """The log's own id, from its first log segment that has one. SourceMissingError where there is no log segment."""
    names = SegmentNames(folder, log_format, clock)
    if not names.all():
        raise SourceMissingError(folder, f"holds no log segment of format {log_format.name}")
    for name in names.all():
        with names.open(name) as segment:
            found = log_format.log_id(os.path.join(folder, name), memoryview(segment.read(0, HEAD_BYTES)))
        if found is not None:
            return found
    return None
