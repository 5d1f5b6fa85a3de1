"""The records of sealed segments, one log segment after the other: by ranged GETs, decompressed ahead in threads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, CorruptObjectError, LitelogError, NotFoundError
from litelog.formats import Expectation
from litelog.objects.position import generation
from litelog.objects.sealed_decoding import decode_run
from litelog.objects.sealed_segment import decode_footer, read_footer
from litelog.objects.snapshot_entries import check_entry
from litelog.reading.fetch import read_checked
from litelog.reading.prefetch import ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor

    from litelog.formats import LogFormat
    from litelog.formats.columns import Columns
    from litelog.objects.sealed_decoding import SealedRun
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.stores.replica_client import ReplicaClient

WHOLE_BYTES = 1 << 20
"""A sealed segment up to this size is read at once: a second request costs more than what one may not need."""

FETCH_BYTES = 4 << 20
"""How much of the log one ranged GET brings, uncompressed; more where a commit is larger."""

FOOTERS_AHEAD = 2
"""How many sealed segments are opened before their frames are asked for."""


class BrokenEntryError(LitelogError):
    """A sealed segment cannot be read on. ``cause``: what is wrong with it; NotFoundError where it is not there."""

    def __init__(self, entry: SnapshotEntry, cause: CorruptionError | NotFoundError) -> None:
        self.entry = entry
        self.cause = cause
        super().__init__(str(cause))


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """Bytes [start, end) of a log segment, checked: the records in them."""

    entry: SnapshotEntry
    start: int
    end: int
    columns: Columns
    shipped: int | None = None
    """When all of it was shipped, where that is known, microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class SealedStart:
    """Where to begin in the first sealed segment that is read."""

    offset: int = 0
    """There a commit starts, or nothing more comes."""
    choose: Callable[[SealedFooter], int] | None = None
    """The offset, told by the footer."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A sealed segment whose footer was read and is what the snapshot says."""

    entry: SnapshotEntry
    footer: SealedFooter
    body: bytes | None
    """All of it, where it is small."""
    start: int
    """Where the records begin that are wanted of it."""


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Some runs of a sealed segment, in order."""

    opened: _Opened
    runs: list[tuple[SealedRun, Columns]]


def read_sealed(
    client: ReplicaClient,
    executor: Executor,
    entries: Iterable[SnapshotEntry],
    log_format: LogFormat,
    start: SealedStart | None = None,
) -> Iterator[SealedBatch]:
    """The records of sealed segments, in order, a run of frames at a time; from ``start`` on in the first one.

    Every promise of the footer is checked, and that it is the one which the snapshot names: BrokenEntryError, with what
    is wrong, once all before it was given. Memory: AHEAD_BYTES of ``prefetch``, and as much compressed.
    """
    opened = ahead(executor, _openings(client, entries, start), most_jobs=FOOTERS_AHEAD)
    for fetched in ahead(executor, _fetches(client, opened, log_format)):
        entry, begin = fetched.opened.entry, fetched.opened.start
        for run, columns in fetched.runs:
            yield SealedBatch(entry, max(run.start, begin), run.start + len(run.data), columns)


def open_sealed(client: ReplicaClient, entry: SnapshotEntry) -> tuple[SealedFooter, bytes | None]:
    """A sealed segment's footer, and all its bytes where it is small: one GET, two for a long footer.

    CorruptObjectError, also where it is not the one that ``entry`` names; NotFoundError.
    """
    name = generation(entry.generation)

    def read(start: int, length: int) -> bytes:
        return client.read_sealed_segment(name, entry.sealed_index, start, length)

    def open_once(whole: bytes | None) -> tuple[SealedFooter, bytes | None]:
        if whole is None:
            footer = read_footer(entry.key, read, entry.size)
        elif len(whole) != entry.size:
            raise CorruptObjectError(entry.key, "bytes of the object", entry.size, len(whole))
        else:
            footer = decode_footer(entry.key, whole, entry.size)
        check_entry(entry, footer)
        return footer, whole

    return read_checked(lambda: read(0, entry.size) if entry.size <= WHOLE_BYTES else None, open_once)


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
    footer, body = open_sealed(client, entry)
    if start is None:
        return _Opened(entry, footer, body, 0)
    offset = start.offset if start.choose is None else start.choose(footer)
    if offset > footer.length:
        raise CorruptObjectError(entry.key, "length", f"{offset} or more", footer.length)
    return _Opened(entry, footer, body, offset)


def _fetches(
    client: ReplicaClient, openings: Iterable[_Opened], log_format: LogFormat
) -> Iterator[tuple[int, Callable[[], _Fetched]]]:
    """What to read of each, a few runs of frames at a time."""
    for opened in openings:
        frames = opened.footer.frames
        wanted = frames.runs(frames.for_offsets(opened.start, opened.footer.length))
        for runs in frames.groups(wanted, FETCH_BYTES):
            held = sum(frames.lengths[runs[0].start : runs[-1].stop])
            yield held, partial(_fetch, client, opened, runs, log_format)


def _fetch(client: ReplicaClient, opened: _Opened, runs: list[range], log_format: LogFormat) -> _Fetched:
    entry, footer, frames = opened.entry, opened.footer, opened.footer.frames
    first, stop = frames.starts[runs[0].start], frames[runs[-1].stop - 1].stop

    held = None if opened.body is None else memoryview(opened.body)[first:stop]

    def read() -> memoryview:
        name = generation(entry.generation)
        return memoryview(client.read_sealed_segment(name, entry.sealed_index, first, stop - first))

    def decode(body: memoryview) -> list[tuple[SealedRun, Columns]]:
        found = []
        for run in runs:
            part = body[frames.starts[run.start] - first : frames[run.stop - 1].stop - first]
            decoded = decode_run(entry.key, footer, run, part, log_format)
            found.append((decoded, _records(entry, footer, run, decoded, opened.start, log_format)))
        return found

    try:
        return _Fetched(opened, read_checked(read, decode, held))
    except (CorruptionError, NotFoundError) as error:
        raise BrokenEntryError(entry, error) from error


def _records(
    entry: SnapshotEntry, footer: SealedFooter, run: range, decoded: SealedRun, start: int, log_format: LogFormat
) -> Columns:
    """The records of a run, from ``start`` on where that lies in it: behind a commit."""
    data, offset, expect = decoded.data, decoded.start, Expectation(footer.frames.firsts[run.start])
    if start > offset:
        scan = log_format.scan(footer.path, data[: start - offset], offset, expect)
        if scan.end != start:
            raise CorruptObjectError(entry.key, "end of the commit to go on behind", start, scan.end)
        data, offset, expect = data[start - offset :], start, scan.expectation
    return log_format.decode(footer.path, data, offset, expect)
