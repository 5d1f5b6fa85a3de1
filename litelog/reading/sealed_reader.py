"""Reads the records of sealed segments, one log segment after the other, by ranged GETs that run ahead.

If a sealed segment is damaged, or was removed in the meantime, its WAL segments are read instead, if they still exist.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

from litelog.codec.checksum import combine
from litelog.errors import (
    CorruptionError,
    CorruptObjectError,
    LitelogError,
    NotFoundError,
    PrunedError,
    ReplicaGapError,
)
from litelog.events import fields
from litelog.formats import Expectation
from litelog.objects import wal_segment
from litelog.objects.frame_table import frames_of
from litelog.objects.layout import wal_key
from litelog.objects.position import Position
from litelog.objects.sealed_decoding import decode_run
from litelog.objects.sealed_segment import decode_footer, read_footer
from litelog.objects.snapshot_entries import check_entry
from litelog.reading.contents import list_pieces
from litelog.reading.fetch import ordered_prefetch, read_verified
from litelog.reading.wal_chain import check_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor

    from litelog.formats import LogFormat
    from litelog.formats.columns import Columns
    from litelog.objects.sealed_decoding import DecodedRun
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalSegment
    from litelog.reading.contents import BaseSnapshot
    from litelog.stores.replica_client import ReplicaClient

_Decoded = TypeVar("_Decoded")

WHOLE_BYTES = 1 << 20
"""A sealed segment up to this size is read whole: a second request costs more than bytes that may not be needed."""

FETCH_BYTES = 4 << 20
"""Uncompressed bytes of the log that one ranged GET covers; more if a commit is larger."""

FOOTERS_AHEAD = 2
"""How many sealed segments are opened before their frames are needed."""


class BrokenEntryError(LitelogError):
    """A sealed segment cannot be read any further. ``cause`` is the damage, or NotFoundError if it is missing."""

    def __init__(self, entry: SnapshotEntry, cause: CorruptionError | NotFoundError) -> None:
        self.entry = entry
        self.cause = cause
        super().__init__(str(cause))


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """The records in bytes [start, end) of a log segment, checked."""

    entry: SnapshotEntry
    start: int
    end: int
    columns: Columns
    shipped: int | None = None
    """The time by which all of it was shipped, in microseconds since 1970; None if unknown."""


@dataclass(frozen=True, slots=True)
class SealedStart:
    """Where to begin in the first sealed segment to read."""

    offset: int = 0
    """An offset at which a commit starts, or all records end."""
    choose: Callable[[SealedFooter], int] | None = None
    """Finds the offset from the footer."""


@dataclass(frozen=True, slots=True)
class OpenedSealed:
    """A sealed segment whose footer was read, and is the one that a snapshot names."""

    client: ReplicaClient = field(repr=False)
    entry: SnapshotEntry
    footer: SealedFooter
    body: bytes | None = field(default=None, repr=False)
    """The whole object, if it is small."""

    def read(self, frames: range) -> memoryview:
        """Read consecutive frames as they lie in the object, with one GET. Raises NotFoundError."""
        stored = self.footer.frames.stored_range(frames)
        entry = self.entry
        return memoryview(
            self.client.read_sealed_segment(entry.generation, entry.sealed_index, stored.start, len(stored))
        )

    def held(self, frames: range) -> memoryview | None:
        """The bytes of consecutive frames, if they were read with the footer."""
        stored = self.footer.frames.stored_range(frames)
        return None if self.body is None else memoryview(self.body)[stored.start : stored.stop]

    def read_verified(
        self, frames: range, decode: Callable[[memoryview], _Decoded], held: memoryview | None = None
    ) -> _Decoded:
        """Return what ``decode`` makes of the bytes of consecutive frames. They are read again if it raises
        CorruptObjectError. ``held``: the bytes, if the caller has read them."""
        return read_verified(lambda: self.read(frames), decode, self.held(frames) if held is None else held)

    def read_run(self, run: range, log_format: LogFormat) -> DecodedRun:
        """Read a run of frames, and check it. Raises as ``decode_run``, and NotFoundError."""
        return self.read_verified(run, lambda body: decode_run(self.entry.key, self.footer, run, body, log_format))


@dataclass(frozen=True, slots=True)
class _Opened:
    """A sealed segment to read from an offset on."""

    sealed: OpenedSealed
    start: int
    """The offset of the first wanted record."""


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Some runs of a sealed segment, in order."""

    opened: _Opened
    runs: list[tuple[DecodedRun, Columns]]


def read_sealed(
    client: ReplicaClient,
    executor: Executor,
    entries: Iterable[SnapshotEntry],
    log_format: LogFormat,
    start: SealedStart | None = None,
) -> Iterator[SealedBatch]:
    """Yield the records of sealed segments, in order, one run of frames at a time; from ``start`` on in the first one.

    Checks every statement of the footer, and that the footer is the one that the snapshot names. On damage it raises
    BrokenEntryError after all records before it. Memory: AHEAD_BYTES of ``fetch``, and as much compressed.
    """
    opened = ordered_prefetch(executor, _openings(client, entries, start), most_jobs=FOOTERS_AHEAD)
    for fetched in ordered_prefetch(executor, _fetches(opened, log_format)):
        entry, begin = fetched.opened.sealed.entry, fetched.opened.start
        for run, columns in fetched.runs:
            yield SealedBatch(entry, max(run.start, begin), run.start + len(run.data), columns)


def open_sealed(client: ReplicaClient, entry: SnapshotEntry) -> OpenedSealed:
    """Read a sealed segment's footer, and all its bytes if it is small: one GET, or two for a long footer.

    Raises CorruptObjectError if it is damaged or is not the one that ``entry`` names, and NotFoundError.
    """
    name = entry.generation

    def read(start: int, length: int) -> bytes:
        return client.read_sealed_segment(name, entry.sealed_index, start, length)

    def open_once(whole: bytes | None) -> OpenedSealed:
        if whole is None:
            footer = read_footer(entry.key, read, entry.size)
        elif len(whole) != entry.size:
            raise CorruptObjectError(entry.key, "bytes of the object", entry.size, len(whole))
        else:
            footer = decode_footer(entry.key, whole, entry.size)
        check_entry(entry, footer)
        return OpenedSealed(client, entry, footer, whole)

    return read_verified(lambda: read(0, entry.size) if entry.size <= WHOLE_BYTES else None, open_once)


def _openings(
    client: ReplicaClient, entries: Iterable[SnapshotEntry], start: SealedStart | None
) -> Iterator[tuple[int, Callable[[], _Opened]]]:
    for entry in entries:
        yield min(entry.size, WHOLE_BYTES), partial(_open, client, entry, start)
        start = None


def _open(client: ReplicaClient, entry: SnapshotEntry, start: SealedStart | None) -> _Opened:
    try:
        return _open_at(client, entry, start)
    except (CorruptionError, NotFoundError) as error:
        raise BrokenEntryError(entry, error) from error


def _open_at(client: ReplicaClient, entry: SnapshotEntry, start: SealedStart | None) -> _Opened:
    sealed = open_sealed(client, entry)
    if start is None:
        return _Opened(sealed, 0)
    offset = start.offset if start.choose is None else start.choose(sealed.footer)
    if offset > sealed.footer.length:
        raise CorruptObjectError(entry.key, "length", f"{offset} or more", sealed.footer.length)
    return _Opened(sealed, offset)


def _fetches(openings: Iterable[_Opened], log_format: LogFormat) -> Iterator[tuple[int, Callable[[], _Fetched]]]:
    """The reads of each sealed segment, each of a few runs of frames."""
    for opened in openings:
        frames = opened.sealed.footer.frames
        wanted = frames.runs(frames.for_offsets(opened.start, opened.sealed.footer.length))
        for runs in frames.groups(wanted, FETCH_BYTES):
            yield len(frames.content_range(frames_of(runs))), partial(_fetch, opened, runs, log_format)


def _fetch(opened: _Opened, runs: list[range], log_format: LogFormat) -> _Fetched:
    sealed, whole = opened.sealed, frames_of(runs)
    entry, footer = sealed.entry, sealed.footer

    def decode(body: memoryview) -> list[tuple[DecodedRun, Columns]]:
        found = []
        for run in runs:
            decoded = decode_run(entry.key, footer, run, footer.frames.stored_part(body, whole, run), log_format)
            found.append((decoded, _records(entry, footer, run, decoded, opened.start, log_format)))
        return found

    try:
        return _Fetched(opened, sealed.read_verified(whole, decode))
    except (CorruptionError, NotFoundError) as error:
        raise BrokenEntryError(entry, error) from error


def _records(
    entry: SnapshotEntry, footer: SealedFooter, run: range, decoded: DecodedRun, start: int, log_format: LogFormat
) -> Columns:
    """The records of a run, from ``start`` on if that lies in it, which must be the end of a commit."""
    data, offset, expect = decoded.data, decoded.start, Expectation(footer.frames.firsts[run.start])
    if start > offset:
        scan = log_format.scan(footer.path, data[: start - offset], offset, expect)
        if scan.end != start:
            raise CorruptObjectError(entry.key, "end of the commit to continue after", start, scan.end)
        data, offset, expect = data[start - offset :], start, scan.expectation
    return log_format.decode(footer.path, data, offset, expect)


_logger = logging.getLogger(__name__)


def read_history(
    client: ReplicaClient,
    executor: Executor,
    base: BaseSnapshot,
    number: int,
    start: SealedStart,
    log_format: LogFormat,
) -> Iterator[SealedBatch]:
    """Yield the records of ``base.entries`` from entry number ``number`` on, ``start`` in it, as ``read_sealed`` does.

    A damaged sealed segment is replaced by its WAL segments, if they still exist. A missing one is looked up in the
    newest snapshot. No record is given twice. Raises PrunedError if retention removed it, the damage if no other
    object has its bytes, and ReplicaGapError if it is missing.
    """
    entries, stop = base.entries, base.start.index
    while number < len(entries):
        at = start.offset
        try:
            for batch in read_sealed(client, executor, entries[number:], log_format, start):
                number, at = batch.entry.index - base.first.index, batch.end
                yield batch
            return
        except BrokenEntryError as error:
            broken = error.entry.index - base.first.index
            number, at = broken, at if broken == number else 0
            damage: LitelogError = error.cause
        if isinstance(damage, NotFoundError):
            index, key = entries[number].index, entries[number].key
            base = _look_again(client, base, index, at)
            number, damage = index - base.first.index, ReplicaGapError(key)
            entries = base.entries[: stop - base.first.index]
            if entries[number].key != key:
                start = SealedStart(at)
                continue
        extra = fields("sealed-segment-damaged", replica=client.url)
        _logger.warning("%s: %s; reading its WAL segments", client.url, damage, extra=extra)
        yield from _read_unsealed(client, entries[number], at, log_format, damage)
        number, start = number + 1, SealedStart()


def _read_unsealed(
    client: ReplicaClient, entry: SnapshotEntry, offset: int, log_format: LogFormat, damage: LitelogError
) -> Iterator[SealedBatch]:
    try:
        yield from read_unsealed(client, entry, offset, log_format)
    except CorruptionError:
        raise damage from None


def _look_again(client: ReplicaClient, base: BaseSnapshot, index: int, offset: int) -> BaseSnapshot:
    """The current base, for a log segment whose sealed segment is gone; the old one if the newest snapshot cannot be
    read. Raises PrunedError if it does not name the log segment any more."""
    newest = list_pieces(client, base.claim).base
    if newest.first.index > index:
        raise PrunedError(str(Position(newest.start.generation, index, offset)))
    return newest if newest.start.index > index else base


def read_unsealed(
    client: ReplicaClient, entry: SnapshotEntry, offset: int, log_format: LogFormat
) -> Iterator[SealedBatch]:
    """Yield the records of the log segment that ``entry`` names from byte ``offset`` on, where a commit starts.

    Makes a listing, and a GET for each WAL segment. Checks the WAL segments against each other, and their total against
    the length and the CRC-32C that the entry states. Raises ReplicaGapError and CorruptObjectError.
    """
    place = Position(entry.generation, entry.sealed_index, 0)
    listed = client.wal_segments(place.generation, place)
    positions = [info.position for info in takewhile(lambda info: info.position.index == place.index, listed)]
    begin = max((number for number, at in enumerate(positions) if at.offset <= offset), default=None)
    if begin is None:
        raise ReplicaGapError(str(place), str(positions[0]) if positions else None)
    before: WalSegment | None = None
    for position in positions[begin:]:
        segment = _read(client, position)
        _check(entry, segment, before)
        before = segment
        if segment.header.end > offset:
            yield _decode(entry, segment, offset, log_format)
    assert before is not None
    last = before.header
    if (last.final, last.end, last.crc_total) != (True, entry.length, entry.crc):
        raise ReplicaGapError(str(Position(place.generation, place.index, last.end)))


def _read(client: ReplicaClient, position: Position) -> WalSegment:
    decode = partial(wal_segment.decode_checked, wal_key(position))
    try:
        return read_verified(partial(client.read_wal_segment, position), decode)
    except NotFoundError as error:
        raise ReplicaGapError(str(position)) from error


def _check(entry: SnapshotEntry, segment: WalSegment, before: WalSegment | None) -> None:
    header = segment.header
    facts: list[tuple[str, object, object]] = [("file", entry.file, header.file)]
    if before is not None:
        facts.append(("offset", before.header.end, header.offset))
        facts.append(("SHA-256 of the object before it", before.digest, header.previous))
    if before is not None or header.offset == 0:
        total = combine(before.header.crc_total if before is not None else 0, header.crc, header.length)
        facts.append(("CRC-32C up to its end", total, header.crc_total))
    for what, expected, actual in facts:
        if expected != actual:
            raise CorruptObjectError(segment.key, what, expected, actual)


def _decode(entry: SnapshotEntry, segment: WalSegment, offset: int, log_format: LogFormat) -> SealedBatch:
    header = segment.header
    data, start, expect = memoryview(segment.data()), header.offset, Expectation(header.first)
    check_run(header, segment.key, log_format.scan(header.path, data, start, expect), log_format)
    if start < offset:
        scan = log_format.scan(header.path, data[: offset - start], start, expect)
        if scan.end != offset:
            raise CorruptObjectError(segment.key, "end of the commit to continue after", offset, scan.end)
        data, start, expect = data[offset - start :], offset, scan.expectation
    columns = log_format.decode(header.path, data, start, expect)
    return SealedBatch(entry, start, header.end, columns, header.shipped)
