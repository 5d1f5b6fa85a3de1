"""The records of a sealed segment in a format that has none of its own: the runs in which its bytes were shipped."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from litelog.objects.wal_segment import MAX_LENGTH_BYTES
from litelog.reading.sealed_reader import FETCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.objects.sealed_segment import SealedFooter
    from litelog.spark.options import Range
    from litelog.spark.scan.partitions import SealedPiece


def row_starts(footer: SealedFooter) -> tuple[int, ...]:
    """Where the runs begin, bytes of the log segment: behind each mark; MAX_LENGTH_BYTES apart at most, which is what
    one WAL segment carries, where marks were lost or there never were any."""
    return _row_starts(footer.marks.offsets)


@lru_cache(maxsize=2)
def _row_starts(ends: tuple[int, ...]) -> tuple[int, ...]:
    starts: list[int] = []
    at = 0
    for end in ends:
        starts += range(at, end, MAX_LENGTH_BYTES)
        at = end
    return tuple(starts)


def shipped_parts(piece: SealedPiece, footer: SealedFooter, wanted: Range) -> Iterator[tuple[SealedPiece, list[range]]]:
    """The parts of a piece, a few runs each, and the frames that hold them: those that begin in the piece, or, where it
    is ``exact``, its bytes. A frame may lie in two parts."""
    bounds = (*row_starts(footer), footer.length)
    first, stop = bisect_left(bounds, piece.start), bisect_left(bounds, piece.stop)
    places = list(bounds[first : stop + 1])
    if piece.exact:
        places = [piece.start, *(place for place in places if piece.start < place < piece.stop), piece.stop]
    at = 0
    while at < len(places) - 1:
        behind = max(at + 1, bisect_left(places, places[at] + FETCH_BYTES, at + 1) - 1)
        behind = min(behind, len(places) - 1)
        part = replace(piece, start=places[at], stop=places[behind], exact=True)
        at = behind
        if wanted.overlaps((footer.first or 0) + part.start, (footer.first or 0) + part.stop):
            yield part, list(footer.frames.runs(footer.frames.for_offsets(part.start, part.stop)))
