"""Checks the files of a log on local disk, names each anomaly, and continues after it. Changes nothing."""

from __future__ import annotations

import os
from time import monotonic, sleep
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError, SequenceGapError, SourceError, WrongFormatError
from litelog.formats import MAX_COMMIT_BYTES, Damage, Expectation, FinishedTail, Tail
from litelog.formats.capabilities import find_commit, first_sequence, is_counted, max_commit_bytes
from litelog.formats.log_format import HEAD_BYTES
from litelog.log.manifest import missing_segments
from litelog.log.source import READ_BYTES, SegmentFolder
from litelog.system.clock import SystemClock
from litelog.verify.local_report import LocalAnomalies, LocalAnomalyKind, LocalReport, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from litelog.formats import LogFormat, Scan
    from litelog.log.source import OpenSegment

_SETTLE_POLL_SECONDS = 0.01

SETTLE_SECONDS = 0.2
"""How long a check waits for a commit that may be half written, if a program may append to the log."""

SEARCH_STEP_BYTES = MAX_COMMIT_BYTES
"""By how many bytes the search for a good commit after damage moves on. What is searched at a time is longer by the
largest commit."""


@dataclass(slots=True)
class _Totals:
    segments: int = 0
    bytes: int = 0
    commits: int = 0
    records: int = 0
    first: int | None = None
    next: int | None = None


def check_log(
    folder: str,
    log_format: LogFormat,
    progress: Callable[[int, int], object] | None = None,
    *,
    settle: float = 0.0,
) -> LocalReport:
    """Check every byte of the log in ``folder``.

    A program may append to the log meanwhile. A log segment that vanishes meanwhile is not an anomaly: the log was
    truncated.

    Args:
        folder: The log's folder.
        log_format: The log's format.
        progress: Called with the bytes that were checked, and with the size of the log in bytes, before each piece is
            read and at the end. An error that it raises ends the check.
        settle: How many seconds to wait, before bytes at the log's end count as torn, whether they change: a program
            may be writing a commit.

    Returns:
        The report, with all anomalies in the order of the log.

    Raises:
        SourceMissingError: The folder does not exist, or holds no log segment.
        SourceError: The folder or its manifest cannot be read.
        ConfigError: The names show a rotation that reuses names.
        WrongFormatError: The oldest log segment is of another format.
    """
    return _Check(folder, log_format, progress, settle).run()


def search_commit(log_format: LogFormat, read: Callable[[int, int], bytes], size: int, offset: int) -> int:
    """The offset of the next good commit after ``offset``.

    Args:
        log_format: The log's format.
        read: Reads the log segment: from an offset, up to a number of bytes.
        size: The log segment's size in bytes.
        offset: Where the damage begins.

    Returns:
        The offset; ``size`` if no good commit follows, or if the format cannot find it.
    """
    window, at = _window_bytes(log_format), offset
    while at < size:
        data = memoryview(read(at, window))
        found = find_commit(log_format, data, at, 0)
        if found is not None and at + found <= offset:  # whole, but not where it belongs
            found = find_commit(log_format, data, at, found + 1)
        if found is not None:
            return at + found
        if len(data) < window:
            break
        at += SEARCH_STEP_BYTES
    return size


def _window_bytes(log_format: LogFormat) -> int:
    return SEARCH_STEP_BYTES + max_commit_bytes(log_format)


class _Check:
    """One check of a log."""

    def __init__(
        self, folder: str, log_format: LogFormat, progress: Callable[[int, int], object] | None, settle: float
    ) -> None:
        self._settle = settle
        self._folder = folder
        self._format = log_format
        self._progress = progress
        self._names = SegmentFolder(folder, log_format, SystemClock(), reports=False)
        self._window_bytes = _window_bytes(log_format)
        self._found = LocalAnomalies()
        self._failures: list[str] = []
        self._totals = _Totals()
        self._size = 0
        self._expect = Expectation()
        self._log_id: UUID | None = None
        self._next: int | None = None
        """The sequence that comes next in the log segment; None if damage hides it."""
        self._uncounted = False
        """Whether damage hides how many records came before, in a format whose commits state no sequence."""

    def run(self) -> LocalReport:
        """Check all log segments, oldest first."""
        began = monotonic()
        self._names.require_log()
        names = list(self._names.all())
        self._size = sum(self._size_of(name) for name in names)
        for number, name in enumerate(names):
            self._check_file(name, next(iter(names[number + 1 :]), None))
        self._show(0)
        for name in missing_segments(self._folder, self._format):
            self._found.add(LocalAnomalyKind.MISSING, name, 0, "log segment of the manifest", "a file", "none")
        for name in self._names.foreign():
            self._found.add(LocalAnomalyKind.FOREIGN, name, 0, "file", "a log segment", "another file", harmful=False)
        totals = self._totals
        return LocalReport(
            log=self._folder,
            format=self._format.name,
            segments=totals.segments,
            bytes=totals.bytes,
            commits=totals.commits,
            records=totals.records,
            first=totals.first,
            next=totals.next,
            anomalies=tuple(self._found.kept),
            counts={str(kind): count for kind, count in sorted(self._found.counts.items())},
            harmful=self._found.harmful,
            failures=tuple(self._failures),
            seconds=monotonic() - began,
        )

    def _show(self, offset: int) -> None:
        """Report that the current log segment is checked up to ``offset``."""
        if self._progress is not None:
            self._progress(self._totals.bytes + offset, self._size)

    def _size_of(self, name: str) -> int:
        return max(0, self._names.signature_of(name)[0])

    def _check_file(self, name: str, following: str | None) -> None:
        try:
            segment = self._names.open(name)
        except FileNotFoundError:
            self._expect = Expectation()
            return
        except SourceError as error:
            self._failures.append(str(error))
            self._expect = Expectation()
            return
        except CorruptCommitError as error:
            self._report(name, error)
            self._expect = Expectation()
            return
        with segment:
            try:
                self._check_segment(segment, following)
            except OSError as error:
                self._failures.append(f"{os.path.join(self._folder, name)}: cannot be read: {error.strerror}")
                self._expect = Expectation()
            except CorruptCommitError as error:  # a piece of it cannot be decompressed, so the rest is not checked
                self._report(name, error)
                self._lose_sequence()
        self._totals.segments += 1

    def _check_segment(self, segment: OpenSegment, following: str | None) -> None:
        """Check one log segment from its first byte to its last. ``following``: the log segment after it."""
        path = os.path.join(self._folder, segment.name)
        self._check_log_id(segment)
        named = first_sequence(self._format, segment.name)
        if named is not None:
            self._uncounted = False
        self._next = named if self._expect.sequence is None else self._expect.sequence
        offset, length = 0, READ_BYTES
        while data := memoryview(segment.read(offset, length)):
            self._show(offset)
            try:
                scan, error = self._scan(path, data, offset)
            except WrongFormatError as fault:
                self._found.add(LocalAnomalyKind.UNKNOWN, segment.name, 0, "format", fault.format_name, "another one")
                self._expect = Expectation()
                break
            if scan is not None and scan.end > offset:
                self._count(scan)
                offset = scan.end
                if error is None:
                    length = READ_BYTES
                    continue
            if error is not None and self._is_left(following):
                self._report_torn(segment, offset, error, harmful=False)
                break
            if error is not None:
                offset, length = self._pass(segment, offset, error), READ_BYTES
            elif scan is None or len(data) < length:
                held = offset + len(data)
                offset, length = self._pass_tail(segment, offset, held, scan, following), READ_BYTES
            elif length > self._window_bytes:
                damage = scan.damage or Damage(offset, "commit", "whole", f"none in {length} bytes")
                offset, length = self._pass(segment, offset, _error_of(path, damage)), READ_BYTES
            else:
                length = min(max(2 * length, scan.wanted), 2 * self._window_bytes)
        self._totals.bytes += segment.size()

    def _scan(
        self, path: str, data: memoryview, offset: int
    ) -> tuple[Scan | None, CorruptCommitError | SequenceGapError | None]:
        """The scan of the good commits at ``offset``, None if there are none, and the error that follows them."""
        try:
            return self._format.scan(path, data, offset, self._expect), None
        except (CorruptCommitError, SequenceGapError) as error:
            if error.offset <= offset:
                return None, error
            found = self._format.scan(path, data[: error.offset - offset], offset, self._expect)
            return found, error

    def _check_log_id(self, segment: OpenSegment) -> None:
        if not self._format.has_log_id:
            return
        try:
            found = self._format.log_id(segment.name, memoryview(segment.read(0, HEAD_BYTES)))
        except WrongFormatError:
            return  # the scan reports it
        if found is not None and self._log_id is not None and found != self._log_id:
            self._found.add(LocalAnomalyKind.FORK, segment.name, 0, "log id", self._log_id, found)
        self._log_id = self._log_id or found

    def _count(self, scan: Scan) -> None:
        totals = self._totals
        totals.commits += scan.commits
        totals.records += scan.records
        if totals.first is None:
            totals.first = scan.first
        if self._uncounted:
            totals.next = None
            return
        if scan.commits:
            totals.next = scan.next
        self._expect, self._next = scan.expectation, scan.next

    def _pass(self, segment: OpenSegment, offset: int, error: CorruptCommitError | SequenceGapError) -> int:
        """Report a fault at ``offset``, and return the offset at which the next good commit begins."""
        if isinstance(error, CorruptCommitError):
            end = self._search(segment, offset)
            self._report(segment.name, error, end=end)
            self._lose_sequence()
            return end
        run = self._good_bytes(segment, offset, Expectation())
        if run and self._good_bytes(segment, offset + run, self._expect):  # these commits alone are out of order
            self._report(segment.name, error, end=offset + run)
            return offset + run
        self._report(segment.name, error)
        self._expect = Expectation()
        return offset if run else self._search(segment, offset)

    def _lose_sequence(self) -> None:
        """Accept any sequence next, as damage hides how many records it took."""
        self._expect, self._next = Expectation(), None
        self._uncounted = is_counted(self._format) or not self._format.self_numbered

    def _good_bytes(self, segment: OpenSegment, offset: int, expect: Expectation) -> int:
        """How many bytes from ``offset`` on, up to a piece, are good commits of which the first one is as expected."""
        data = memoryview(segment.read(offset, READ_BYTES))
        path = os.path.join(self._folder, segment.name)
        try:
            return self._format.scan(path, data, offset, expect).end - offset
        except (CorruptCommitError, SequenceGapError) as error:
            if error.offset <= offset:
                return 0
            return self._format.scan(path, data[: error.offset - offset], offset, expect).end - offset

    def _search(self, segment: OpenSegment, offset: int) -> int:
        """The offset of the next good commit after the damage at ``offset``; the log segment's size if there is none,
        or if the format cannot find it."""
        return search_commit(self._format, segment.read, segment.size(), offset)

    def _is_left(self, following: str | None) -> bool:
        """Whether a crashed writer left the rest of a log segment, in a format where the next one continues before
        it."""
        if following is None or self._format.finished_tail is not FinishedTail.PREFIX:
            return False
        path = os.path.join(self._folder, following)
        try:
            with self._names.open(following) as segment:
                return self._expect.sequence is not None and bool(
                    segment.scan_head(self._format, path, self._expect).commits
                )
        except (OSError, CorruptCommitError, SequenceGapError, WrongFormatError, SourceError):
            return False

    def _pass_tail(self, segment: OpenSegment, offset: int, held: int, scan: Scan | None, following: str | None) -> int:
        """Report the bytes from ``offset`` to ``held``, the end of the file, if they are an anomaly. Returns where to
        continue: at ``offset`` if the file has grown since."""
        signature, size = segment.signature(), segment.size()
        if size > held and following is None:
            return offset
        is_whole = following is None or scan is None or scan.damage is None
        is_data = is_whole and self._format.finished_tail is FinishedTail.SHIP
        if scan is None or scan.tail in (Tail.NOTHING, Tail.ZEROS) or is_data:
            return size
        error = _error_of(segment.name, scan.damage or Damage(offset, "commit", "whole", "cut off"))
        is_left = self._is_left(following)
        if following is None and self._will_change(segment, signature):
            return offset
        if following is None or is_left:
            self._report_torn(segment, offset, error, harmful=not is_left)
            return size
        end = self._search(segment, offset)
        self._report(segment.name, error, end=end)
        self._lose_sequence()
        return end

    def _will_change(self, segment: OpenSegment, signature: tuple[int, int]) -> bool:
        """Wait a while for a change of a log segment with this signature. Returns whether there was one."""
        until = monotonic() + self._settle
        while self._settle and monotonic() < until and segment.signature() == signature:
            sleep(_SETTLE_POLL_SECONDS)
        return segment.signature() != signature

    def _report_torn(
        self, segment: OpenSegment, offset: int, error: CorruptCommitError | SequenceGapError, *, harmful: bool
    ) -> None:
        what = "sequence" if isinstance(error, SequenceGapError) else error.what
        self._found.add(
            LocalAnomalyKind.TORN,
            segment.name,
            offset,
            what,
            error.expected,
            error.actual,
            end=segment.size(),
            sequence=self._next,
            harmful=harmful,
        )

    def _report(self, name: str, error: CorruptCommitError | SequenceGapError, end: int | None = None) -> None:
        what = "sequence" if isinstance(error, SequenceGapError) else error.what
        expected, actual, sequence = error.expected, error.actual, self._next
        self._found.add(kind_of(error), name, error.offset, what, expected, actual, end=end, sequence=sequence)


def _error_of(path: str, damage: Damage) -> CorruptCommitError:
    return CorruptCommitError(path, damage.offset, damage.what, damage.expected, damage.actual)
