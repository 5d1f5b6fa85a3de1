"""Reads sealed segments: the frames of one, by ranged GETs, or the records of many, by ranged GETs that run ahead.

``wal_fallback`` takes over if a sealed segment is damaged, or was deleted meanwhile.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from litelog.dataclass import dataclass
from litelog.errors import (
    CorruptionError,
    CorruptObjectError,
    LitelogError,
    NotEnoughMemoryError,
    NotFoundError,
    StoreError,
)
from litelog.formats import Expectation
from litelog.objects.frame_table import frames_of
from litelog.objects.layout import sealed_key
from litelog.objects.sealed_decoding import decode_run, decode_runs
from litelog.objects.sealed_segment import decode_footer, read_footer
from litelog.objects.snapshot_entries import check_entry
from litelog.reading.fetch import ordered_prefetch, read_verified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor

    from litelog.formats import LogFormat
    from litelog.formats.columns import Columns
    from litelog.objects.sealed_decoding import DecodedRun
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.stores.replica_client import IndexedInfo, ReplicaClient

_Decoded = TypeVar("_Decoded")

WHOLE_BYTES = 1 << 20
"""A sealed segment of up to this many bytes is read whole: a second request costs more than the bytes."""

FETCH_BYTES = 4 << 20
"""Uncompressed bytes of the log that one ranged GET reads; more if a commit is larger."""

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
    """The start in the first sealed segment to read."""

    offset: int = 0
    """An offset at which a commit starts, or all records end."""
    choose: Callable[[SealedFooter], int] | None = None
    """Finds the offset from the footer."""


@dataclass(frozen=True, slots=True)
class OpenedSealed:
    """A sealed segment whose footer was read, and matches the snapshot's entry."""

    client: ReplicaClient = field(repr=False)
    entry: SnapshotEntry
    footer: SealedFooter
    body: bytes | None = field(default=None, repr=False)
    """The whole object, if it is small."""

    def read(self, frames: range) -> memoryview:
        """Read consecutive frames as the object stores them, with one GET. Raises NotFoundError."""
        stored = self.footer.frames.stored_range(frames)
        entry = self.entry
        return memoryview(
            self.client.read_sealed_segment(entry.generation, entry.sealed_index, stored.start, len(stored))
        )

    def held(self, frames: range) -> memoryview | None:
        """The bytes of consecutive frames, if they were read with the footer; None otherwise."""
        stored = self.footer.frames.stored_range(frames)
        return None if self.body is None else memoryview(self.body)[stored.start : stored.stop]

    def read_verified(
        self, frames: range, decode: Callable[[memoryview], _Decoded], held: memoryview | None = None
    ) -> _Decoded:
        """Read consecutive frames, and return the result of ``decode`` for their bytes. Reads them again if it raises
        CorruptObjectError. ``held``: the bytes, if the caller has read them."""
        return read_verified(lambda: self.read(frames), decode, self.held(frames) if held is None else held)

    def receive(self, runs: Sequence[range]) -> Iterator[tuple[range, memoryview]]:
        """Read runs of frames that lie back to back with one GET, and yield each with its bytes as they come. Fewer
        bytes if the object ends early. Raises NotFoundError and StoreError."""
        if not runs or self.body is not None:
            yield from ((run, self.held(run) or memoryview(b"")) for run in runs)
            return
        entry, stored = self.entry, self.footer.frames.stored_range(frames_of(runs))
        with self.client.open_sealed_segment(entry.generation, entry.sealed_index, stored.start, len(stored)) as stream:
            for run in runs:
                try:
                    body = stream.read(len(self.footer.frames.stored_range(run)))
                except OSError as error:
                    raise StoreError("read", entry.key, str(error)) from error
                except MemoryError as error:
                    raise NotEnoughMemoryError(entry.key) from error
                yield run, memoryview(body)

    def read_run(self, run: range, log_format: LogFormat, held: memoryview | None = None) -> DecodedRun:
        """Read a run of frames, and check it. ``held``: its bytes, if the caller has read them. Raises as
        ``decode_run``, and NotFoundError."""

        def decode(body: memoryview) -> DecodedRun:
            return decode_run(self.entry.key, self.footer, run, body, log_format)

        return self.read_verified(run, decode, held)

    def read_runs(self, runs: Sequence[range], log_format: LogFormat) -> memoryview:
        """Read runs of frames that lie back to back with one GET, and return their bytes, checked, in one buffer.
        Raises as ``read_run``."""

        def decode(body: memoryview) -> memoryview:
            return decode_runs(self.entry.key, self.footer, runs, body, log_format)

        return self.read_verified(frames_of(runs), decode)


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

    Checks the contents against the footer, and the footer against the snapshot's entry. Raises BrokenEntryError for
    damage, after all records before it. Memory: AHEAD_BYTES of ``fetch``, and as much compressed.
    """
    opened = ordered_prefetch(executor, _openings(client, entries, start), most_jobs=FOOTERS_AHEAD)
    for fetched in ordered_prefetch(executor, _fetches(opened, log_format)):
        entry, begin = fetched.opened.sealed.entry, fetched.opened.start
        for run, columns in fetched.runs:
            yield SealedBatch(entry, max(run.start, begin), run.start + len(run.data), columns)


def open_sealed(client: ReplicaClient, entry: SnapshotEntry) -> OpenedSealed:
    """Read a sealed segment's footer, and all its bytes if it is small: one GET, or two for a long footer.

    Raises CorruptObjectError if it is damaged or does not match ``entry``, and NotFoundError.
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


def read_listed_footer(client: ReplicaClient, info: IndexedInfo) -> SealedFooter:
    """Read the footer of a sealed segment that no snapshot describes yet: one GET, or two for a long footer.

    Raises CorruptObjectError, UnknownVersionError and NotFoundError.
    """
    key = sealed_key(info.generation, info.index)
    read = partial(client.read_sealed_segment, info.generation, info.index)
    return read_verified(lambda: None, lambda _: read_footer(key, read, info.size))


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
    """Yield the reads of each sealed segment, each of a few runs of frames."""
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
    """The records of a run; from ``start`` on, if ``start`` lies in the run. A commit must end there."""
    data, offset, expect = decoded.data, decoded.start, Expectation(footer.frames.firsts[run.start])
    if start > offset:
        scan = log_format.scan(footer.path, data[: start - offset], offset, expect)
        if scan.end != start:
            raise CorruptObjectError(entry.key, "end of the commit to continue after", start, scan.end)
        data, offset, expect = data[start - offset :], start, scan.expectation
    return log_format.decode(footer.path, data, offset, expect)
