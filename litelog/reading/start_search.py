"""Finds where to begin in a generation: at a sequence, a time, or the place where another generation ended.

Specified in litelog/reading/README.md#where-to-begin.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import PrunedError, TruncatedError
from litelog.reading.sealed_reader import SealedStart
from litelog.reading.search import HeaderReader, first_reaching, first_shipped, first_stamped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.formats import LogFormat
    from litelog.formats.columns import Columns
    from litelog.objects.position import Position
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.reading.contents import GenerationContents
    from litelog.stores.replica_client import ReplicaClient

PARALLELISM = 8
"""Concurrent requests for headers."""

_LATEST = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class StartRequest:
    """The requested start of a reader. If all fields are None: the first record."""

    place: Position | None = None
    """Start with the bytes after this position."""
    sequence: int | None = None
    """Start with the first record of this sequence or a higher one."""
    time: int | None = None
    """Start with the first record stamped (without timestamps: shipped) then or later; microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class FoundStart:
    """The start in the contents of a generation."""

    entry: int | None
    """The number of the first sealed segment to read, in ``base.entries``; None for none."""
    sealed: SealedStart
    """The start in it."""
    wal: int
    """The number of the first WAL segment to read, in ``wal``, if no sealed segment is read."""


class StartFilter:
    """Drops the records before the start. Once it has found the start, it drops nothing more."""

    def __init__(self, sequence: int | None, time: int | None) -> None:
        self.sequence = sequence
        self.time = time

    def cut(self, columns: Columns, shipped: int | None) -> Columns:
        """Return the records from the start on. ``shipped``: when they were shipped; None takes all of them."""
        found = 0
        if self.sequence is not None:
            found = columns.find(self.sequence)
        elif self.time is not None and columns.timestamps is not None:
            found = columns.find_time(self.time)
        elif self.time is not None and shipped is not None and shipped < self.time:
            found = len(columns)
        if found < len(columns):
            self.sequence = self.time = None
        return columns.slice(found, len(columns)) if found else columns


def find_start(
    client: ReplicaClient, pieces: GenerationContents, wanted: StartRequest, log_format: LogFormat
) -> FoundStart:
    """Find where to begin, possibly a little early.

    Makes no request if a sealed segment holds the start, and ranged GETs of headers if a WAL segment does. Raises
    TruncatedError for a sequence before the first one if records may have been removed there, and PrunedError for a
    place before the first log segment.
    """
    if wanted.place is not None:
        return _at_place(pieces, wanted.place)
    positions = [piece.position for piece in pieces.wal]
    headers = HeaderReader(client, PARALLELISM)
    if wanted.sequence is not None:
        return _at_sequence(pieces, positions, headers, wanted.sequence, log_format)
    if wanted.time is None:
        return _at_beginning(pieces)
    return _at_time(pieces, positions, headers, wanted.time, log_format)


def _at_sequence(
    pieces: GenerationContents,
    positions: Sequence[Position],
    headers: HeaderReader,
    sequence: int,
    log_format: LogFormat,
) -> FoundStart:
    entries = pieces.base.entries
    first = next((entry.first for entry in entries if entry.first is not None), None)
    if first is not None and sequence < first:
        return _at_first_record(pieces, sequence, first, log_format)
    number = _first_entry(entries, lambda entry: entry.records > 0 and (entry.next or 0) > sequence)
    if number is not None:
        return FoundStart(number, SealedStart(choose=partial(_run_of_sequence, sequence)), 0)
    at = first_reaching(positions, headers, sequence)
    held = headers(positions[:1])[0].first if at == 0 and positions and first is None else None
    if held is not None and sequence < held:
        return _at_first_record(pieces, sequence, held, log_format)
    return _in_wal(positions, at)


def _at_beginning(pieces: GenerationContents) -> FoundStart:
    return FoundStart(0 if pieces.base.entries else None, SealedStart(), 0)


def _at_first_record(pieces: GenerationContents, sequence: int, first: int, log_format: LogFormat) -> FoundStart:
    """The beginning, for a sequence before the first one, ``first``: an error if records may have been removed."""
    if pieces.base.was_truncated(log_format):
        raise TruncatedError(sequence, first)
    return _at_beginning(pieces)


def _at_time(
    pieces: GenerationContents, positions: Sequence[Position], headers: HeaderReader, time: int, log_format: LogFormat
) -> FoundStart:
    entries = pieces.base.entries
    if log_format.has_timestamps:
        number = _first_entry(entries, lambda entry: entry.highest is not None and entry.highest >= time)
        choose = partial(_run_of_time, time)
    else:
        number = _first_entry(entries, lambda entry: entry.shipped_last >= time)
        choose = partial(_shipped_by, time)
    if number is not None:
        return FoundStart(number, SealedStart(choose=choose), 0)
    search = first_stamped if log_format.has_timestamps else first_shipped
    return _in_wal(positions, search(positions, partial(_read_headers, headers), time))


def _read_headers(headers: HeaderReader, positions: Sequence[Position]) -> list[WalHeader]:
    """Read headers. A header that stands for a sealed segment does not state timestamps, so it gets the latest
    possible one."""
    return [replace(header, highest=_LATEST) if header.sealed else header for header in headers(positions)]


def _at_place(pieces: GenerationContents, place: Position) -> FoundStart:
    base = pieces.base
    if place.index < base.first.index:
        raise PrunedError(str(place))
    if place.index < base.start.index:
        return FoundStart(place.index - base.first.index, SealedStart(place.offset), 0)
    positions = [piece.position for piece in pieces.wal]
    return _in_wal(positions, bisect_right(positions, place) - 1)


def _in_wal(positions: Sequence[Position], number: int) -> FoundStart:
    """Begin at the WAL segment of that number, or at the last one if the place lies after all of them."""
    return FoundStart(None, SealedStart(), max(0, min(number, len(positions) - 1)))


def _first_entry(entries: Sequence[SnapshotEntry], holds: Callable[[SnapshotEntry], bool]) -> int | None:
    return next((number for number, entry in enumerate(entries) if holds(entry)), None)


def _run_of_sequence(sequence: int, footer: SealedFooter) -> int:
    frames = footer.frames
    return frames.offsets[frames.run_of(frames.at_sequence(sequence)).start]


def _run_of_time(time: int, footer: SealedFooter) -> int:
    runs = footer.frames.for_timestamps(time, _LATEST)
    return footer.frames.offsets[runs[0].start] if runs else footer.length


def _shipped_by(time: int, footer: SealedFooter) -> int:
    return footer.marks.offset_at(time - 1)
