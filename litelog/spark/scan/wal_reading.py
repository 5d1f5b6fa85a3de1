"""Reads the WAL segments of a task: threads read and decompress ahead. The chain is checked across tasks."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import (
    CorruptionError,
    CorruptObjectError,
    LitelogError,
    NotFoundError,
    PrunedError,
    ReplicaGapError,
    SequenceGapError,
    TruncatedError,
)
from litelog.formats import Expectation
from litelog.formats.capabilities import scan_columns
from litelog.objects import wal_segment
from litelog.objects.chain import check_run, expectation, next_state, next_state_sealed, state_after
from litelog.objects.layout import wal_key
from litelog.objects.position import MAX_OFFSET
from litelog.reading.contents import list_pieces
from litelog.reading.fetch import GrowingRoom, confirm_digest, ordered_prefetch, read_verified
from litelog.reading.sealed_reader import open_sealed
from litelog.reading.search import find_segment
from litelog.reading.wal_cursor import describe_sealed
from litelog.spark.scan.damaged import salvage
from litelog.spark.scan.partitions import COMPRESSION_RATIO, SealedPiece
from litelog.spark.scan.record_runs import Malformed, RecordRun, SegmentCommits, cut_offsets
from litelog.spark.scan.sealed_reading import read_sealed_pieces
from litelog.spark.scan.task import AHEAD_BYTES, JOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from litelog.formats.columns import Columns
    from litelog.objects.chain import ChainState
    from litelog.objects.position import Position
    from litelog.objects.wal_segment import WalSegment
    from litelog.reading.contents import BaseSnapshot, GenerationContents
    from litelog.spark.scan.partitions import WalPiece
    from litelog.spark.scan.task import Task
    from litelog.stores.replica_client import WalSegmentInfo


@dataclass(frozen=True, slots=True)
class _Fetched:
    """A WAL segment whose bytes match its header, with its records."""

    position: Position
    segment: WalSegment
    columns: Columns | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A WAL segment that is missing or damaged."""

    position: Position
    error: CorruptionError | NotFoundError
    content: tuple[str, memoryview] | None = field(default=None, repr=False)
    """The log segment and its bytes, if the object is intact and its commits are not."""


def read_wal_piece(task: Task, piece: WalPiece) -> Iterator[RecordRun | SegmentCommits | Malformed]:
    """Yield the records of WAL segments, in order. Raises as ``read_partition`` does.

    WAL segments that were removed after planning are read from the sealed segments that replaced them.
    """
    yield from _WalReader(task, piece).read()


class _WalReader:
    """Moves along the chain. If ``link`` is None, the previous state is unknown, and the next header is trusted."""

    def __init__(self, task: Task, piece: WalPiece) -> None:
        self._task = task
        self._piece = piece
        self._claim = task.log.replica_claim
        self._infos = list(piece.infos(task.log.generation))
        self._link: ChainState | None = piece.link
        self._last: Position | None = None
        """The position of the WAL segment that the state is after; None if another task read it."""
        self._starts_log = piece.starts_log
        self._room = GrowingRoom(JOBS)
        self._listed: GenerationContents | None = None
        """The contents as they were listed when a WAL segment was missing."""

    def read(self) -> Iterator[RecordRun | SegmentCommits | Malformed]:
        number = 0
        if self._link is None and self._piece.before is not None:
            self._link = self._link_after(self._piece.before)
        while number < len(self._infos):
            number = yield from self._read_on(number)

    def _read_on(self, number: int) -> Generator[RecordRun | SegmentCommits | Malformed, None, int]:
        """Read from segment ``number`` on. Returns the number of the segment to continue with."""
        task, jobs = self._task, self._jobs(number)
        for fetched in ordered_prefetch(task.executor, jobs, AHEAD_BYTES, room=self._room):
            if isinstance(fetched, _Unreadable) and isinstance(fetched.error, NotFoundError):
                return (yield from self._replace(number))
            try:
                yield from self._take(fetched)
            except ReplicaGapError as error:
                task.lose(error)
                self._link = None
                yield from self._take(fetched)
            except CorruptionError as error:
                if task.is_strict:
                    raise
                yield from self._drop(number, fetched, error)
            number += 1
            self._room.grow()
            if self._link is not None and self._link.ended:
                return len(self._infos)
        return number

    def _jobs(self, number: int) -> Iterator[tuple[int, Callable[[], _Fetched | _Unreadable]]]:
        for info, raw in zip(self._infos[number:], self._raw_bytes(number), strict=True):
            yield raw, partial(_fetch, self._task, info.position)

    def _raw_bytes(self, number: int) -> Iterator[int]:
        """Estimate how many decompressed bytes each one holds."""
        following: Sequence[WalSegmentInfo | None] = [*self._infos[number + 1 :], None]
        for info, after in zip(self._infos[number:], following, strict=True):
            at = info.position
            known = after is not None and after.position.index == at.index
            yield after.position.offset - at.offset if known and after is not None else COMPRESSION_RATIO * info.size

    def _take(self, fetched: _Fetched | _Unreadable) -> Iterator[RecordRun | SegmentCommits | Malformed]:
        if isinstance(fetched, _Unreadable):
            raise fetched.error
        task, link, segment = self._task, self._link, fetched.segment
        header = segment.header
        if link is not None:
            link = self._link = confirm_digest(task.client, link, self._last, header)
        self._last = header.position
        if header.sealed is not None:
            yield from self._take_sealed(segment)
            return
        if link is None:
            after = state_after(self._claim, segment)
        else:
            after = next_state(link, segment, task.format)
            if header.length and link.next is not None and link.next != header.first and header.first is not None:
                self._judge(link, segment)
        self._check_start(header.first)
        if fetched.columns is not None and len(fetched.columns) and self._is_wanted(header.shipped):
            start, stop = self._bounds(header.index)
            run = RecordRun(fetched.columns, header.index, header.offset)
            yield cut_offsets(run, start, stop, divisible=task.is_divisible)
        self._link = after

    def _bounds(self, index: int) -> tuple[int, int]:
        """The range of bytes in a log segment that belongs to the piece."""
        start, stop = self._piece.start, self._piece.stop
        first = start.offset if start is not None and start.index == index else 0
        return first, stop.offset if stop is not None and stop.index == index else MAX_OFFSET

    def _judge(self, link: ChainState, segment: WalSegment) -> None:
        """Let the format decide whether the sequences may have this gap."""
        header, log_format = segment.header, self._task.format
        if not log_format.self_numbered:
            raise SequenceGapError(segment.key, header.offset, link.next or 0, header.first or 0)
        data = segment.data()
        check_run(
            header,
            segment.key,
            log_format.scan(header.path, data, header.offset, expectation(link, header)),
            log_format,
        )

    def _take_sealed(self, segment: WalSegment) -> Iterator[RecordRun | SegmentCommits | Malformed]:
        """Yield the rest of a log segment that a ``final`` stands for, from its sealed segment."""
        task, header = self._task, segment.header
        entry = describe_sealed(task.client, header)
        link = self._link
        after = state_after(self._claim, segment)
        if link is not None:
            after = next_state_sealed(link, segment, entry, task.format)
        elif entry.digest != header.sealed:
            raise CorruptObjectError(entry.key, "SHA-256 of its log segment", header.sealed, entry.digest)
        self._check_start(entry.first)
        start, stop = self._bounds(header.index)
        start, stop = max(start, header.offset), min(stop, entry.length)
        follows = None if link is None or start else link.next
        yield from read_sealed_pieces(task, [SealedPiece(entry, start, stop, follows, exact=True)])
        self._link = after

    def _link_after(self, before: Position) -> ChainState | None:
        """The state of the chain after another task's WAL segment; None if that is missing or damaged."""
        try:
            segment = find_segment(self._task.client, before)
        except CorruptionError:
            if self._task.is_strict:
                raise
            return None
        # A missing one was deleted meanwhile, or is a gap, which that segment's task reports.
        return None if segment is None else state_after(self._claim, segment)

    def _check_start(self, first: int | None) -> None:
        asked = self._task.log.range.start
        if self._starts_log and first is not None:
            self._starts_log = False
            if asked is not None and asked < first:
                self._task.lose(TruncatedError(asked, first))

    def _is_wanted(self, shipped: int) -> bool:
        wanted = self._task.log.range
        if self._task.format.has_timestamps or not wanted.has_times:
            return True
        return wanted.overlaps_times(shipped, shipped)

    def _drop(
        self, number: int, fetched: _Fetched | _Unreadable, error: LitelogError
    ) -> Iterator[RecordRun | Malformed]:
        task, at = self._task, fetched.position
        following = self._infos[number + 1].position if number + 1 < len(self._infos) else self._piece.stop
        stop = following.offset if following is not None and following.index == at.index else None
        self._link = None
        if isinstance(fetched, _Unreadable) and fetched.content is not None:
            file, data = fetched.content
            yield from salvage(task, file, at.index, data, at.offset, f"{wal_key(at)}: {error}")
        else:
            yield Malformed(at.index, at.offset, stop, None, str(error))

    def _replace(self, number: int) -> Generator[RecordRun | SegmentCommits | Malformed, None, int]:
        """Yield the records of the WAL segments from ``number`` on that a newer snapshot covers, from sealed segments.

        Returns the number of the first WAL segment that the snapshot does not cover.
        """
        task, slot = self._task, self._infos[number].position
        base = self._list_again(slot).base
        if slot.index < base.first.index:
            task.lose(PrunedError(str(slot)))
            self._link = None
            return number + 1
        if slot.index >= base.start.index:
            following = self._infos[number + 1].position if number + 1 < len(self._infos) else None
            task.lose(ReplicaGapError(str(slot), None if following is None else str(following)))
            self._link = None
            return number + 1
        covered = next(
            (n for n in range(number, len(self._infos)) if self._infos[n].position.index >= base.start.index),
            len(self._infos),
        )
        follows = None if self._link is None else self._link.next
        yield from read_sealed_pieces(task, self._covered(base, number, covered, follows))
        self._link = base.link() if covered < len(self._infos) else None
        return covered

    def _list_again(self, missing: Position) -> GenerationContents:
        """The contents since the plan. Lists them once for all WAL segments that were missing then."""
        if self._listed is None or any(info.position == missing for info in self._listed.wal):
            self._listed = list_pieces(self._task.client, self._claim)
        return self._listed

    def _covered(self, base: BaseSnapshot, number: int, stop: int, follows: int | None) -> list[SealedPiece]:
        """The pieces of sealed segments that hold the content of the WAL segments [number, stop)."""
        slot, last = self._infos[number].position, self._infos[stop - 1].position
        following = self._infos[stop].position if stop < len(self._infos) else self._piece.stop
        found = []
        for index in range(slot.index, last.index + 1):
            entry = base.entries[index - base.first.index]
            start = max(slot.offset if index == slot.index else 0, self._bounds(index)[0])
            end = entry.length
            if index == last.index and (following is None or following.index == index):
                end = self._end_of(last, entry.length) if following is None else following.offset
            found.append(SealedPiece(entry, start, end, None if start else follows, exact=True))
            follows = entry.next
        return found

    def _end_of(self, last: Position, length: int) -> int:
        """The end of the plan's last WAL segment, now removed: the position of the next one that was shipped."""
        task = self._task
        pieces = self._list_again(last)
        entry = pieces.base.snapshot.entry(last.index) if pieces.base.snapshot is not None else None
        if entry is None:
            return length
        marks = open_sealed(task.client, entry).footer.marks
        return next((offset for offset in marks.offsets if offset > last.offset), length)


def _fetch(task: Task, position: Position) -> _Fetched | _Unreadable:
    """Read and decode the WAL segment at ``position`` with one GET. Returns errors instead of raising them."""
    key = wal_key(position)

    def decode(body: bytes) -> _Fetched | _Unreadable:
        segment = wal_segment.decode(key, body)
        header = segment.header
        if not header.length:
            return _Fetched(position, segment)
        data = segment.data()
        expect = Expectation(header.first)
        try:
            scan, columns = scan_columns(task.format, header.path, data, header.offset, expect)
            check_run(header, key, scan, task.format)
        except CorruptionError as error:
            return _Unreadable(position, error, (header.file, data))
        return _Fetched(position, segment, columns)

    try:
        return read_verified(partial(task.client.read_wal_segment, position), decode)
    except (CorruptionError, NotFoundError) as error:
        return _Unreadable(position, error)
