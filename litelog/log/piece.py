"""A piece of a log segment: its whole commits as columns, with every check made once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.errors import CorruptCommitError, SequenceGapError
from litelog.formats import MAX_COMMIT_BYTES, Damage, Expectation, Tail
from litelog.formats.columns import Columns
from litelog.formats.litelog import LitelogFormat
from litelog.formats.litelog.commit_columns import Bodies
from litelog.formats.litelog.commit_walk import walk

if TYPE_CHECKING:
    from litelog.formats import LogFormat
    from litelog.log.source import OpenSegment

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
