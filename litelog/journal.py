"""Reads a replica as one journal: from any place to its end, or on and on as it grows, through its generations."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Self

import numpy as np

from litelog import wal_segment
from litelog.claim import Relation
from litelog.clock import SystemClock
from litelog.errors import (
    ConfigError,
    CorruptObjectError,
    DivergedError,
    NotFoundError,
    NothingToRestoreError,
    PrunedError,
    ReplicaGapError,
)
from litelog.layout import parse_claim, wal_key
from litelog.position import Position, epoch_of, generation
from litelog.reading.checked_read import read_checked
from litelog.reading.generation_choice import find_claim, find_latest
from litelog.reading.lineage import find_newer, read_claim, read_claim_of
from litelog.reading.wal_chain import check_run, expectation, first_link, link_behind, next_link
from litelog.reading.wal_search import HeaderReader, first_reaching, first_shipped, first_stamped, read_header
from litelog.registry import open_format
from litelog.restore.plan import list_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from litelog.claim import Claim
    from litelog.formats import Expectation, LogFormat
    from litelog.formats.columns import Columns
    from litelog.position import Generation
    from litelog.reading.wal_chain import Link
    from litelog.replica_client import ReplicaClient
    from litelog.wal_segment import WalHeader, WalSegment

POLLS_PER_LOOK = 30
"""After so many polls without news a follower looks for the next epoch: one GET."""

LOOK_SECONDS = 1800.0
"""After so long without news it looks whether its place is still there, and lists what lies behind it: half of the
grace for which WAL segments are kept at least."""

SEARCH_PARALLELISM = 8
"""Header requests at a time while a start is looked for."""

STOP_SECONDS = 0.1
"""How soon a waiting follower sees the caller's own stop event."""


class ReplicaReader:
    """Reads a replica's records, checked as a restore checks them. One thread reads; any thread may close.

    It follows the names that must come next, one GET each, and lists only to find its start, and at the end to tell
    an end from a hole. A generation's end leads it to the next one, at the same place.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of its own
        self,
        client: ReplicaClient,
        *,
        generation: Generation | None = None,
        start: int | None = None,
        start_time: int | None = None,
        follow: bool = False,
        poll_interval: float = 1.0,
        look_seconds: float = LOOK_SECONDS,
        stop: threading.Event | None = None,
        formats: Callable[[str], LogFormat] = open_format,
    ) -> None:
        """Read ``generation``, or the latest one.

        ``start``: the first record with that sequence or a higher one. ``start_time``: the first record with that time
        or a later one (microseconds since 1970); in a format without timestamps, the first WAL segment shipped then or
        later. Neither: the oldest record. ``poll_interval`` in seconds. After ``look_seconds`` without news a follower
        makes sure that it stands at the end and not at a hole. ``stop`` ends a follower as ``close`` does.
        ``formats`` gives the log format of a name.
        """
        if start is not None and start_time is not None:
            raise ConfigError("start at a sequence or at a time, not at both")
        self._client = client
        self._wanted = generation
        self._start, self._start_time = start, start_time
        self._follow, self._poll_interval, self._look_seconds = follow, poll_interval, look_seconds
        self._stop, self._closed = stop, threading.Event()
        self._formats = formats
        self._claim: Claim | None = None
        self._link: Link | None = None
        self._place: Position | None = None
        self._last: Position | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def position(self) -> Position | None:
        """Where the next WAL segment is expected; None before the first one was looked for."""
        return None if self._link is None else self._link.slot

    def close(self) -> None:
        """End ``batches``, also where it waits. Idempotent."""
        self._closed.set()

    def batches(self) -> Iterator[Columns]:
        """The records, one batch for each WAL segment that holds any. With ``follow`` it waits at the head.

        Raises NothingToRestoreError for a replica that holds nothing (a follower waits for its first records);
        PrunedError if retention overtook it; DivergedError where the log's history forks; CorruptObjectError and
        ReplicaGapError for what the replica's writer did not promise; StoreError.
        """
        steady = SystemClock().monotonic  # a suspended machine's retention goes on elsewhere
        idle, news = 0, steady()
        while not self._is_stopped():
            segment = self._read_slot() if self._link is not None or self._enter() else None
            if segment is None:
                idle += 1
                if not self._follow or steady() - news >= self._look_seconds:
                    self._look_around()
                    news = steady()
                elif idle % POLLS_PER_LOOK == 0:
                    self._look_for_successor()
                if not self._follow:
                    return
                self._wait()
                continue
            idle, news = 0, steady()
            batch = self._take_checked(segment)
            if batch is not None and len(batch):
                yield batch

    # --- finding a place

    def _enter(self) -> bool:
        """Stand at the first WAL segment that may hold what is wanted; False if the generation has not begun yet."""
        if self._claim is None:
            named = self._wanted
            try:
                self._claim = find_latest(self._client) if named is None else find_claim(self._client, named)
            except NothingToRestoreError:
                if self._follow:
                    return False
                raise
        claim = self._claim
        self._format = self._formats(claim.format)
        pieces, gap = list_pieces(self._client, claim)
        if gap is not None:
            raise gap
        positions = [piece.position for piece in pieces]
        if self._place is not None and self._place.index < claim.first:
            raise PrunedError(str(self._place))
        number = self._find_start(positions)
        if number == 0:
            try:
                self._link = read_checked(
                    lambda: self._client.read_snapshot(generation(claim.generation), claim.first),
                    partial(first_link, claim),
                )
            except NotFoundError:
                return False
        else:
            before = self._read(positions[number - 1], wal_segment.decode_checked)  # the chain begins with its digest
            if before is None:
                raise PrunedError(str(positions[number - 1]))
            self._link, self._last = link_behind(claim, before), positions[number - 1]
        return True

    def _find_start(self, positions: list[Position]) -> int:
        headers = HeaderReader(self._client, SEARCH_PARALLELISM)
        number = 0
        if self._place is not None:
            number = bisect_right(positions, self._place) - 1
        elif self._start is not None:
            number = first_reaching(positions, headers, self._start)
        elif self._start_time is not None:
            search = first_stamped if self._format.has_timestamps else first_shipped
            number = search(positions, headers, self._start_time)
        return max(0, min(number, len(positions) - 1))  # the last one is read again where it all lies behind it

    # --- reading on

    def _read_slot(self) -> WalSegment | None:
        assert self._link is not None
        return self._read(self._link.slot)

    def _read(
        self, position: Position, decode: Callable[[str, bytes], WalSegment] = wal_segment.decode
    ) -> WalSegment | None:
        try:
            return read_checked(partial(self._client.read_wal_segment, position), partial(decode, wal_key(position)))
        except NotFoundError:
            return None

    def _take_checked(self, segment: WalSegment) -> Columns | None:
        """Step behind ``segment``; where its bytes fail, read it again first: they may have changed on their way."""
        at, key = segment.header.position, segment.key
        try:
            return self._take(segment)
        except CorruptObjectError:
            read = partial(self._client.read_wal_segment, at)
            return self._take(read_checked(read, partial(wal_segment.decode_checked, key)))

    def _take(self, segment: WalSegment) -> Columns | None:
        """Step behind ``segment``, and give what it holds of what is wanted."""
        before = self._link
        assert before is not None
        after = next_link(before, segment, self._format)
        if after.ended:
            self._cross(segment.header)
            return None
        batch = self._decode(segment, before) if segment.header.length else None
        self._link, self._last = after, segment.header.position
        return None if batch is None else self._wanted_of(batch, segment.header)

    def _decode(self, segment: WalSegment, before: Link) -> Columns | None:
        header = segment.header
        data = memoryview(segment.data())
        expect = expectation(before, header)
        scan = self._format.scan(header.file, data, header.offset, expect)
        check_run(header, segment.key, scan, self._format)
        place, offset = self._place, header.offset
        if place is not None:
            end = Position(place.generation, header.index, header.end)
            if end <= place:
                return None
            if header.position < place:
                data, offset, expect = self._cut(segment, data, expect, place.offset)
            self._place = None
        return self._format.decode(header.file, data, offset, expect)

    def _cut(
        self, segment: WalSegment, data: memoryview, expect: Expectation, offset: int
    ) -> tuple[memoryview, int, Expectation]:
        """What lies behind ``offset``, where the generation before this one ended: behind a commit, here as there."""
        head = offset - segment.header.offset
        scan = self._format.scan(segment.header.file, data[:head], segment.header.offset, expect)
        if scan.end != offset:
            raise CorruptObjectError(segment.key, "end of the commit that its predecessor ended with", offset, scan.end)
        return data[head:], offset, scan.expectation

    def _wanted_of(self, batch: Columns, header: WalHeader) -> Columns:
        """The records from the start on; nothing is left out any more once one was found."""
        found = 0
        if self._start is not None:
            found = batch.find(self._start)
        elif self._start_time is not None and batch.timestamps is not None:
            late = batch.timestamps >= self._start_time
            found = int(np.argmax(late)) if late.any() else len(batch)
        elif self._start_time is not None and header.shipped < self._start_time:
            found = len(batch)
        if found < len(batch):
            self._start = self._start_time = None
        return batch.slice(found, len(batch)) if found else batch

    # --- generations

    def _cross(self, terminal: WalHeader) -> None:
        """Go on in the generation that a terminal leads to, at the same place."""
        key = terminal.successor or ""
        name = parse_claim(key)
        if name is None:
            raise CorruptObjectError(wal_key(terminal.position), f"names {key!r} as its successor's claim")
        try:
            successor = read_claim(self._client, name)
        except NotFoundError as error:
            raise ReplicaGapError(key, f"{terminal.position}, which names it") from error
        self._go_on_in(successor, terminal.position)

    def _go_on_in(self, successor: Claim, end: Position) -> None:
        """Go on in a generation that continues the one at hand, which is read to ``end``."""
        assert self._claim is not None
        claim, shift = successor, 0
        while True:
            if claim.relation is Relation.DIVERGED:
                raise DivergedError(self._client.url, f"{claim.key}: {claim.reason or 'the history forks'}")
            older = claim.predecessor
            if older is None or (older != self._claim.generation and epoch_of(generation(older)) <= self._claim.epoch):
                self._say_forked(claim)
            shift += claim.shift
            if older == self._claim.generation:
                break
            try:
                claim = read_claim_of(self._client, generation(older), claim)
            except NotFoundError as error:
                raise ReplicaGapError(error.key, f"{claim.key}, which names it") from error
        # A generation that ended before the place where its predecessor did leaves that place to be reached.
        at = self._place or end
        if self._place is not None or (at.index, at.offset) != (self._claim.first, 0):
            self._place = Position(generation(successor.generation), at.index + shift, at.offset)
        self._claim, self._link, self._last = successor, None, None

    def _say_forked(self, claim: Claim) -> NoReturn:
        assert self._claim is not None
        what = f"does not continue generation {self._claim.generation}"
        if claim.is_isolated or self._claim.is_isolated:
            raise DivergedError(self._client.url, f"{claim.key}: {what}: two isolated owners wrote at the same time")
        raise CorruptObjectError(claim.key, what)

    # --- at the head

    def _look_around(self) -> None:
        """Tell the head from a hole: nothing lies behind the slot, the last WAL segment is there, none succeeded."""
        link, claim = self._link, self._claim
        if link is None or claim is None:
            return
        try:
            if self._last is not None:
                read_header(self._client, self._last)
        except ReplicaGapError as error:
            raise PrunedError(str(self._last)) from error
        name = generation(claim.generation)
        behind = next(iter(self._client.wal_segments(name, link.slot)), None)
        if behind is None:
            self._look_for_successor()
        elif behind.position != link.slot and self._read_slot() is None:
            raise ReplicaGapError(str(link.slot), str(behind.position))

    def _look_for_successor(self) -> None:
        """Look at the next epoch: if its owner has begun, it ended this generation first. One GET while there is none;
        three if there is. (One listing, behind an isolated claim.)"""
        link, claim = self._link, self._claim
        if link is None or claim is None:
            return
        if claim.is_isolated:
            self._leave_isolated(claim)
            return
        successor = find_newer(self._client, claim)
        if successor is None:
            return
        try:
            self._client.read_snapshot(generation(successor.generation), successor.first)
        except NotFoundError:
            return
        if self._read_slot() is None:
            raise ReplicaGapError(str(link.slot), successor.key)

    def _leave_isolated(self, claim: Claim) -> None:
        """Go on in the latest generation, once it is another one than this: nobody ends what isolated owners write.

        One listing while there is no other claim. A reader who asked for this generation stays in it.
        """
        if self._wanted is not None or self._client.claims(claim.epoch) == [claim.name]:
            return
        newest = find_latest(self._client)
        if newest.generation == claim.generation or self._read_slot() is not None:
            return
        assert self._link is not None
        self._go_on_in(newest, self._link.slot)

    def _wait(self) -> None:
        if self._stop is None:
            self._closed.wait(self._poll_interval)
            return
        until = time.monotonic() + self._poll_interval
        while not self._is_stopped() and (left := until - time.monotonic()) > 0:
            self._closed.wait(min(left, STOP_SECONDS))

    def _is_stopped(self) -> bool:
        return self._closed.is_set() or (self._stop is not None and self._stop.is_set())
