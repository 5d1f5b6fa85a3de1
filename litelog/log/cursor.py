"""LogCursor: a position in a log on disk, and the step to the next records, across log segments.

Each step reads a run of whole commits of one log segment as columns, with every check made once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.errors import CorruptCommitError, DivergedError, SequenceGapError, TruncatedError
from litelog.formats import MAX_COMMIT_BYTES, Damage, Expectation, FinishedTail, Tail
from litelog.formats.columns import Columns
from litelog.formats.litelog import LitelogFormat
from litelog.formats.litelog.commit_columns import Bodies
from litelog.formats.litelog.commit_walk import walk
from litelog.log.source_position import LEAST_CHECKED_BYTES

if TYPE_CHECKING:
    from litelog.formats import LogFormat
    from litelog.log.sequence_base import Numbering
    from litelog.log.source import OpenSegment, SegmentNames

PIECE_BYTES = 1 << 20
"""How much is read at a time where the next is somewhere else: a reader that was just placed, for one."""

LARGE_PIECE_BYTES = 4 << 20
"""How much where all is read, one behind the other: what a piece costs, however small, is spread over more records, for
half as much again each second; measured."""

MAX_READ_BYTES = MAX_COMMIT_BYTES + (4 << 20)
"""The most that is read at a time: any commit fits, and enough behind a damaged one to judge it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The run of whole commits at the front of what was read; no records if there is none. Offsets as in Scan."""

    columns: Columns
    end: int
    expect: Expectation
    """What must follow."""
    tail: Tail
    damage: Damage | None
    wanted: int
    read_bytes: int


def decode_piece(log_format: LogFormat, path: str, data: memoryview, offset: int, expect: Expectation) -> Piece:
    """The records in ``data``, as ``LogFormat.scan`` and ``LogFormat.decode`` have them. Raises what they raise."""
    if offset == 0 or not isinstance(log_format, LitelogFormat):
        scan = log_format.scan(path, data, offset, expect)
        columns = log_format.decode(path, data, offset, expect)
        return Piece(columns, scan.end, scan.expectation, scan.tail, scan.damage, scan.wanted, len(data))
    # Asking our own format twice would check every byte twice, which costs a quarter of all reading.
    found = walk(path, data, offset, 0, expect)
    columns = Columns.empty(data, has_timestamps=True)
    if found.positions:
        first = int.from_bytes(data[found.positions[0] : found.positions[0] + 8], "little")
        columns = Bodies.check(path, data, offset, found.positions).columns(first)
    follows = Expectation(found.next, found.epoch)
    return Piece(columns, offset + found.end, follows, found.tail, found.damage, found.wanted, len(data))


def read_piece(
    log_format: LogFormat, path: str, segment: OpenSegment, offset: int, expect: Expectation, limit: int = PIECE_BYTES
) -> Piece | None:
    """The next piece of about ``limit`` bytes, or of one commit that is larger; None if nothing lies at ``offset``.

    Before a bad commit it ends. Raises what ``LogFormat.scan`` raises where that is the first one.
    """
    size = segment.size()
    if size <= offset:
        return None
    length = min(limit, size - offset)
    while True:
        data = memoryview(segment.read(offset, length))
        try:
            piece = decode_piece(log_format, path, data, offset, expect)
        except (CorruptCommitError, SequenceGapError) as error:
            good = data[: max(0, error.offset - offset)]
            piece = decode_piece(log_format, path, good, offset, expect)
            if piece.end == offset:
                raise
            return piece  # the bad one is told when it is its turn
        longer = min(size - offset, max(2 * length, piece.wanted), MAX_READ_BYTES)
        if piece.end > offset or piece.tail is Tail.ZEROS or longer <= length:
            return piece
        length = longer


class LogCursor:
    """Moves forward only. One thread at a time. A log segment stays readable while it is open, even if deleted."""

    def __init__(
        self, folder: str, log_format: LogFormat, names: SegmentNames, numbering: Numbering | None = None
    ) -> None:
        """``numbering``: of the records, where they do not carry their numbers."""
        self._folder = folder
        self._numbering = numbering
        self._format = log_format
        self._names = names
        self._segment: OpenSegment | None = None
        self._offset = 0
        self._before = b""
        self.expect = Expectation()
        """What comes next."""
        self.read_from = 0
        """Where in the log segment at hand the last records were read from: the offset of their ``data``."""
        self.tail: Piece | None = None
        """What lay behind the last whole commit when there was no other; None while there are."""

    @property
    def placed(self) -> bool:
        """Whether there is a log segment to read from."""
        return self._segment is not None

    @property
    def path(self) -> str:
        """The log segment at hand."""
        assert self._segment is not None
        return os.path.join(self._folder, self._segment.name)

    def place(self, segment: OpenSegment, offset: int, expect: Expectation) -> None:
        """Go to ``offset`` of ``segment``, which belongs to the cursor from here on."""
        self.close()
        self._segment, self._offset, self.expect = segment, offset, expect
        self._before = b""

    def close(self) -> None:
        """Let go of the log segment."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def next_records(self, limit: int = PIECE_BYTES) -> Columns | None:
        """The next records, from about ``limit`` bytes; None if there are none now.

        Raises CorruptCommitError, SequenceGapError, TruncatedError, DivergedError (the file became shorter,
        was rewritten, or is another one).
        """
        while self._segment is not None:
            size = self._segment.size()
            if size < self._offset:
                raise DivergedError(self.path, f"was cut from {self._offset} bytes to {size}")
            piece = read_piece(self._format, self.path, self._segment, self._offset, self.expect, limit)
            self._check_before()
            if piece is not None and piece.end > self._offset:
                self.read_from = self._offset
                if not self._format.self_numbered:
                    start = max(self._offset, piece.end - LEAST_CHECKED_BYTES)
                    self._before = self._segment.read(start, piece.end - start)
                self._offset, self.expect, self.tail = piece.end, piece.expect, None
                return piece.columns
            self.tail = piece
            if piece is not None and piece.read_bytes >= MAX_READ_BYTES and piece.tail is not Tail.ZEROS:
                raise self._corrupt(piece)  # no commit is so large
            if not self._cross(size):
                return None
        return None

    def _check_before(self) -> None:
        """That what was read last is still there, where no number tells that another text goes on at this offset."""
        assert self._segment is not None
        before = self._before
        if before and self._segment.read(self._offset - len(before), len(before)) != before:
            raise DivergedError(self.path, f"was rewritten before offset {self._offset}")

    def _cross(self, size: int) -> bool:
        """Go on to the next log segment, if one continues. True too if this one grew beyond ``size`` meanwhile."""
        assert self._segment is not None
        try:
            successor = self._open_successor()
        except (SequenceGapError, TruncatedError) as error:
            if self._segment.size() != size or self._reopen_replaced():
                return True
            self._require_clean_tail(error)
            raise
        if self._segment.size() != size:  # what was written to it while the others were listed comes first
            if successor is not None:
                successor.close()
            return True
        if successor is None:
            self._require_name()
            return self._reopen_replaced()
        try:
            if not self._format.self_numbered and self._reopen_replaced():  # no number tells that more came before
                successor.close()
                return True
            self._require_clean_tail(None)
        except BaseException:
            successor.close()
            raise
        self.place(successor, 0, self.expect)
        return True

    def _require_name(self) -> None:
        """Raise DivergedError if the log segment at hand is gone while an older one is there: logs lose their oldest
        ones first."""
        assert self._segment is not None
        name = self._segment.name
        if self._names.inode_of(name) is None and (older := self._names.before(name)):
            raise DivergedError(self.path, f"vanished, while {older[-1]} is there")

    def _reopen_replaced(self) -> bool:
        """Go on in the file that has the name of the one at hand by now, if there is another and it begins the same:
        of a file that has no name any more nothing will ever come."""
        assert self._segment is not None
        name = self._segment.name
        if self._names.inode_of(name) in (None, self._segment.inode):
            return False
        try:
            segment = self._names.open(name)
        except FileNotFoundError:
            return False
        if not _begin_the_same(segment, self._segment, self._offset):
            segment.close()
            raise DivergedError(self.path, "was replaced by a file with other bytes")
        self._segment.close()
        self._segment = segment
        return True

    def _require_clean_tail(self, cause: Exception | None) -> None:
        """Now that a newer log segment is there: what is left in this one is no commit on its way."""
        tail = self.tail
        if tail is not None and tail.tail is not Tail.ZEROS and self._format.finished_tail is FinishedTail.ERROR:
            raise self._corrupt(tail) from cause

    def _open_successor(self) -> OpenSegment | None:
        """The next log segment that holds a commit (or bytes, where any are data), if it continues this one."""
        assert self._segment is not None
        listed = self._names.all()
        vanished = self._segment.name not in listed
        for name in self._names.after(self._segment.name):
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
                if self._segment.name not in listed and error.actual > error.expected:
                    raise TruncatedError(error.expected, error.actual) from error
                raise
            except BaseException:
                segment.close()
                raise
            if piece is not None and (piece.end > 0 or self._format.finished_tail is FinishedTail.SHIP):
                if vanished and not self._format.self_numbered:
                    self._require_next(segment)
                return segment
            segment.close()  # left empty: its writer comes back to it, or to this one
        return None

    def _require_next(self, successor: OpenSegment) -> None:
        """Raise TruncatedError if what lay between is gone, of records that do not tell their numbers."""
        expected = self.expect.sequence or 0
        first = self._numbering.truncated_to(expected) if self._numbering is not None else None
        if first is not None:
            successor.close()
            raise TruncatedError(expected, first)

    def _corrupt(self, piece: Piece) -> CorruptCommitError:
        damage = piece.damage
        if damage is None:
            return CorruptCommitError(self.path, self._offset, "commit", "whole", "cut off")
        return CorruptCommitError(self.path, damage.offset, damage.what, damage.expected, damage.actual)


def _begin_the_same(one: OpenSegment, two: OpenSegment, length: int) -> bool:
    """Whether both hold the same first ``length`` bytes; CRC-32C could not tell commits that end with their own."""
    offset = 0
    while offset < length:
        piece = one.read(offset, min(PIECE_BYTES, length - offset))
        if not piece or piece != two.read(offset, len(piece)):
            return False
        offset += len(piece)
    return True
