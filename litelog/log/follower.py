"""Follows a log that another program writes. Yields only whole commits that are durable and contiguous. Read-only.

The rules, from following to comparing, are in litelog/shipping/README.md#writing. A log segment is read through one
descriptor that stays open as long as the segment is followed. The descriptor is synced before each read, so that
shipped bytes are never ahead of the source's own disk; and after it, if the file ends with preallocated zeros.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.errors import (
    CorruptCommitError,
    CorruptionError,
    DivergedError,
    SequenceGapError,
)
from litelog.formats import FinishedTail, Tail
from litelog.formats.capabilities import (
    first_sequence,
    has_manifest,
    is_sparse,
    max_commit_bytes,
    rewrites_finished,
)
from litelog.log.run_reader import RunReader
from litelog.log.source import SETTLED_MICROSECONDS, OpenSegment, SegmentFolder
from litelog.log.source_position import CHECKED_BYTES, CommitRun, SourcePosition, digest, make_run

if TYPE_CHECKING:
    from litelog.formats import Expectation, LogFormat, Scan
    from litelog.formats.columns import Columns
    from litelog.log.early_sync import EarlySync
    from litelog.log.failed_syncs import FailedSyncs
    from litelog.log.watermark import Watermark
    from litelog.system.clock import Clock

PROBE_BYTES = 1 << 20
"""How many bytes of a newer log segment are read at first to see whether it holds a whole commit."""


class GapError(DivergedError):
    """The log continues with an unexpected sequence in log segment ``file``. A new history begins there."""

    def __init__(self, path: str, file: str, reason: str) -> None:
        self.file = file
        super().__init__(path, reason)


class FolderReplacedError(DivergedError):
    """The log's folder is another one, or holds log segments again that it had lost. The whole log must be compared
    again; it may still continue what was shipped."""


class RewrittenError(DivergedError):
    """The log's writer began the log again with another first log segment, which holds the state that the log led to.
    Writers with manifests do so, and nothing is lost."""


class Follower:
    """Reads a log forward from a position. Used by one thread at a time.

    Raises:
        SourceMissingError: The log does not exist now; wait for it.
        DivergedError: Start a new generation.
        CorruptionError and other SourceErrors: stop and report.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of its own
        self,
        folder: str,
        log_format: LogFormat,
        place: SourcePosition,
        clock: Clock,
        inode: int = 0,
        oldest: str = "",
        failed_syncs: FailedSyncs | None = None,
        watermark: Watermark | None = None,
        *,
        early: EarlySync | None = None,
    ) -> None:
        """``inode``: the folder's when it was last read; 0: take the current one. ``oldest``: the log's oldest log
        segment at that time. ``watermark``: commits after it are not returned. ``early``: a run that it covers may be
        returned before it is durable; what needs that is for ``early.then``."""
        self._folder = folder
        self._inode = inode
        self.oldest = oldest
        """The log's oldest log segment, as of the last run; empty before the first."""
        self._format = log_format
        self._most_bytes = max_commit_bytes(log_format) + PROBE_BYTES
        self._place = place
        self._clock = clock
        self._current: OpenSegment | None = None
        self._finished: OpenSegment | None = None
        self._newer: OpenSegment | None = None
        self._rest: int | None = None
        self._awaited: list[str] = []
        self._names = SegmentFolder(folder, log_format, clock, failed_syncs=failed_syncs, whole=True)
        self._watermark = watermark
        self._early = early
        self.withheld_by: str | None = None
        """The file that states the watermark, if the last search for a run found whole commits after it."""
        self._seen: tuple[int, ...] | None = None
        self._reader = RunReader(log_format, self._most_bytes)
        self.settled = False
        """Whether ``changed`` is reliable. False for a moment after a change, within a tick of the clock."""

    @property
    def place(self) -> SourcePosition:
        """The position at which the next run starts."""
        return self._place

    def close(self) -> None:
        """Close the descriptors. Idempotent."""
        for segment in (self._current, self._finished, self._newer):
            if segment is not None:
                segment.close()
        self._current = self._finished = self._newer = None

    def changed(self) -> bool:
        """Whether the log may have changed since the last search for a run. Costs three calls and at most one read."""
        return self._seen is None or self._signature() != self._seen or self._rest_changed()

    def pending_bytes(self) -> int:
        """About how many bytes of the current log segment are not read yet."""
        return 0 if self._current is None else max(0, self._current.size() - self._place.offset)

    def next_run(self, limit: int) -> CommitRun | None:
        """Return the next run, of at most about ``limit`` bytes (one commit may be larger); None if there is none."""
        self.withheld_by = None
        inode, modified, *_ = self._see()
        self._check_folder(inode, modified)
        self._rest = None
        run = self._find_run(limit)
        if run is not None:
            self._place = run.after
            if run.final:
                self._finish_current()
        return run

    def decode_up_to(self, length: int) -> None:
        """Decode runs of up to ``length`` bytes as they are checked, for ``columns_of``."""
        self._reader.decoded_bytes = length

    def columns_of(self, run: CommitRun) -> Columns | None:
        """The records of the run that ``next_run`` has just returned, if they were decoded then."""
        return self._reader.columns_of(run)

    def read_again(self, place: SourcePosition, length: int, *, final: bool) -> CommitRun:
        """Read the run of ``length`` bytes at ``place`` again. Raises DivergedError if the log does not hold it now."""
        path = os.path.join(self._folder, place.file)
        try:
            with self._names.open(place.file) as segment:
                data = memoryview(segment.read(place.offset, length))
        except FileNotFoundError:
            raise self._vanished(place.file) from None
        scan = self._format.scan(path, data, place.offset, place.expectation) if length else None
        if scan is not None and final and self._format.finished_tail is FinishedTail.SHIP:
            scan = replace(scan, end=scan.start + len(data))
        if (0 if scan is None else scan.end - scan.start) != length:
            raise DivergedError(path, f"does not hold the {length} bytes at {place.offset} that were shipped")
        return make_run(place, data, scan, final=final)

    def require_segment(self, name: str) -> None:
        """Check that a log segment exists. Raises DivergedError if it is gone, SourceMissingError if the log is."""
        if self._names.inode_of(name) is None:
            raise self._vanished(name)

    def rewind(self, place: SourcePosition) -> None:
        """Move to ``place`` and close the descriptors of other log segments."""
        self._awaited = []
        if self._current is not None and self._current.name != place.file:
            self._current.close()
            self._current = None
        if self._finished is not None:  # it may have been finished elsewhere
            self._finished.close()
            self._finished = None
        self._place = place
        self._seen = self._rest = None

    def _see(self) -> tuple[int, ...]:
        """Record and return how the log looks before it is read."""
        self._seen = self._signature()
        newest = max(self._seen[1::2])
        self.settled = self._clock.now() - newest // 1000 >= SETTLED_MICROSECONDS
        return self._seen

    def _check_folder(self, inode: int, modified: int) -> None:
        """Find older log segments that a copy of the log brought back when it replaced the folder. They sort before
        the position, where a follower does not look. An empty folder is not another log: its disk is unmounted. If
        records are not numbered, an older name in the same folder is probably a mistake: ``report_late`` logs it. A
        writer that rewrites log segments may take one away for a moment."""
        names = self._names.all(modified)
        if not names:
            return
        if inode != (self._inode or inode):
            raise FolderReplacedError(self._folder, "the log's folder was restored or replaced")
        if has_manifest(self._format):
            self._check_manifest(names)
        is_other = self.oldest not in ("", names[0])
        is_exact = is_other and self._format.self_numbered and not rewrites_finished(self._format)
        if is_exact and self._names.order_of(names[0]) < self._names.order_of(self.oldest):
            reason = f"holds {names[0]} again, which is older than {self.oldest}, the oldest log segment it had left"
            raise FolderReplacedError(self._folder, reason)
        self._inode, self.oldest = inode, names[0]

    def _check_manifest(self, names: list[str]) -> None:
        """Raise RewrittenError if the manifest no longer lists what was read: its writer only appends to one log."""
        held = [name for name in (self.oldest, self._place.finished, self._place.file) if name]
        gone = [name for name in held if name not in names]
        if gone or (self.oldest and names[0] != self.oldest):
            reason = f"its manifest begins with {names[0]}" + (f", and no longer lists {gone[0]}" if gone else "")
            raise RewrittenError(self._folder, f"was rewritten: {reason}")

    def _find_run(self, limit: int) -> CommitRun | None:
        self._check_finished()
        current = self._current
        if current is None:
            if not self._choose_segment():
                return None
            current = self._open_current()
            if current is None:
                return self._skip_vanished()
            self._see()
        current, size = self._check_continuity(current)
        is_preallocated = False
        if size > self._place.offset:
            size, is_preallocated = self._sync(current, size)
        try:
            data, scan = self._reader.read(current, self._path, self._place, size, limit)
        except CorruptCommitError:
            if self._is_left_behind():
                return make_run(self._place, memoryview(b""), None, final=True)
            raise
        if is_preallocated:
            current.sync(self._path)  # its writer may have filled zeros after the other sync
        mark = None if scan is None else self._find_limit(scan)
        if mark is not None:
            return self._run_before(mark, data)
        seen = self._place.offset + len(data)
        if scan is not None and self._place.offset < scan.end < size and (scan.tail is not Tail.ZEROS or seen < size):
            return make_run(self._place, data, scan, final=False, more=True)  # the bytes after it are examined next
        run = self._run_at_end(current, size, data, scan)
        if run is None and size > self._place.offset:
            self._rest = crc32c(data[:CHECKED_BYTES])
        return run

    def _find_limit(self, scan: Scan) -> int | None:
        """Return the watermark, if commits of ``scan`` are after it; None if they all are before it. A later change of
        the watermark then counts as a change of the log."""
        if self._watermark is None or not scan.commits or scan.next is None:
            return None
        signature, mark = self._watermark.signature(), self._watermark.read()
        if mark is None or scan.next <= mark:
            return None
        self.withheld_by = self._watermark.path
        self._seen = (*(self._seen or ()), *signature)
        return mark

    def _run_before(self, mark: int, data: memoryview) -> CommitRun | None:
        """Return the run of the commits in ``data`` that end at or before the watermark; None if there are none."""
        place = self._place
        commits = self._format.commits(self._path, data, place.offset, place.expectation)
        ends = [commit.end for commit in commits if commit.next <= mark]
        if not ends:
            return None
        kept = data[: ends[-1] - place.offset]
        scan = self._format.scan(self._path, kept, place.offset, place.expectation)
        return make_run(place, kept, scan, final=False)

    def _run_at_end(self, current: OpenSegment, size: int, data: memoryview, scan: Scan | None) -> CommitRun | None:
        """Return the run at the apparent end of the log segment. It is final if a newer log segment continues it."""
        place = self._place
        end = place.offset if scan is None else scan.end
        refusal: GapError | CorruptionError | None = None
        finished = False
        try:
            finished = self._successor_name(place.expectation if scan is None else scan.expectation) is not None
        except (GapError, CorruptionError) as error:
            refusal = error
        if not (finished or refusal) or _has_changed(current, size, data[end - place.offset :], end):
            # Not finished, or its writer continued while the newer one was read: its own bytes come first.
            return make_run(place, data, scan, final=False) if end > place.offset else None
        clean = scan is None or scan.tail in (Tail.NOTHING, Tail.ZEROS)
        if refusal is not None:
            if end > place.offset:
                return make_run(place, data, scan, final=False, more=True)  # the newer one's fault is raised after it
            if clean or self._format.finished_tail is FinishedTail.SHIP or not isinstance(refusal, GapError):
                raise refusal
            if self._format.finished_tail is FinishedTail.PREFIX and scan is not None:
                raise self._cut_off(scan)
        if scan is None or clean:
            return make_run(place, data, scan, final=True)
        return self._run_before_tail(current, data, scan)

    def _run_before_tail(self, current: OpenSegment, data: memoryview, scan: Scan) -> CommitRun:
        """Return the last run of a finished log segment whose last bytes are not a commit. The format's
        ``finished_tail`` decides about these bytes."""
        place, is_shipped = self._place, self._format.finished_tail is FinishedTail.SHIP
        if is_shipped and scan.damage is None:
            return make_run(place, data, replace(scan, end=scan.start + len(data)), final=True)
        if is_shipped or self._format.finished_tail is FinishedTail.ERROR:
            if scan.end > place.offset:
                return make_run(place, data, scan, final=False, more=True)
            if self._names.inode_of(place.file) != current.inode:
                # The opened file may not be the log's last version: it may have been replaced before it vanished.
                raise self._vanished(place.file)
            raise self._cut_off(scan)
        if not scan.end:
            raise self._cut_off(scan)  # nothing in it is valid, so the newer log segment cannot continue it
        return make_run(place, data, scan, final=True)

    def _is_left_behind(self) -> bool:
        """Whether the damage at the position is garbage of a crashed writer: a newer log segment continues before it.

        The writer may have appended after its garbage at first. It lost that when it began the newer log segment.
        """
        if self._format.finished_tail is not FinishedTail.PREFIX or not self._place.offset:
            return False
        with suppress(GapError, CorruptionError):
            return self._successor_name(self._place.expectation) is not None
        return False

    def _cut_off(self, scan: Scan) -> CorruptCommitError:
        """The error for an unfinished tail of a finished log segment, in a format whose writers leave none."""
        damage = scan.damage
        if damage is None:
            return CorruptCommitError(self._path, scan.end, "commit", "whole, as a newer one follows", "cut off")
        return CorruptCommitError(self._path, scan.end, damage.what, damage.expected, damage.actual)

    @property
    def _path(self) -> str:
        return os.path.join(self._folder, self._place.file)

    def _choose_segment(self) -> bool:
        """At the start of an index, find its log segment, which continues the last one. False: there is none yet."""
        place = self._place
        if not place.file:
            name = self._successor_name(place.expectation) if place.finished else self._first_segment()
            if name is None:
                self._names.require_log()
                return False
            self._place = replace(place, file=name)
        return True

    def _open_current(self) -> OpenSegment | None:
        """Open the log segment of the position. None if it does not exist."""
        place = self._place
        try:
            current = self._current = self._take_newer(place.file) or self._names.open(place.file)
        except FileNotFoundError:
            return None
        if place.offset and current.checksum(place.offset) != place.crc_total:
            raise DivergedError(self._path, "its bytes are not those that were shipped")
        return current

    def _first_segment(self) -> str | None:
        name = next((segment.name for segment in self._names.each() if segment.size() > 0), None)
        self._awaited = [] if name is not None else list(self._names.all())
        return name

    def _skip_vanished(self) -> CommitRun:
        """Continue after a log segment that is gone. If commits are numbered, a log segment that continues proves that
        none is missing. If sequences may jump, only a log segment whose name states the very next sequence proves
        it."""
        place = self._place
        self._require_oldest(place.file)
        if self._format.self_numbered and place.offset:
            with suppress(GapError):
                name = self._successor_name(place.expectation)
                proven = not is_sparse(self._format) or first_sequence(self._format, name or "") == place.sequence
                if name is not None and proven:
                    return make_run(place, memoryview(b""), None, final=True)
        raise self._vanished(place.file)

    def _vanished(self, name: str) -> DivergedError:
        """The error for a log segment that is gone before it was shipped. Raises SourceMissingError if the log is."""
        self._names.require_log()
        return DivergedError(os.path.join(self._folder, name), "vanished before all of it was shipped")

    def _check_finished(self) -> None:
        """Check that the log segment before did not change, not even while the daemon was down."""
        place = self._place
        inode = self._names.inode_of(place.finished) if place.finished else None
        if self._finished is not None and (self._finished.name != place.finished or inode != self._finished.inode):
            self._finished.close()
            self._finished = None
        if place.finished_end is not None and not rewrites_finished(self._format):
            if inode is None:
                self._require_oldest(place.finished)
            elif self._finished is None:
                with suppress(FileNotFoundError):
                    self._finished = self._names.open(place.finished)
                    self._mark_finished(self._finished, place.finished_end)
        if self._finished is not None and (fault := self._finished.fault()):
            raise DivergedError(os.path.join(self._folder, self._finished.name), fault)

    def _require_oldest(self, vanished: str) -> None:
        """Check that no older log segment exists: truncation removes the oldest ones first. If a newer one is gone
        while an older one exists, the log was rewound."""
        older = self._names.before(vanished)
        if older:
            raise DivergedError(os.path.join(self._folder, vanished), f"vanished, while {older[-1]} is there")

    def _check_continuity(self, current: OpenSegment) -> tuple[OpenSegment, int]:
        """Compare the source with the shipped position: size, inode, and the last commit's bytes. Return the current
        log segment, which may be another file now, and its size."""
        place = self._place
        if (inode := self._names.inode_of(place.file)) not in (None, current.inode):
            current = self._reopen_replaced(current)
        if inode is None:
            self._names.require_log()
            self._require_oldest(place.file)
        size = current.size()
        if size < place.offset:
            raise DivergedError(self._path, f"was cut from {place.offset} bytes to {size}")
        checked = current.read(place.check_start, place.offset - place.check_start)
        if place.offset and digest(checked) != place.check_digest:
            raise DivergedError(self._path, f"was rewritten before offset {place.offset}")
        return current, size

    def _reopen_replaced(self, current: OpenSegment) -> OpenSegment:
        """Return the file that has the position's name now; ``current``, which has the old bytes, if there is none."""
        place = self._place
        try:
            segment = self._names.open(place.file)
        except FileNotFoundError:
            return current
        try:
            self._names.sync_folder()
        except BaseException:  # the next attempt compares it with what was shipped
            segment.close()
            raise
        current.close()
        self._current = segment
        if segment.size() < place.offset or segment.checksum(place.offset) != place.crc_total:
            raise DivergedError(self._path, "was replaced by a file with other bytes")
        return segment

    def begin_sync(self) -> None:
        """Let the early sync begin with what the current log segment holds now. Raises as ``EarlySync.begin``."""
        if self._early is not None:
            self._early.begin(self._current, self._path, self._place.offset)

    def _sync(self, current: OpenSegment, size: int) -> tuple[int, bool]:
        """Make the current log segment durable. Returns up to which size it is, or will be with the early sync, and
        whether its writer may still write zeros there. The early sync has made sure that it may not."""
        if self._place.offset == 0:
            self._names.sync_folder()
        covered = None if self._early is None else self._early.covered(current, self._place.offset)
        if covered is not None and covered <= size:
            return covered, False
        is_preallocated = current.ends_with_zeros()
        current.sync(self._path)
        return size, is_preallocated

    def _finish_current(self) -> None:
        if self._finished is not None:
            self._finished.close()
        self._finished, self._current = self._current, None
        if self._finished is not None:
            end = self._place.finished_end
            if rewrites_finished(self._format) or end is None:
                self._finished.finish(self._finished.size(), 0, "")
            else:
                self._mark_finished(self._finished, end)

    def _mark_finished(self, segment: OpenSegment, end: int) -> None:
        """Record that the log segment before the position is finished at ``end``."""
        may_grow = self._format.finished_tail is FinishedTail.PREFIX
        segment.finish(end, self._place.finished_start, self._place.finished_digest, may_grow=may_grow)

    def _rest_changed(self) -> bool:
        """Whether the bytes after the position changed since they held no commit. mmap may not change any time."""
        if self._rest is None or self._current is None:
            return False
        return crc32c(self._current.read(self._place.offset, CHECKED_BYTES)) != self._rest

    def _successor_name(self, expect: Expectation) -> str | None:
        """Return the next log segment, once it (or a later one) holds a whole commit that continues."""
        unfinished: str | None = None
        self._awaited = []
        newest = self._place.file or self._place.finished
        if newest and not self._format.self_numbered:  # in numbered formats, shipping continues without it
            self._names.report_late(newest)
        # A newer one that appeared since the look before the read is found next time: the signature is older, too.
        for name in self._names.after(newest, None if self._seen is None else self._seen[1]):
            self._awaited.append(name)
            scan, size = self._probe(name, expect)
            if size == 0:
                continue  # left empty: its writer returns to the one before, or to this one
            ships_as_is = self._format.finished_tail is FinishedTail.SHIP
            if scan is not None and scan.commits:
                return unfinished or name
            if ships_as_is:
                unfinished = unfinished or name
        return None

    def _probe(self, name: str, expect: Expectation) -> tuple[Scan | None, int]:
        try:
            segment = self._take_newer(name) or self._names.open(name)
        except FileNotFoundError:
            return None, 0
        size = segment.size()
        if size == 0 or self._newer is not None:
            with segment:
                return (self._probe_open(segment, size, expect) if size else None), size
        self._newer = segment  # keep the descriptor: this becomes the current log segment
        return self._probe_open(segment, size, expect), size

    def _probe_open(self, segment: OpenSegment, size: int, expect: Expectation) -> Scan:
        path = os.path.join(self._folder, segment.name)
        self._names.sync_folder()
        segment.sync(path)
        length = min(size, PROBE_BYTES)
        while True:
            data = memoryview(segment.read(0, length))
            try:
                scan = self._format.scan(path, data, 0, expect)
            except (CorruptCommitError, SequenceGapError) as error:
                scan = self._format.scan(path, data[: error.offset], 0, expect)
                if scan.commits:
                    return scan  # the fault after these commits is raised when reading gets there
                if isinstance(error, CorruptCommitError):
                    raise
                reason = f"the log jumps from {error.expected} to {error.actual} at {segment.name}"
                raise GapError(path, segment.name, reason) from error
            longer = min(size, max(scan.wanted, 2 * length), self._most_bytes)
            if scan.commits or longer <= length:
                return scan
            length = longer

    def _take_newer(self, name: str) -> OpenSegment | None:
        """Return the descriptor that probed a newer log segment, if it still is that file."""
        segment = self._newer
        if segment is None or segment.name != name:
            return None
        self._newer = None
        if self._names.inode_of(name) == segment.inode:
            return segment
        segment.close()
        return None

    def _signature(self) -> tuple[int, ...]:
        """A value that changes when the log does: the folder's inode and time of change, then size and time of each
        file that may grow. Nanoseconds. The folder alone counts while no log segment is open."""
        signature: tuple[int, ...] = self._names.signature()
        for segment in (self._current, self._finished):
            if segment is not None:
                signature += segment.signature()
        for name in self._awaited:
            signature += self._names.signature_of(name)
        if self._watermark is not None and self.withheld_by is not None:
            signature += self._watermark.signature()
        return signature


def _has_changed(segment: OpenSegment, size: int, rest: memoryview, end: int) -> bool:
    """Read the older log segment again. Return whether its size or its bytes from ``end`` on have changed."""
    return segment.size() != size or segment.read(end, len(rest)) != rest
