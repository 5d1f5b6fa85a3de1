"""Lists log segments: of a replica, from its newest snapshot and later objects; of a log, from its folder."""

from __future__ import annotations

import os
from itertools import groupby
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, UnknownVersionError
from litelog.formats import Expectation, shown_lowest
from litelog_cli.listing import ratio

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.formats import LogFormat
    from litelog.log.source import OpenSegment
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.reading.contents import GenerationContents
    from litelog.reading.search import HeaderReader
    from litelog.stores.replica_client import ReplicaClient, WalSegmentInfo

PARALLELISM = 8
"""Concurrent requests."""

HEAD_BYTES = 64 << 10
"""How many bytes of a local log segment are read for its first commit."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """One log segment. Times are microseconds since 1970, lengths are bytes; None: unknown."""

    file: str
    stored: str
    """``sealed``; ``wal``; ``sealed+wal`` for a log segment that is sealed and final, but in no snapshot yet; or
    ``log`` for a local one."""
    log_bytes: int
    """Length of the log segment."""
    first: int | None
    next: int | None
    records: int | None
    finished: bool
    index: int | None = None
    generation: str | None = None
    """The generation that stores it, which may be an earlier one."""
    stored_bytes: int | None = None
    """Stored bytes."""
    ratio: float | None = None
    objects: int | None = None
    lowest_timestamp: int | None = None
    """The lowest timestamp of a record."""
    highest_timestamp: int | None = None
    first_shipped: int | None = None
    last_shipped: int | None = None


def replica_segments(client: ReplicaClient, claim: Claim) -> Iterator[SegmentFacts]:
    """Yield the log segments of a generation, in order.

    Those in the newest snapshot cost no further request. Each later one costs at most two headers, and a footer if it
    is sealed. Raises as ``list_pieces`` does; if there is a gap, raises it after all log segments before it.
    """
    from litelog.reading.contents import list_pieces

    pieces = list_pieces(client, claim)
    for entry in pieces.base.entries:
        yield _sealed(entry, "sealed", entry.size, 1)
    yield from _above(client, pieces)
    if pieces.gap is not None:
        raise pieces.gap


def _above(client: ReplicaClient, pieces: GenerationContents) -> Iterator[SegmentFacts]:
    from litelog.reading.search import HeaderReader

    start = pieces.base.start
    headers = HeaderReader(client, PARALLELISM)
    sealed = {info.index for info in client.sealed_segments(start.generation, start.index)}
    for index, group in groupby(pieces.wal, key=lambda info: info.position.index):
        infos = list(group)
        entry = _read_entry(client, start.generation, index) if index in sealed else None
        if entry is not None and _is_named(entry, infos, headers):
            yield _sealed(entry, "sealed+wal", entry.size + sum(info.size for info in infos), 1 + len(infos))
        else:
            yield from _shipped(infos, headers)


def _read_entry(client: ReplicaClient, name: Generation, index: int) -> SnapshotEntry | None:
    """The entry from the footer of a sealed segment; None if the footer is damaged or missing. WAL segments exist."""
    from litelog.reading.wal_cursor import read_entry

    try:
        return read_entry(client, name, index)
    except (CorruptObjectError, UnknownVersionError):
        return None


def _is_named(entry: SnapshotEntry, infos: Sequence[WalSegmentInfo], headers: HeaderReader) -> bool:
    """Whether the sealed segment belongs to the log: the ``final`` names it, or the next snapshot will.

    The next snapshot will name it if it holds the same bytes. Otherwise it is an orphan.
    """
    (last,) = headers([infos[-1].position])
    if not last.final:
        return False
    if last.sealed is not None:
        return last.sealed == entry.digest
    return (last.end, last.crc_total) == (entry.length, entry.crc)


def _sealed(entry: SnapshotEntry, stored: str, size: int, objects: int) -> SegmentFacts:
    return SegmentFacts(
        file=entry.file,
        stored=stored,
        log_bytes=entry.length,
        first=entry.first,
        next=entry.next,
        records=entry.records,
        finished=True,
        index=entry.index,
        generation=entry.generation,
        stored_bytes=size,
        ratio=ratio(entry.length, entry.size),
        objects=objects,
        lowest_timestamp=shown_lowest(entry.lowest),
        highest_timestamp=entry.highest,
        first_shipped=entry.shipped_first,
        last_shipped=entry.shipped_last,
    )


def _shipped(infos: Sequence[WalSegmentInfo], headers: HeaderReader) -> Iterator[SegmentFacts]:
    """A log segment that is in WAL segments.

    The number of records and the timestamps are known only if it has no more than two WAL segments: the first header
    and the last one show everything else.
    """
    first, last = headers([infos[0].position, infos[-1].position])
    if first.successor is not None:
        return
    if last.successor is not None:
        infos = infos[:-1]
        (last,) = headers([infos[-1].position])
    size = sum(info.size for info in infos)
    known = [first] if len(infos) == 1 else [first, last] if len(infos) == 2 else []
    stamps = [stamp for header in known for stamp in (header.lowest, header.highest) if stamp is not None]
    yield SegmentFacts(
        file=first.file,
        stored="wal",
        log_bytes=last.end,
        first=first.first,
        next=last.next,
        records=sum(header.records for header in known) if known else None,
        finished=last.final,
        index=first.index,
        generation=first.generation,
        stored_bytes=size,
        ratio=ratio(last.end, size),
        objects=len(infos),
        lowest_timestamp=shown_lowest(min(stamps, default=None)),
        highest_timestamp=max(stamps, default=None),
        first_shipped=first.shipped,
        last_shipped=last.shipped,
    )


def local_segments(folder: str, log_format: LogFormat) -> list[SegmentFacts]:
    """The log segments in a log's folder, in order. Raises SourceMissingError.

    If commits carry sequences, reads the first record of each log segment and the last record of the log.
    """
    from litelog.log.source import SegmentFolder
    from litelog.system.clock import SystemClock

    by_reader = log_format.self_numbered  # the reader of the last record reports which files are skipped
    names = SegmentFolder(folder, log_format, SystemClock(), reports=not by_reader)
    names.require_log()
    heads = [(segment.name, segment.size(), *_head(log_format, folder, segment)) for segment in names.each()]
    follows = _after_last(folder, log_format) if by_reader else None
    found = []
    for number, (name, size, first, stamp) in enumerate(reversed(heads)):
        facts = SegmentFacts(
            file=os.path.basename(name),
            stored="log",
            log_bytes=size,
            first=first,
            next=follows,
            records=None,
            finished=number > 0,
            lowest_timestamp=stamp,
        )
        found.append(facts)
        follows = follows if first is None else first
    return found[::-1]


def _head(log_format: LogFormat, folder: str, segment: OpenSegment) -> tuple[int | None, int | None]:
    """The first record's sequence and timestamp."""
    from litelog.log.cursor import read_piece

    if not log_format.self_numbered:
        return None, None
    path = os.path.join(folder, segment.name)
    piece = read_piece(log_format, path, segment, 0, Expectation(None), HEAD_BYTES)
    if piece is None or not len(piece.columns):
        return None, None
    stamps = piece.columns.timestamps
    return int(piece.columns.sequences[0]), None if stamps is None else int(stamps[0])


def _after_last(folder: str, log_format: LogFormat) -> int | None:
    from litelog.log.reader import LogReader

    with LogReader(folder, log_format, start="latest") as reader:
        batch = next(reader.batches(), None)
    return None if batch is None or not len(batch) else int(batch.sequences[-1]) + 1
