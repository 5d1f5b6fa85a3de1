"""Counts the records of a log from snapshots and the headers of WAL segments, without reading the log itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.spark.options import Mode
from litelog.spark.scan.partitions import SealedPiece, WalPiece
from litelog.spark.scan.planning import plan
from litelog.spark.scan.stated_facts import MOST_HEADERS, read_headers, states_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.spark.options import ReadOptions
    from litelog.spark.scan.partitions import LogPart, Piece


def count_records(options: ReadOptions) -> int | None:
    """The number of records, as their writers recorded it; None if the log must be read to count them.

    The log must be read in these cases: records are selected by time; records are selected by sequence, and an object
    with some unwanted records is not dense; malformed data counts; the log is in a local folder; sequences count bytes,
    so that records depend on the WAL segments, and snapshots do not state their number; commits hold more than rows, as
    Kafka's markers of transactions. Raises the errors of ``planning.plan``.
    """
    if options.mode is not Mode.FAILFAST or options.range.has_times:
        return None
    parts = [part for partition in plan(options).partitions for part in partition.parts]
    if any(not states_rows(part.log) or part.log.range.has_times for part in parts):
        return None
    headers = sum(len(piece) for part in parts for piece in part.pieces if isinstance(piece, WalPiece))
    if headers > MOST_HEADERS:
        return None
    counts: dict[tuple[str, str], int | None] = {}
    for part in parts:
        for piece in part.pieces:
            for key, first, following, records in _stated(part, piece):
                counts[part.log.name, key] = _within(part, first, following, records)
    known = [count for count in counts.values() if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _stated(part: LogPart, piece: Piece) -> Iterator[tuple[str, int | None, int | None, int]]:
    """(key, first sequence, next sequence, number of records) of each object of a piece."""
    if isinstance(piece, SealedPiece):
        entry = piece.entry
        yield entry.key, entry.first, entry.next, entry.records
    elif isinstance(piece, WalPiece):
        for position, held in read_headers(part, piece):
            yield str(position), held.first, held.next, held.records


def _within(part: LogPart, first: int | None, following: int | None, records: int) -> int | None:
    """How many of ``records`` are wanted, given that their sequences lie in [first, following).

    None if that is not known.
    """
    bounds = part.log.range
    if not records or not bounds.has_bounds:
        return records
    if first is None or following is None:
        return None
    start, stop = max(first, bounds.first or 0), following if bounds.stop is None else min(following, bounds.stop)
    if (start, stop) == (first, following):
        return records
    if stop <= start:
        return 0
    return stop - start if following - first == records else None
