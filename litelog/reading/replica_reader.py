"""Reads a replica's records: from any place to its end, or continuously as it grows, through its generations.

Specified in litelog/reading/README.md#following.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

import numpy as np

from litelog.errors import (
    ConfigError,
    CorruptObjectError,
    NotFoundError,
    NothingToRestoreError,
    PrunedError,
    ReplicaGapError,
)
from litelog.formats.columns import Columns
from litelog.formats.raw import RawFormat
from litelog.objects.claim import open_claimed_format
from litelog.objects.position import Position, generation
from litelog.reading.contents import list_pieces
from litelog.reading.fetch import AHEAD_JOBS
from litelog.reading.latest import find_claim, find_latest, open_latest
from litelog.reading.sealed_reader import SealedStart, read_history
from litelog.reading.search import read_header
from litelog.reading.start_search import StartFilter, StartRequest, find_start
from litelog.reading.successors import find_begun, find_shift, find_successor, find_terminal
from litelog.reading.wal_cursor import ShippedBatch, WalCursor
from litelog.stores.registry import open_format
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from types import TracebackType

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.wal_segment import WalHeader
    from litelog.reading.contents import GenerationContents
    from litelog.stores.replica_client import ReplicaClient

POLLS_PER_LOOK = 30
"""A follower looks for the next epoch after this number of polls without news, with one GET. It lists the successors of
an ended generation just as often."""

LOOK_SECONDS = 1800.0
"""After this many seconds without news, or while it lags, a follower checks that its place still exists, and lists
what follows it. Half of the grace for which WAL segments are kept at least."""

STOP_SECONDS = 0.1
"""How soon, in seconds, a waiting follower notices the caller's own stop event."""


class ReplicaReader:
    """Reads a replica's records with the checks of a restore. One thread reads; any thread may close.

    It reads sealed segments as far as the newest snapshot names them. Then it follows the names that must come next,
    with one GET each. It lists only to find its start, and to tell an end from a hole. At the end of a generation it
    continues in the next one, at the same place. WAL segments that were sealed and removed while it read are read from
    their sealed segment.
    """

    def __init__(  # noqa: PLR0913 - each is an independent choice
        self,
        client: ReplicaClient,
        *,
        generation: Generation | None = None,
        start: int | None = None,
        start_time: int | None = None,
        end: int | None = None,
        follow: bool = False,
        poll_interval: float = 1.0,
        look_seconds: float = LOOK_SECONDS,
        stop: threading.Event | None = None,
        formats: Callable[[str], LogFormat] = open_format,
    ) -> None:
        """Make a reader. It makes no request yet.

        Args:
            client: The replica.
            generation: The generation to read; None for the latest one.
            start: Begin with the first record of this sequence or a higher one. With neither ``start`` nor
                ``start_time``, begin with the oldest record.
            start_time: Begin with the first record of this time or a later one, in microseconds since 1970. In a
                format without timestamps: the first record shipped then or later, as precisely as that is known.
            end: The first sequence not to yield. In format ``raw``, whose sequences count bytes, ``start`` and
                ``end`` may both lie within bytes that were shipped at once.
            follow: Wait at the head for more records, instead of ending there.
            poll_interval: Seconds between polls at the head.
            look_seconds: After this many seconds without news, or while it lags, a follower checks that it stands at
                the end, and not at a hole.
            stop: Ends a follower, as ``close`` does.
            formats: Returns the log format of a name.

        Raises:
            ConfigError: Both ``start`` and ``start_time`` are given.
        """
        if start is not None and start_time is not None:
            raise ConfigError("start at a sequence or at a time, not at both")
        self._client = client
        self._named = generation
        self._filter = StartFilter(start, start_time)
        self._end, self._ended = end, False
        self._follow, self._poll_interval, self._look_seconds = follow, poll_interval, look_seconds
        self._stop, self._closed = stop, threading.Event()
        self._formats = formats
        self._claim: Claim | None = None
        self._place: Position | None = None
        self._first: Position | None = None
        self._cursor: WalCursor | None = None
        self._leaving: tuple[WalHeader, Position] | None = None
        """The current generation's terminal, and the position up to which it was read, until a successor begins."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def position(self) -> Position | None:
        """The position of the next WAL segment; None before the reader has reached the WAL."""
        return None if self._cursor is None else self._cursor.slot

    def close(self) -> None:
        """End ``batches``, even while it waits. Idempotent."""
        self._closed.set()

    def batches(self) -> Iterator[Columns]:
        """Yield the records: one batch for each WAL segment, and for each frame of a sealed segment, that holds any.

        With ``follow`` it waits at the head.

        Raises:
            NothingToRestoreError: The replica holds nothing (a follower waits for its first records).
            TruncatedError: The start lies before the first record that exists.
            PrunedError: Retention overtook the reader.
            DivergedError: The log's history forks.
            CorruptObjectError: An object is damaged.
            ReplicaGapError: An object is missing.
            StoreError: A request failed.
        """
        executor = ThreadPoolExecutor(AHEAD_JOBS, "read")
        try:
            for batch in self._read(executor):
                columns = self._cut(batch)
                if len(columns):
                    yield columns
                if self._ended or self._is_stopped():
                    return
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def _read(self, executor: ThreadPoolExecutor) -> Iterator[ShippedBatch]:
        steady = SystemClock().monotonic  # retention continues elsewhere while this machine is suspended
        idle, news, head = 0, steady(), steady()
        while not self._is_stopped():
            if self._leaving is not None and not self._leave(*self._leaving, lists=idle % POLLS_PER_LOOK == 0):
                if not self._follow or self._is_end_reached():
                    return
                idle += 1
                self._wait()
                continue
            if self._cursor is None and (yield from self._enter(executor)):
                continue
            segment = None if self._cursor is None else self._cursor.read()
            if segment is not None and self._cursor is not None:
                idle, news = 0, steady()
                yield from self._cursor.take(segment)
                if self._cursor.link.ended:
                    self._leaving = segment.header, segment.header.position
                continue
            idle += 1
            now = steady()
            if not self._follow or now - min(news, head) >= self._look_seconds:
                if (yield from self._look_around(executor)):
                    continue
                news = now
            elif idle % POLLS_PER_LOOK == 0:
                self._look_for_successor()
            if not self._follow or self._is_end_reached():
                return
            head = now
            self._wait()

    def _is_end_reached(self) -> bool:
        """Whether no record that may still come is wanted. The start may lie at the end, or after it."""
        reached = None if self._cursor is None else self._cursor.link.next
        return self._end is not None and reached is not None and reached >= self._end

    def _cut(self, batch: ShippedBatch) -> Columns:
        """The records between start and end."""
        columns, is_raw = batch.columns, isinstance(self._format, RawFormat)
        if is_raw:
            for sequence in (self._filter.sequence, self._end):
                columns = columns if sequence is None else _split_bytes(columns, sequence)
        columns = self._filter.cut(columns, batch.shipped)
        if self._end is None or not len(columns):
            return columns
        stop = columns.find(self._end)
        reached = int(columns.sequences[-1]) + (int(columns.value_lengths[-1]) if is_raw else 1)
        self._ended = stop < len(columns) or reached >= self._end
        return columns.slice(0, stop)

    # --- finding a place

    def _enter(self, executor: ThreadPoolExecutor) -> Generator[ShippedBatch, None, bool]:
        """Read the wanted part of the sealed segments, and move to the first WAL segment that may hold a wanted record.

        Does nothing while the generation has not begun. Returns True if it ended before, and another is to be entered.
        """
        pieces = self._find_pieces()
        if pieces is None:
            return False
        claim = self._claim = pieces.base.claim
        self._first = pieces.base.first
        log_format = self._format = open_claimed_format(claim, self._formats)
        if pieces.gap is not None:
            if self._place is not None and self._skip(pieces, self._place):
                return True
            raise pieces.gap
        if pieces.base.snapshot is None and not pieces.wal:
            return False
        if pieces.base.snapshot is None and (header := read_header(self._client, pieces.wal[0].position)).successor:
            self._leaving = header, header.position
            return True
        link = pieces.base.link()
        wanted = StartRequest(self._place, self._filter.sequence, self._filter.time)
        start = find_start(self._client, pieces, wanted, log_format)
        if start.entry is not None:
            yield from self._read_sealed(executor, pieces, start.entry, start.sealed)
            self._place = None
        if start.wal == 0:
            self._cursor = WalCursor(self._client, executor, log_format, link, place=self._place)
        else:
            last = pieces.wal[start.wal - 1].position
            try:
                self._cursor = WalCursor.behind(self._client, executor, log_format, claim, last, self._place)
            except NotFoundError as error:
                raise PrunedError(str(last)) from error
        self._cursor.expect(pieces.wal[start.wal :])
        return False

    def _find_pieces(self) -> GenerationContents | None:
        if self._claim is not None:
            return list_pieces(self._client, self._claim)
        try:
            if self._named is None:
                return open_latest(self._client)
            return list_pieces(self._client, find_claim(self._client, self._named))
        except NothingToRestoreError:
            if self._follow:
                return None
            raise

    def _read_sealed(
        self,
        executor: ThreadPoolExecutor,
        pieces: GenerationContents,
        number: int,
        start: SealedStart,
        follows: int | None = None,
    ) -> Iterator[ShippedBatch]:
        for batch in read_history(self._client, executor, pieces.base, number, start, self._format):
            if follows is not None and len(batch.columns) and (first := int(batch.columns.sequences[0])) < follows:
                raise CorruptObjectError(batch.entry.key, "first sequence", f"{follows} or above", first)
            yield ShippedBatch(batch.columns, batch.shipped)

    # --- generations

    def _skip(self, pieces: GenerationContents, slot: Position) -> bool:
        """Continue at ``slot``, after a generation that ended and that retention pruned there: its successor has the
        rest. Return whether the generation ended."""
        terminal = find_terminal(self._client, pieces)
        if terminal is not None:
            self._leaving = terminal, slot
        return terminal is not None

    def _leave(self, terminal: WalHeader, end: Position, *, lists: bool) -> bool:
        """Continue in the generation that follows, once its owner has begun. Return whether it has."""
        assert self._claim is not None
        successor = find_successor(self._client, self._claim, terminal, lists=lists)
        if successor is None:
            return False
        self._leaving = None
        self._go_on_in(successor, end)
        return True

    def _go_on_in(self, successor: Claim, end: Position) -> None:
        """Continue in a generation that continues the current one, which was read to ``end``, at the same place."""
        assert self._claim is not None
        # A generation may have ended before the place where its predecessor did. Then that place is still to be
        # reached.
        unreached = self._place if self._cursor is None else self._cursor.place
        at = unreached or end
        shift = find_shift(self._client, self._claim, successor, at)
        if unreached is not None or end != self._first:
            self._place = Position(generation(successor.generation), at.index + shift, at.offset)
        self._claim, self._cursor = successor, None

    # --- at the head

    def _look_around(self, executor: ThreadPoolExecutor) -> Generator[ShippedBatch, None, bool]:
        """Tell the head from a hole: nothing follows the slot, the last WAL segment exists, and there is no successor.

        Returns True if there is more to read: sealed segments of a newer snapshot, whose WAL segments were removed.
        """
        cursor, claim = self._cursor, self._claim
        if cursor is None or claim is None:
            return False
        slot, last = cursor.slot, cursor.last
        behind = next(iter(self._client.wal_segments(slot.generation, slot)), None)
        if behind is not None and behind.position == slot:
            return True
        is_last_there = last is None or self._is_there(last)
        if behind is None and is_last_there:
            return self._look_for_successor()
        if cursor.read_slot() is not None:
            return True
        pieces = list_pieces(self._client, claim)
        base = pieces.base
        if slot.index < base.first.index:
            raise PrunedError(str(slot))
        if slot.index >= base.start.index:
            if self._skip(pieces, slot):
                return True
            if not is_last_there:
                raise PrunedError(str(last))
            raise ReplicaGapError(str(slot), str(behind.position) if behind is not None else None)
        start = SealedStart(slot.offset)
        yield from self._read_sealed(executor, pieces, slot.index - base.first.index, start, cursor.link.next)
        self._cursor = WalCursor(self._client, executor, self._format, base.link())
        self._cursor.expect(pieces.wal)
        return True

    def _is_there(self, position: Position) -> bool:
        try:
            read_header(self._client, position)
        except ReplicaGapError:
            return False
        return True

    def _look_for_successor(self) -> bool:
        """Look at the next epoch: if its owner has begun, it has ended this generation first. One GET while there is
        none (one listing after an isolated claim). Returns True if there is more to read. ReplicaGapError if it is
        missing.
        """
        cursor, claim = self._cursor, self._claim
        if cursor is None or claim is None:
            return False
        if claim.is_isolated:
            return self._leave_isolated(cursor, claim)
        successor = find_begun(self._client, claim)
        if successor is None:
            return False
        if cursor.read_slot() is None:
            raise ReplicaGapError(str(cursor.slot), successor.key)
        return True

    def _leave_isolated(self, cursor: WalCursor, claim: Claim) -> bool:
        """Continue in the latest generation, once that is another one: no owner ends the generation of an isolated one.

        One listing while there is no other claim. A reader that was given this generation stays in it.
        """
        if self._named is not None or self._client.claims(claim.epoch) == [claim.name]:
            return False
        newest = find_latest(self._client)
        if newest.generation == claim.generation:
            return False
        if cursor.read_slot() is None:
            self._go_on_in(newest, cursor.slot)
        return True

    def _wait(self) -> None:
        if self._stop is None:
            self._closed.wait(self._poll_interval)
            return
        until = time.monotonic() + self._poll_interval
        while not self._is_stopped() and (left := until - time.monotonic()) > 0:
            self._closed.wait(min(left, STOP_SECONDS))

    def _is_stopped(self) -> bool:
        return self._closed.is_set() or (self._stop is not None and self._stop.is_set())


def _split_bytes(columns: Columns, sequence: int) -> Columns:
    """The same bytes, of format ``raw``, in two commits if ``sequence`` lies within one."""
    number = columns.find(sequence) - 1
    if number < 0:
        return columns
    head = sequence - int(columns.sequences[number])
    start, length = int(columns.value_starts[number]), int(columns.value_lengths[number])
    if not 0 < head < length:
        return columns
    lengths = np.insert(columns.value_lengths, number + 1, length - head)
    lengths[number] = head
    sequences = np.insert(columns.sequences, number + 1, sequence)
    starts = np.insert(columns.value_starts, number + 1, start + head)
    return Columns(columns.data, sequences, None, None, None, starts, lengths)
