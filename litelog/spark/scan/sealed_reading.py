"""Reads the sealed segments of a task: threads read and decompress ahead, and check the data against the footers.

If a sealed segment is damaged, or was removed after planning, the task tries other objects of the replica first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from litelog.codec.checksum import combine
from litelog.dataclass import dataclass
from litelog.errors import (
    CorruptionError,
    CorruptObjectError,
    LitelogError,
    NotFoundError,
    SequenceGapError,
)
from litelog.formats import Expectation
from litelog.formats.capabilities import scan_columns, scan_commits
from litelog.objects.frame_table import frames_of
from litelog.objects.sealed_decoding import check_scan, decode_frames
from litelog.reading.fetch import GrowingRoom, ordered_prefetch
from litelog.reading.sealed_reader import FETCH_BYTES, WHOLE_BYTES, open_sealed
from litelog.spark.scan.damaged import read_fallback, salvage
from litelog.spark.scan.record_runs import (
    Malformed,
    RecordRun,
    SegmentCommits,
    cut_offsets,
    join,
    row_starts,
    shipped_parts,
)
from litelog.spark.scan.task import AHEAD_BYTES, JOBS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from litelog.formats import LogFormat
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.reading.sealed_reader import OpenedSealed
    from litelog.spark.options import Range
    from litelog.spark.scan.partitions import SealedPiece
    from litelog.spark.scan.task import Task
    from litelog.stores.replica_client import ReplicaClient


MANY_RECORDS = 64
"""From this mean number of records per commit on, commits are passed on without decoding."""

_Decode = Callable[..., "list[RecordRun | SegmentCommits | _Broken]"]


@dataclass(frozen=True, slots=True)
class _Unread:
    """A piece whose footer cannot be read."""

    piece: SealedPiece
    error: LitelogError


@dataclass(frozen=True, slots=True)
class _Opened:
    """A piece with its footer, checked against the snapshot."""

    piece: SealedPiece
    sealed: OpenedSealed

    @property
    def footer(self) -> SealedFooter:
        return self.sealed.footer


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Bytes that were read, and the function that decodes them."""

    held: int
    """Decompressed size in bytes."""
    decode: Callable[[], list[RecordRun | SegmentCommits | _Broken]]


@dataclass(frozen=True, slots=True)
class _Broken:
    """Frames that cannot be read, or all frames of the piece."""

    piece: SealedPiece
    start: int
    stop: int
    """``start`` and ``stop`` are offsets in the log segment, in bytes, on commit boundaries."""
    records: int
    error: LitelogError
    first: int | None = None
    """The sequence of the first record; None if that is not known."""
    data: memoryview | None = None
    """The decompressed bytes, if the frames are intact and the commits in them are not."""


def read_sealed_pieces(task: Task, pieces: Iterable[SealedPiece]) -> Iterator[RecordRun | SegmentCommits | Malformed]:
    """Yield the records of sealed segments in order, a run of frames at a time. Raises as ``read_partition`` does."""
    room = GrowingRoom(JOBS)
    openings = ((min(piece.entry.size, WHOLE_BYTES), partial(_open, task, piece)) for piece in pieces)
    opened = ordered_prefetch(task.executor, openings, AHEAD_BYTES // 8, room=room)
    fetched = ordered_prefetch(task.executor, _fetches(task, opened), AHEAD_BYTES * 5 // 8, room=room)
    decoding = ((one.held, one.decode) for one in fetched)
    for found in ordered_prefetch(task.decoder, decoding, AHEAD_BYTES // 4, room=room):
        for run in found:
            if isinstance(run, _Broken):
                yield from _repair(task, run)
            else:
                yield run
        room.grow()


def _open(task: Task, piece: SealedPiece) -> _Opened | _Unread:
    try:
        return _Opened(piece, open_piece(task.client, piece, task.format))
    except (CorruptionError, NotFoundError) as error:
        return _Unread(piece, error)


def open_piece(client: ReplicaClient, piece: SealedPiece, log_format: LogFormat) -> OpenedSealed:
    """Read the footer of a piece, and check it against the snapshot. Raises CorruptionError and NotFoundError."""
    sealed = open_sealed(client, piece.entry)
    _check_sum(piece, sealed.footer)
    _check_follows(log_format, piece, sealed.footer)
    return sealed


def _check_sum(piece: SealedPiece, footer: SealedFooter) -> None:
    """Check that the frames' CRCs combine to the snapshot's, since no single task may read all frames."""
    frames, total = footer.frames, 0
    for crc, length in zip(frames.crcs, frames.lengths, strict=True):
        total = combine(total, crc, length)
    if total != piece.entry.crc:
        raise CorruptObjectError(piece.entry.key, "CRC-32C of its frames", f"{piece.entry.crc:#010x}", f"{total:#010x}")


def _check_follows(log_format: LogFormat, piece: SealedPiece, footer: SealedFooter) -> None:
    """Check that the first record's sequence is the next one, if litelog numbers the records.

    ``_decode`` checks other formats.
    """
    first, follows = footer.first, piece.follows
    if first is not None and follows is not None and first != follows and not log_format.self_numbered:
        raise SequenceGapError(piece.entry.key, 0, follows, first)


def _fetches(task: Task, openings: Iterable[_Opened | _Unread]) -> Iterator[tuple[int, Callable[[], _Fetched]]]:
    """(bytes, function that reads them) for each piece, a few runs of frames at a time."""
    for opened in openings:
        if isinstance(opened, _Unread):
            yield 0, partial(_Fetched, 0, partial(_give_up, opened))
            continue
        frames = opened.footer.frames
        if task.is_divisible:
            for piece, runs in shipped_parts(opened.piece, opened.footer, task.log.range):
                held = len(frames.content_range(frames_of(runs)))
                yield held, partial(_fetch, task, held, replace(opened, piece=piece), runs, _decode_shipped)
            continue
        wanted = wanted_runs(task.log.range, opened.piece, opened.footer, task.format)
        for runs in frames.groups(wanted, FETCH_BYTES):
            held = len(frames.content_range(frames_of(runs)))
            yield held, partial(_fetch, task, held, opened, runs, _decode_runs)


def _give_up(unread: _Unread) -> list[RecordRun | SegmentCommits | _Broken]:
    piece = unread.piece
    return [_Broken(piece, piece.start, piece.stop, piece.entry.records, unread.error)]


def wanted_runs(wanted: Range, piece: SealedPiece, footer: SealedFooter, log_format: LogFormat) -> Iterator[range]:
    """The runs of the piece that may hold wanted records."""
    frames = footer.frames
    for run in own_runs(piece, footer):
        if wanted.has_bounds and not wanted.overlaps(frames.firsts[run.start], sequence_after(footer, run)):
            continue
        if wanted.has_times and log_format.has_timestamps:
            lowest, highest = frames.lowests[run.start], frames.highests[run.start]
            if lowest is None or not wanted.overlaps_times(lowest, highest):
                continue
        yield run


def own_runs(piece: SealedPiece, footer: SealedFooter) -> Iterator[range]:
    """The runs of frames of which the piece has any record."""
    frames = footer.frames
    for run in frames.runs(frames.for_offsets(piece.start, piece.stop)):
        if piece.exact or piece.start <= frames.offsets[run.start] < piece.stop:
            yield run


def sequence_after(footer: SealedFooter, run: range) -> int | None:
    """The sequence that follows a run; None if that is not known."""
    return footer.next if run.stop == len(footer.frames) else footer.frames.firsts[run.stop]


def _fetch(task: Task, held: int, opened: _Opened, runs: list[range], decode: _Decode) -> _Fetched:
    """Read contiguous runs with one GET."""
    frames = frames_of(runs)
    body = opened.sealed.held(frames)
    if body is None:
        with suppress(CorruptionError, NotFoundError):  # ``decode`` reads them again
            body = opened.sealed.read(frames)
    return _Fetched(held, partial(decode, task, opened, runs, body))


def _decode_runs(
    task: Task, opened: _Opened, runs: list[range], held: memoryview | None = None
) -> list[RecordRun | SegmentCommits | _Broken]:
    """Decode contiguous runs. If that fails, decodes them one by one, and returns a _Broken for each bad one."""
    footer, whole = opened.footer, frames_of(runs)

    def decode(body: memoryview) -> list[RecordRun | SegmentCommits | _Broken]:
        parts = ((run, footer.frames.stored_part(body, whole, run)) for run in runs)
        return [_decode(task, opened.piece, footer, run, part) for run, part in parts]

    try:
        return opened.sealed.read_verified(whole, decode, held)
    except (CorruptionError, NotFoundError) as error:
        if len(runs) > 1:
            return [found for run in runs for found in _decode_runs(task, opened, [run])]
        return [_describe(opened, runs[0], error)]


def _decode_shipped(
    task: Task, opened: _Opened, runs: list[range], held: memoryview | None = None
) -> list[RecordRun | SegmentCommits | _Broken]:
    """As ``_decode_runs``, for formats in which a record is the data that was shipped at one time, in any frames."""
    found: list[RecordRun | SegmentCommits | _Broken] = []
    for whole, some in groupby(_decode_runs(task, opened, runs, held), key=lambda run: isinstance(run, RecordRun)):
        if not whole:
            found += some
            continue
        run = join([run for run in some if isinstance(run, RecordRun)], row_starts(opened.footer))
        found.append(_cut(task, opened.piece, opened.footer, run))
    return found


def _decode(
    task: Task, piece: SealedPiece, footer: SealedFooter, run: range, body: memoryview
) -> RecordRun | SegmentCommits:
    """Decode a run as ``decode_run`` checks it, and check that its first commit continues the previous one.

    If all records are wanted and malformed data is an error, the commits are returned without decoding, unless they are
    small. Their inside was checked when they were sealed, and the snapshot vouches for the footer.
    """
    key, frames = piece.entry.key, footer.frames
    start = frames.offsets[run.start]
    data = decode_frames(key, footer, run, body)
    follows = piece.follows if start == 0 else None
    expect = Expectation(frames.firsts[run.start] if follows is None else follows)
    whole_run = None
    if _is_all_wanted(task, piece, footer, run):
        whole_run = scan_commits(task.format, footer.path, data, start, expect)
    if whole_run is not None:
        scan, commits = whole_run
        scan = replace(scan, lowest=frames.lowests[run.start], highest=frames.highests[run.start])
        check_scan(key, footer, run, data, scan, task.format)
        if commits is not None:
            whole = SegmentCommits(commits, piece.entry.index)
            return whole if scan.records >= MANY_RECORDS * scan.commits else whole.to_run()
    scan, columns = scan_columns(task.format, footer.path, data, start, expect)
    check_scan(key, footer, run, data, scan, task.format)
    found = RecordRun(columns, piece.entry.index, start)
    return found if task.is_divisible else _cut(task, piece, footer, found)


def _is_all_wanted(task: Task, piece: SealedPiece, footer: SealedFooter, run: range) -> bool:
    """Whether a run needs no cutting, and no salvage."""
    if piece.exact or not task.is_strict:
        return False
    return holds_run(task.log.range, footer, run)


def holds_run(wanted: Range, footer: SealedFooter, run: range) -> bool:
    """Whether all records of a run are wanted, by their sequences and timestamps."""
    frames = footer.frames
    lowest, highest = frames.lowests[run.start], frames.highests[run.start]
    return wanted.holds(frames.firsts[run.start], sequence_after(footer, run)) and wanted.holds_times(lowest, highest)


def _cut(task: Task, piece: SealedPiece, footer: SealedFooter, run: RecordRun) -> RecordRun:
    if piece.exact:
        run = cut_offsets(run, piece.start, piece.stop, divisible=task.is_divisible)
    return _cut_shipped(task, footer, run)


def _cut_shipped(task: Task, footer: SealedFooter, run: RecordRun) -> RecordRun:
    """The part that was shipped in the wanted time, if the format has no timestamps."""
    wanted, marks = task.log.range, footer.marks
    if task.format.has_timestamps or not wanted.has_times:
        return run
    start = 0 if wanted.since is None else marks.offset_at(wanted.since - 1)
    return cut_offsets(run, start, footer.length if wanted.until is None else marks.offset_at(wanted.until - 1))


def _describe(opened: _Opened, run: range, error: LitelogError) -> _Broken:
    piece, footer = opened.piece, opened.footer
    frames, data = footer.frames, None
    content = frames.content_range(run)
    if not isinstance(error, NotFoundError):
        with suppress(CorruptionError, NotFoundError):  # the frames themselves are damaged
            data = decode_frames(piece.entry.key, footer, run, opened.sealed.read(run))
    return _Broken(piece, content.start, content.stop, frames.records[run.start], error, frames.firsts[run.start], data)


def _repair(task: Task, broken: _Broken) -> Iterator[RecordRun | Malformed]:
    """Yield the records of the broken part of the piece from other objects of the replica.

    If no object has them, and malformed data is not an error, yields the commits that can be salvaged.
    """
    piece = broken.piece
    for found in _repair_all(task, broken):
        if not piece.exact:
            yield found
        elif isinstance(found, RecordRun):
            yield cut_offsets(found, piece.start, piece.stop, divisible=task.is_divisible)
        elif found.start < piece.stop and (found.stop is None or piece.start < found.stop):
            stop = piece.stop if found.stop is None else min(found.stop, piece.stop)
            yield replace(found, start=max(found.start, piece.start), stop=stop)


def _repair_all(task: Task, broken: _Broken) -> Iterator[RecordRun | Malformed]:
    piece, error = broken.piece, broken.error
    try:
        yield from read_fallback(task, piece.entry, broken.start, broken.stop, error)
        return
    except LitelogError as final:
        if task.is_strict or not isinstance(final, CorruptionError) or isinstance(error, NotFoundError):
            task.lose(final)
            return
    if broken.data is not None:
        yield from salvage(task, piece.entry.file, piece.entry.index, broken.data, broken.start, str(error))
    else:
        yield Malformed(piece.entry.index, broken.start, broken.stop, broken.records, str(error))
