"""Reads what objects state of their records, in snapshots, footers and headers, without the log itself."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from litelog.formats.capabilities import has_markers
from litelog.reading.search import HeaderReader
from litelog.reading.wal_cursor import describe
from litelog.spark.options import Mode
from litelog.spark.scan.partitions import SealedPiece, WalPiece
from litelog.spark.scan.task import open_client, open_log_format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.objects.position import Position
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.spark.scan.partitions import LogPart, Piece, PlannedLog

MOST_HEADERS = 4096
"""The most WAL segments whose headers are read, with a ranged GET each. If there are more, tasks read the log."""

PARALLELISM = 16


def stated_facts(part: LogPart) -> list[list[int] | None]:
    """The facts that each object of a part states of its records: first sequence, next, how many, and their times.

    None for an object that does not say all of this. Objects without records are left out.
    """
    headers = sum(len(piece) for piece in part.pieces if isinstance(piece, WalPiece))
    if headers > MOST_HEADERS or not states_rows(part.log) or part.log.mode is not Mode.FAILFAST:
        return [None]
    facts: list[list[int] | None] = []
    for piece in part.pieces:
        for held in _held(part, piece):
            numbers = [held.first, held.next, held.records, held.lowest, held.highest]
            known = [number for number in numbers if number is not None]
            if held.records:
                facts.append(known if len(known) == len(numbers) else None)
    return facts


def states_rows(log: PlannedLog) -> bool:
    """Whether objects state the number of rows: not if sequences count bytes, or if commits hold more than rows."""
    return log.claim is not None and not log.divisible and not has_markers(open_log_format(log.format, log.pattern))


def read_headers(part: LogPart, piece: WalPiece) -> Iterator[tuple[Position, SnapshotEntry | WalHeader]]:
    """The position of each WAL segment, and what is known of its records."""
    client = open_client(part.log.url, part.log.store, threading.Event())
    for header in HeaderReader(client, PARALLELISM)([info.position for info in piece.infos(part.log.generation)]):
        yield header.position, describe(client, header)


def _held(part: LogPart, piece: Piece) -> Iterator[SnapshotEntry | WalHeader]:
    if isinstance(piece, SealedPiece):
        yield piece.entry
    elif isinstance(piece, WalPiece):
        yield from (held for _, held in read_headers(part, piece))
