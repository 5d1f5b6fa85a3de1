"""Restores the WAL segments of a plan: reads, checks, decompresses, scans and writes each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, LitelogError, NotFoundError, ReplicaGapError, StoreError
from litelog.objects import wal_segment
from litelog.objects.chain import check_run, expectation, next_state, next_state_sealed
from litelog.objects.layout import wal_key
from litelog.reading.fetch import confirm_digest, read_verified
from litelog.reading.wal_cursor import describe_sealed
from litelog.restore.plan import RestoredObject

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from typing_extensions import Buffer

    from litelog.formats import LogFormat
    from litelog.objects.chain import ChainState
    from litelog.objects.position import Position
    from litelog.objects.wal_segment import WalSegment
    from litelog.restore.commit_writer import CommitWriterPool, SegmentFiles, WrittenRun
    from litelog.restore.journal import ResumedWalSegments
    from litelog.restore.plan import RestorePlan
    from litelog.stores.replica_client import ReplicaClient


class RestoreStoppedError(LitelogError):
    """The object was abandoned: another one failed, or the caller stopped the restore, which then ends with this
    error."""


@dataclass(frozen=True, slots=True)
class ChainStep:
    """The state of the chain between two objects."""

    link: ChainState
    before: ChainState | None = None
    """The state before the object that leads to ``link``; None if that is not an object of the replica."""


class WalWriter(Protocol):
    """Restores the WAL segments of a plan, on any threads, started in the order of their positions."""

    def write(self, number: int, before: Future[ChainStep], after: Future[ChainStep]) -> RestoredObject:
        """Restore the plan's WAL segment of that number, which continues ``before``. Sets ``after``, which the next
        WAL segment continues, as soon as it is known. This method may still fail then."""


class WalRestorer:
    """Restores the WAL segments of a plan from a replica.

    It restores them concurrently, and checks the chain in order: each one waits for the step of the one before, which
    is known as soon as its header is read. ``SealedRestorer`` restores the sealed segment that one stands for.
    """

    def __init__(
        self,
        client: ReplicaClient,
        plan: RestorePlan,
        files: SegmentFiles,
        runs: CommitWriterPool,
        log_format: LogFormat,
        resumed: ResumedWalSegments,
        check_stop: Callable[[], None],
    ) -> None:
        """``resumed``: the WAL segments that do not have to be read. ``check_stop`` raises if the restore was
        stopped."""
        self._client = client
        self._plan = plan
        self._files = files
        self._runs = runs
        self._format = log_format
        self._resumed = resumed
        self._check_stop = check_stop
        self._sealed_entries = {piece.entry.index: piece.entry for piece in plan.sealed}

    def write(self, number: int, before: Future[ChainStep], after: Future[ChainStep]) -> RestoredObject:
        """As in ``WalWriter``. Raises CorruptionError or StoreError if the object is damaged, or cannot be read."""
        position = self._plan.pieces[number].position
        segment = self._resumed.find(position) or self._read(position)
        parts: list[WrittenRun] = []
        step, unlisted = self._close_gap(before.result(), position, parts)
        link = self._confirm(step, segment)
        after.set_result(ChainStep(self.next_link(link, segment), link))
        self._write_object(segment, link, parts)
        self._files.done(position.index)
        return RestoredObject(tuple(parts), objects=unlisted + 1)

    def next_link(self, link: ChainState, segment: WalSegment) -> ChainState:
        """The state of the chain after ``segment``, which must continue ``link``. Raises CorruptionError."""
        header = segment.header
        if header.sealed is None:
            return next_state(link, segment, self._format)
        entry = self._sealed_entries.get(header.index) or describe_sealed(self._client, header)
        return next_state_sealed(link, segment, entry, self._format)

    def _close_gap(self, step: ChainStep, position: Position, parts: list[WrittenRun]) -> tuple[ChainStep, int]:
        """Restore the objects before ``position`` that no listing showed. Returns the step after them, and their
        number. Raises ReplicaGapError if any of them is missing."""
        count = 0
        while step.link.slot < position and not step.link.ended:
            link = step.link
            try:
                segment = self._read(link.slot, wal_segment.decode_checked)
            except ReplicaGapError as error:
                raise ReplicaGapError(str(link.slot), str(position)) from error
            step = ChainStep(next_state(self._confirm(step, segment), segment, self._format), link)
            header = segment.header
            if header.index == position.index:
                self._write_object(segment, link, parts)
            elif header.successor is None:
                with self._files.opened_apart(header.index, header.file) as file:
                    parts += [self._write_bytes(segment, link, file)] if header.length else []
            count += 1
        return step, count

    def _confirm(self, step: ChainStep, segment: WalSegment) -> ChainState:
        before = None if step.before is None else step.before.slot
        return confirm_digest(self._client, step.link, before, segment.header)

    def _write_object(self, segment: WalSegment, link: ChainState, parts: list[WrittenRun]) -> None:
        header = segment.header
        if header.successor is not None or not header.file:
            return
        file = self._files.open(header.index, header.file)
        if header.length:
            parts.append(self._write_bytes(segment, link, file))

    def _write_bytes(self, segment: WalSegment, link: ChainState, file: int) -> WrittenRun:
        try:
            part = self._write_checked(segment, link, file)
        except CorruptionError as error:
            return self._write_again(segment, link, file, error)
        self._resumed.note(segment)
        return part

    def _write_again(self, segment: WalSegment, link: ChainState, file: int, error: CorruptionError) -> WrittenRun:
        """Read an object with bad bytes again, as they may have changed in transit. Raises ``error`` if they are still
        bad."""
        try:
            again = self._read(segment.header.position, wal_segment.decode_checked, segment.body)
            if again.header == segment.header:
                return self._write_checked(again, link, file)
        except (CorruptionError, StoreError):
            pass
        raise error

    def _write_checked(self, segment: WalSegment, link: ChainState, file: int) -> WrittenRun:
        header = segment.header
        part = self._runs.write(header, segment.key, file, segment.pieces(), expectation(link, header))
        check_run(header, segment.key, part.scan, self._format)
        return part

    def _read(
        self,
        position: Position,
        decode: Callable[[str, Buffer], WalSegment] = wal_segment.decode,
        held: Buffer | None = None,
    ) -> WalSegment:
        """``held``: the bytes of the first read, if there was one."""
        self._check_stop()

        def read() -> Buffer:
            return self._client.read_wal_segment(position)

        try:
            return read_verified(read, partial(decode, wal_key(position)), held)
        except NotFoundError as error:
            raise ReplicaGapError(str(position)) from error
