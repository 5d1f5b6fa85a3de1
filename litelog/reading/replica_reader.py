"""Reads a replica's records: from any place to its end, or continuously as it grows, through its generations.

Specified in litelog/reading/README.md#following.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

import numpy as np

from litelog.errors import (
    ConfigError,
    CorruptObjectError,
    EmptyLogError,
    NothingToRestoreError,
    PrunedError,
    ReplicaGapError,
)
from litelog.formats.capabilities import is_divisible
from litelog.formats.columns import Columns
from litelog.formats.registry import open_format
from litelog.objects.claim import open_claimed_format
from litelog.objects.position import Position
from litelog.reading.contents import list_pieces
from litelog.reading.fetch import AHEAD_JOBS
from litelog.reading.follower import (
    LOOK_SECONDS,
    ContentsFound,
    DataLost,
    GenerationFollows,
    Look,
    ReplicaFollower,
    SegmentFound,
)
from litelog.reading.generations import require_replica
from litelog.reading.latest import find_claim, open_latest
from litelog.reading.start_search import StartFilter, StartRequest, find_start
from litelog.reading.successors import find_shift
from litelog.reading.wal_cursor import ShippedBatch, WalCursor
from litelog.reading.wal_fallback import read_history
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.wal_segment import WalSegment
    from litelog.reading.contents import BaseSnapshot, GenerationContents
    from litelog.reading.sealed_reader import SealedStart
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

STOP_SECONDS = 0.1
"""How soon, in seconds, a waiting follower notices the caller's own stop event."""

_NOTHING = Columns.empty(memoryview(b""), has_timestamps=False)


class ReplicaReader:
    """Reads a replica's records with the checks of a restore. One thread reads; any thread may close.

    It reads the sealed segments that the newest snapshot names. Then it requests the names that must come next, with
    one GET each. It lists only to find its start, and to tell an end from a hole. At the end of a generation it
    continues in the next one, at the same place. If WAL segments were sealed and removed while it read, it reads the
    sealed segment.
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
        timeout: float | None = None,
        poll_interval: float = 1.0,
        look_seconds: float = LOOK_SECONDS,
        stop: threading.Event | None = None,
        formats: Callable[[str], LogFormat] = open_format,
        clock: Clock | None = None,
    ) -> None:
        """Make a reader. It makes no request yet.

        Args:
            client: The replica.
            generation: The generation to read; None for the latest one.
            start: Begin with the first record of this sequence or a higher one. With neither ``start`` nor
                ``start_time``, begin with the oldest record.
            start_time: Begin with the first record of this time or a later one, in microseconds since 1970. In a
                format without timestamps: the first record shipped then or later, as precisely as that is known.
            end: The first sequence that is not yielded; None for no limit. In format ``raw``, whose sequences count
                bytes, ``start`` and ``end`` may lie within bytes that were shipped at once.
            follow: Wait at the head for more records, instead of ending there.
            timeout: With ``follow``: yield columns without records when none arrived for this many seconds at the head,
                and then wait again. None: never.
            poll_interval: Seconds between polls at the head.
            look_seconds: After this many seconds without news, or while it lags, a follower checks that it stands at
                the end, and not at a hole.
            stop: Ends a follower when it is set, as ``close`` does.
            formats: Returns a log format by its name.
            clock: The source of times; None: the system's clock.

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
        self._timeout = timeout
        self._idle_since: float | None = None
        """When the head was reached after the last wanted record, in monotonic seconds."""
        self._clock = clock or SystemClock()
        self._stop, self._closed = stop, threading.Event()
        self._formats = formats
        self._follower: ReplicaFollower[WalSegment] | None = None
        self._cursor: WalCursor | None = None
        self._first: Position | None = None
        """The first position of the current generation, if it was entered without a place."""

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

    def sequence_after(self, columns: Columns) -> int:
        """The sequence after the last of records that ``batches`` has yielded."""
        divisible = self._format is not None and is_divisible(self._format)
        return int(columns.sequences[-1]) + (int(columns.value_lengths[-1]) if divisible else 1)

    def close(self) -> None:
        """End ``batches``, even while it waits. Idempotent."""
        self._closed.set()

    def batches(self) -> Iterator[Columns]:
        """Yield the records: a batch for each WAL segment, and for each frame of a sealed segment, that holds records.

        With ``follow`` it waits at the head; with ``timeout``, it yields columns without records each time that it is
        over.

        Raises:
            NothingToRestoreError: The replica does not exist (a follower waits for it).
            TruncatedError: The start lies before the first record that exists.
            PrunedError: Retention overtook the reader.
            DivergedError: The log's history forks.
            CorruptObjectError: An object is damaged.
            ReplicaGapError: An object is missing.
            StoreError: A request failed, or the replica's root is away.
        """
        executor = ThreadPoolExecutor(AHEAD_JOBS, "read")
        try:
            for batch in self._read(executor):
                columns = _NOTHING if batch is None else self._cut(batch)
                if batch is None or len(columns):
                    self._idle_since = None
                    yield columns
                if self._ended or self._is_stopped():
                    return
        except (PrunedError, ReplicaGapError) as lack:
            require_replica(self._client, lack)
            raise
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    def _read(self, executor: ThreadPoolExecutor) -> Iterator[ShippedBatch | None]:
        """Yield the records, and None when ``timeout`` is over."""
        while not self._is_stopped():
            if self._follower is None:
                self._follower = self._open()
            follower = self._follower
            event = None if follower is None else follower.poll(Look.SLOT if self._follow else Look.PLACE)
            if follower is None or event is None:
                if not self._follow or self._is_end_reached():
                    return
                if not self._wait():
                    yield None
            elif isinstance(event, SegmentFound) and self._cursor is not None:
                yield from self._cursor.take(event.segment)
                follower.pass_segment(event.segment.header)
            elif isinstance(event, ContentsFound):
                yield from self._enter(executor, follower, event.contents)
            elif isinstance(event, GenerationFollows):
                self._continue_in(follower, event.claim)
            elif isinstance(event, DataLost):
                raise event.error

    def _is_end_reached(self) -> bool:
        """Whether no later record is wanted. The start may lie at ``end``, or after it."""
        reached = None if self._cursor is None else self._cursor.link.next
        return self._end is not None and reached is not None and reached >= self._end

    def _cut(self, batch: ShippedBatch) -> Columns:
        """Return the records of a batch between start and end."""
        columns, divisible = batch.columns, self._format is not None and is_divisible(self._format)
        if divisible:
            for sequence in (self._filter.sequence, self._end):
                columns = columns if sequence is None else _split_bytes(columns, sequence)
        columns = self._filter.cut(columns, batch.shipped)
        if self._end is None or not len(columns):
            return columns
        stop = columns.find(self._end)
        self._ended = stop < len(columns) or self.sequence_after(columns) >= self._end
        return columns.slice(0, stop)

    def _open(self) -> ReplicaFollower[WalSegment] | None:
        """A follower of the generation to begin in; None if there is none yet."""
        try:
            if self._named is None:
                contents = open_latest(self._client)
            else:
                contents = list_pieces(self._client, find_claim(self._client, self._named))
        except NothingToRestoreError as error:
            if self._follow or isinstance(error, EmptyLogError):
                return None
            raise
        return ReplicaFollower(
            self._client,
            contents.base.claim,
            self._read_slot,
            contents=contents,
            leaves_isolated=self._named is None,
            look_seconds=self._look_seconds,
            monotonic=self._clock.monotonic,
        )

    def _read_slot(self, _: Position) -> WalSegment | None:
        return None if self._cursor is None else self._cursor.read()

    def _enter(
        self, executor: ThreadPoolExecutor, follower: ReplicaFollower[WalSegment], contents: GenerationContents
    ) -> Iterator[ShippedBatch]:
        """Read the wanted part of the sealed segments, and move to the first WAL segment that may hold a wanted
        record."""
        base, place = contents.base, follower.slot
        self._first = base.first if place is None else None
        log_format = self._format = open_claimed_format(base.claim, self._formats)
        if contents.gap is not None:
            if place is not None and follower.skip(contents):
                return
            raise contents.gap
        link, last = base.link(), None
        wanted = StartRequest(place, self._filter.sequence, self._filter.time)
        start = find_start(self._client, contents, wanted, log_format)
        if start.entry is not None:
            follows = None if self._cursor is None else self._cursor.link.next
            yield from self._read_sealed(executor, base, start.entry, start.sealed, follows)
            place = None
        if start.wal == 0:
            self._cursor = WalCursor(self._client, executor, log_format, link, place)
        else:
            last = contents.wal[start.wal - 1].position
            try:
                self._cursor = WalCursor.after(self._client, executor, log_format, base.claim, last, place)
            except ReplicaGapError as error:
                raise PrunedError(str(last)) from error
        self._cursor.expect(contents.wal[start.wal :])
        follower.stand_at(self._cursor.slot, last)

    def _read_sealed(
        self, executor: ThreadPoolExecutor, base: BaseSnapshot, number: int, start: SealedStart, follows: int | None
    ) -> Iterator[ShippedBatch]:
        """``follows``: the sequence that follows what was read of the generation; None if nothing was."""
        for batch in read_history(self._client, executor, base, number, start, self._format):
            if follows is not None and len(batch.columns) and (first := int(batch.columns.sequences[0])) < follows:
                raise CorruptObjectError(batch.entry.key, "first sequence", f"{follows} or above", first)
            yield ShippedBatch(batch.columns, batch.shipped)

    def _continue_in(self, follower: ReplicaFollower[WalSegment], successor: Claim) -> None:
        """Continue in a generation that continues the current one, at the same place."""
        # A generation may have ended before it reached its predecessor's end. Then the reader has not got there yet.
        unreached = None if self._cursor is None else self._cursor.place
        at = unreached or follower.slot
        shift = find_shift(self._client, follower.claim, successor, at)
        is_read = at is not None and at != self._first
        place = Position(successor.generation, at.index + shift, at.offset) if at and is_read else None
        self._cursor = None
        follower.enter(successor, place)

    def _wait(self) -> bool:
        """Wait for the next poll. Returns False instead if ``timeout`` is over."""
        seconds, now = self._poll_interval, self._clock.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        if self._timeout is not None:
            seconds = min(seconds, self._idle_since + self._timeout - now)
        if seconds <= 0:
            return False
        slot = None if self._follower is None else self._follower.slot
        if slot is None:
            self._sleep(seconds)
        else:
            self._client.await_wal_segment(slot, seconds, self._sleep)
        return True

    def _sleep(self, seconds: float) -> None:
        """Wait for ``seconds``, or until the reader must end."""
        if self._stop is None:
            self._closed.wait(seconds)
            return
        until = self._clock.monotonic() + seconds
        while not self._is_stopped() and (left := until - self._clock.monotonic()) > 0:
            self._closed.wait(min(left, STOP_SECONDS))

    def _is_stopped(self) -> bool:
        return self._closed.is_set() or (self._stop is not None and self._stop.is_set())


def _split_bytes(columns: Columns, sequence: int) -> Columns:
    """Split the commit in which ``sequence`` lies in two there, if it lies within one. For format ``raw``."""
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
