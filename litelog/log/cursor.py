"""LogCursor: a position in a log on disk. Steps to the next records, across log segments.

Each step reads a run of whole commits from one log segment as columns, and makes every check once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError, DivergedError, SequenceGapError, TruncatedError
from litelog.formats import Damage, Expectation, FinishedTail, Tail
from litelog.formats.capabilities import can_take_columns, max_commit_bytes, scan_columns, take_columns
from litelog.log.source_position import LEAST_CHECKED_BYTES

if TYPE_CHECKING:
    from litelog.formats import LogFormat
    from litelog.formats.columns import Columns
    from litelog.log.sequence_base import SequenceBase
    from litelog.log.source import OpenSegment, SegmentFolder

PIECE_BYTES = 1 << 20
"""How many bytes are read at a time after a jump, for example by a reader that was just placed."""

LARGE_PIECE_BYTES = 4 << 20
"""How many bytes are read at a time in a sequential read. A larger piece spreads its fixed cost over more records: in a
measurement, a reader returned half as many again each second."""

TAKEN_PIECE_BYTES = 2 << 20
"""How many bytes are read at a time if commits are taken without a look at what follows. The fixed cost is lower, and
more of the bytes are still in the processor's cache; measured."""

LEAST_TAKEN_BYTES = 64 << 10
"""With fewer bytes, what follows their last commit is often the end of the log, which has to be looked at."""

SPARE_BYTES = 4 << 20
"""How many bytes more than the largest commit are read at most, to judge the bytes after a damaged one."""


@dataclass(frozen=True, slots=True)
class DecodedCommits:
    """The run of whole commits at the start of the bytes read; no records if there is none. Offsets as in Scan."""

    columns: Columns
    end: int
    expect: Expectation
    """The expectation for the next commit."""
    tail: Tail
    damage: Damage | None
    wanted: int
    read_bytes: int


def most_read_bytes(log_format: LogFormat) -> int:
    """The most bytes that are read at a time: enough for any commit of the format."""
    return max_commit_bytes(log_format) + SPARE_BYTES


def decode_piece(
    log_format: LogFormat, path: str, data: memoryview, offset: int, expect: Expectation
) -> DecodedCommits:
    """Decode the records in ``data``. Returns and raises what ``LogFormat.scan`` and ``LogFormat.decode`` do."""
    scan, columns = scan_columns(log_format, path, data, offset, expect)
    return DecodedCommits(columns, scan.end, scan.expectation, scan.tail, scan.damage, scan.wanted, len(data))


def read_piece(
    log_format: LogFormat,
    path: str,
    segment: OpenSegment,
    offset: int,
    expect: Expectation,
    limit: int = PIECE_BYTES,
    held: memoryview | None = None,
) -> DecodedCommits | None:
    """Read the next piece: about ``limit`` bytes, or one commit that is larger; None if no bytes are at ``offset``.
    ``held``: the bytes from there on, up to ``limit``, if they were just read.

    The piece ends before a bad commit. If the first commit is bad, raises what ``LogFormat.scan`` raises.
    """
    size = segment.size()
    if size <= offset:
        return None
    length = min(limit, size - offset) if held is None else len(held)
    while True:
        data = memoryview(segment.read(offset, length)) if held is None else held
        held = None
        try:
            piece = decode_piece(log_format, path, data, offset, expect)
        except (CorruptCommitError, SequenceGapError) as error:
            good = data[: max(0, error.offset - offset)]
            piece = decode_piece(log_format, path, good, offset, expect)
            if piece.end == offset:
                raise
            return piece  # the next call raises for the bad commit
        longer = min(size - offset, max(2 * length, piece.wanted), most_read_bytes(log_format))
        if piece.end > offset or piece.tail is Tail.ZEROS or longer <= length:
            return piece
        length = longer


class LogCursor:
    """Moves forward only. One thread at a time. An open log segment stays readable even if its file is deleted."""

    def __init__(
        self, folder: str, log_format: LogFormat, names: SegmentFolder, numbering: SequenceBase | None = None
    ) -> None:
        """``numbering``: numbers the records if they do not carry their numbers."""
        self._folder = folder
        self._numbering = numbering
        self._format = log_format
        self._names = names
        self._segment: OpenSegment | None = None
        self._offset = 0
        self._before = b""
        self.path = ""
        """The path of the current log segment; empty before the first one."""
        self.expect = Expectation()
        """The expectation for the next records."""
        self.read_from = 0
        """The offset in the current log segment of the ``data`` of the last records."""
        self.tail: DecodedCommits | None = None
        """The bytes after the last whole commit if no other follows; None while one does."""

    @property
    def placed(self) -> bool:
        """Whether there is a log segment to read from."""
        return self._segment is not None

    def place(self, segment: OpenSegment, offset: int, expect: Expectation) -> None:
        """Move to ``offset`` of ``segment``. The cursor owns the segment from now on."""
        self.close()
        self._segment, self._offset, self.expect = segment, offset, expect
        self.path = os.path.join(self._folder, segment.name)
        self._before = b""

    def close(self) -> None:
        """Close the log segment."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def next_records(self, limit: int = PIECE_BYTES) -> Columns | None:
        """Return the next records, from about ``limit`` bytes; None if there are none now.

        Raises:
            CorruptCommitError, SequenceGapError, TruncatedError: As their names say.
            DivergedError: The file became shorter, was rewritten, or is another one.
        """
        while (segment := self._segment) is not None:
            size = segment.size()
            if size < self._offset:
                raise DivergedError(self.path, f"was cut from {self._offset} bytes to {size}")
            held = self._read_many(segment, min(limit, size - self._offset))
            if held is not None and (taken := take_columns(self._format, held, self._offset, self.expect)) is not None:
                self.read_from, self.tail = self._offset, None
                columns, self._offset, self.expect = taken
                return columns
            try:
                piece = read_piece(self._format, self.path, segment, self._offset, self.expect, limit, held)
            except CorruptCommitError:
                if self._leave_garbage(segment):
                    continue
                raise
            self._check_before(segment)
            if piece is not None and piece.end > self._offset:
                self.read_from = self._offset
                if not self._format.self_numbered:
                    start = max(self._offset, piece.end - LEAST_CHECKED_BYTES)
                    self._before = segment.read(start, piece.end - start)
                self._offset, self.expect, self.tail = piece.end, piece.expect, None
                return piece.columns
            self.tail = piece
            if piece is not None and piece.read_bytes >= most_read_bytes(self._format) and piece.tail is not Tail.ZEROS:
                raise self._corrupt(piece)  # no commit is so large
            if not self._cross(segment, size):
                return None
        return None

    def _read_many(self, segment: OpenSegment, length: int) -> memoryview | None:
        """The first of the next ``length`` bytes, if they are enough to take the commits in them without a look at what
        follows, and the format can do that; None otherwise, and if there are none."""
        if length < LEAST_TAKEN_BYTES or not can_take_columns(self._format):
            return None
        return memoryview(segment.read(self._offset, min(length, TAKEN_PIECE_BYTES))) or None

    def _leave_garbage(self, segment: OpenSegment) -> bool:
        """Move to the next log segment if it continues before damage that a crashed writer left. False: there is none,
        or the format's writers leave none."""
        if self._format.finished_tail is not FinishedTail.PREFIX or not self._offset:
            return False
        try:
            successor = self._open_successor(segment)
        except (CorruptCommitError, SequenceGapError, TruncatedError):
            return False
        if successor is None:
            return False
        self.place(successor, 0, self.expect)
        return True

    def _check_before(self, segment: OpenSegment) -> None:
        """Check that the last bytes read are still in place: in unnumbered formats nothing else shows a rewrite."""
        before = self._before
        if before and segment.read(self._offset - len(before), len(before)) != before:
            raise DivergedError(self.path, f"was rewritten before offset {self._offset}")

    def _cross(self, segment: OpenSegment, size: int) -> bool:
        """Move to the next log segment, if one continues this one. Also True if this one grew beyond ``size``."""
        try:
            successor = self._open_successor(segment)
        except (SequenceGapError, TruncatedError) as error:
            if segment.size() != size or self._reopen_replaced(segment):
                return True
            self._require_clean_tail(error)
            raise
        if segment.size() != size:  # this segment grew while the others were listed: its bytes come first
            if successor is not None:
                successor.close()
            return True
        if successor is None:
            self._require_name(segment)
            return self._reopen_replaced(segment)
        try:
            if not self._format.self_numbered and self._reopen_replaced(segment):  # no number shows what came before
                successor.close()
                return True
            self._require_clean_tail(None)
        except BaseException:
            successor.close()
            raise
        self.place(successor, 0, self.expect)
        return True

    def _require_name(self, segment: OpenSegment) -> None:
        """Raise DivergedError if the current log segment is gone while an older one exists: truncation removes the
        oldest ones first."""
        name = segment.name
        if self._names.inode_of(name) is None and (older := self._names.before(name)):
            raise DivergedError(self.path, f"vanished, while {older[-1]} is there")

    def _reopen_replaced(self, segment: OpenSegment) -> bool:
        """Continue in the file that has the current segment's name now, if it is another file that begins the same. A
        file without a name gets no more commits."""
        if self._names.inode_of(segment.name) in (None, segment.inode):
            return False
        try:
            opened = self._names.open(segment.name)
        except FileNotFoundError:
            return False
        if not _begin_the_same(opened, segment, self._offset):
            opened.close()
            raise DivergedError(self.path, "was replaced by a file with other bytes")
        segment.close()
        self._segment = opened
        return True

    def _require_clean_tail(self, cause: Exception | None) -> None:
        """Now that a newer log segment exists, check that the rest of this one is not a commit in progress."""
        tail, allowed = self.tail, self._format.finished_tail
        is_damage = allowed is FinishedTail.ERROR or (allowed is FinishedTail.PREFIX and cause is not None)
        is_damage |= allowed is FinishedTail.SHIP and tail is not None and tail.damage is not None
        if tail is not None and tail.tail is not Tail.ZEROS and is_damage:
            raise self._corrupt(tail) from cause

    def _open_successor(self, current: OpenSegment) -> OpenSegment | None:
        """Open the next log segment that has a commit (or bytes, if any bytes are data) and continues ``current``."""
        listed = self._names.all()
        vanished = current.name not in listed
        for name in self._names.after(current.name):
            try:
                segment = self._names.open(name)
            except FileNotFoundError:
                vanished = True
                continue
            path = os.path.join(self._folder, name)
            try:
                piece = read_piece(self._format, path, segment, 0, self.expect)
            except SequenceGapError as error:
                segment.close()
                if current.name not in listed and error.actual > error.expected:
                    raise TruncatedError(error.expected, error.actual) from error
                raise
            except BaseException:
                segment.close()
                raise
            if piece is not None and (piece.end > 0 or self._format.finished_tail is FinishedTail.SHIP):
                if vanished and not self._format.self_numbered:
                    self._require_next(segment)
                return segment
            segment.close()  # left empty: its writer returns to it, or to the current one
        return None

    def _require_next(self, successor: OpenSegment) -> None:
        """Raise TruncatedError if log segments in between are gone. For records that do not carry their numbers."""
        expected = self.expect.sequence or 0
        first = self._numbering.truncated_to(expected) if self._numbering is not None else None
        if first is not None:
            successor.close()
            raise TruncatedError(expected, first)

    def _corrupt(self, piece: DecodedCommits) -> CorruptCommitError:
        damage = piece.damage
        if damage is None:
            return CorruptCommitError(self.path, self._offset, "commit", "whole", "cut off")
        return CorruptCommitError(self.path, damage.offset, damage.what, damage.expected, damage.actual)


def _begin_the_same(left: OpenSegment, right: OpenSegment, length: int) -> bool:
    """Whether both hold the same first ``length`` bytes. A CRC-32C does not show that: it is the same for all commits
    that end with their own."""
    offset = 0
    while offset < length:
        piece = left.read(offset, min(PIECE_BYTES, length - offset))
        if not piece or piece != right.read(offset, len(piece)):
            return False
        offset += len(piece)
    return True
