"""Keeps a restored copy of a log up to date: appends the replica's new data, checked, durable and in order."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Self

from litelog.errors import (
    CorruptObjectError,
    NothingToRestoreError,
    PrunedError,
    ReplicaGapError,
    StoreError,
)
from litelog.events import fields, is_worth_logging
from litelog.formats.capabilities import has_side_files
from litelog.objects.chain import ChainState, Identity, next_state, state_after
from litelog.reading.fetch import confirm_digest
from litelog.reading.follower import LOOK_SECONDS, ReplicaFollower, SegmentFound
from litelog.reading.generations import require_replica
from litelog.reading.search import find_segment, read_header
from litelog.reading.successors import find_shift, may_be_late
from litelog.restore.followed_side_files import FollowedSideFiles
from litelog.restore.generation_bytes import GenerationBytes
from litelog.restore.growing_copy import GrowingCopy
from litelog.restore.history_plan import Target, find_plan
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor
    from types import TracebackType

    from litelog.formats import LogFormat
    from litelog.objects.position import Position
    from litelog.objects.wal_segment import WalSegment
    from litelog.restore.generation_bytes import ByteRun
    from litelog.restore.plan import RestorePlan
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)

READING_THREADS = 4
"""How many threads read ahead while a copy catches up."""

NEXT_BYTES = 16 << 20
"""How many bytes before the end of a log segment the next one is read, too: no thread waits for the other."""

ATTEMPTS = 3
"""The follower ends if it misses an object this many times in a row. Objects that change during a listing, or a root
that is away for a moment, explain fewer."""


class CopyFollower:
    """Appends to the copy in ``folder`` the data of a replica's latest generation that the copy lacks. One thread.

    A kill at any moment leaves a copy whose last log segment may end inside a commit, as after a crash of a writer. A
    restore with ``delta`` repairs it. A poll without news costs one GET, for the next name.
    """

    def __init__(
        self,
        client: ReplicaClient,
        folder: str,
        plan: RestorePlan,
        log_format: LogFormat,
        *,
        look_seconds: float = LOOK_SECONDS,
        clock: Clock | None = None,
        copy: GrowingCopy | None = None,
    ) -> None:
        """Make a follower, and lock the copy.

        Args:
            client: The replica.
            folder: The copy.
            plan: The plan from which the copy was restored, without a bound.
            log_format: The log's format.
            look_seconds: After this many seconds without news, or while it lags, the follower checks that it stands at
                the end, and not at a hole.
            clock: The source of monotonic times; None: the system's clock.
            copy: The copy, locked already by the caller; None: it is locked here.

        Raises:
            LockedError: Another follower has the copy.
        """
        self._client = client
        self._format = log_format
        monotonic = self._monotonic = (clock or SystemClock()).monotonic
        self._follower = ReplicaFollower(
            client, plan.claim, partial(find_segment, client), look_seconds=look_seconds, monotonic=monotonic
        )
        """Without a slot until ``catch_up`` has found what the copy lacks."""
        self._end = plan.end
        """The end of the copy."""
        self._state: ChainState | None = None
        """The state of the chain at the slot; None if unknown."""
        self._last: Position | None = None
        """The position of the last WAL segment that was appended from this generation; None if none was."""
        self.copy = copy or GrowingCopy(folder, log_format, monotonic)
        self._side_files = FollowedSideFiles(client, self.copy.write_side_file) if has_side_files(log_format) else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.copy.close()

    @property
    def appended(self) -> int:
        """The number of appended bytes."""
        return self.copy.appended

    @property
    def position(self) -> Position | None:
        """The position of the next WAL segment."""
        return self._follower.slot

    @property
    def seconds_since_news(self) -> float | None:
        """How long ago it last appended bytes, in seconds; None if it never did."""
        return None if self.copy.appended_at is None else max(0.0, self._monotonic() - self.copy.appended_at)

    def run(self, stop: threading.Event, poll_interval: float = 1.0) -> None:
        """Follow until ``stop`` is set. Waits while a store fails temporarily.

        Args:
            stop: Ends the follower.
            poll_interval: Seconds between polls.

        Raises:
            PrunedError: Retention overtook the copy.
            DivergedError: The log's history forks.
            CorruptObjectError, ReplicaGapError: An object is damaged or missing.
            OutputError: The copy cannot be written.
            StoreError: A request failed, and another attempt would not help.
        """
        failures = refusals = 0
        while not stop.is_set():
            try:
                has_news = self._try_step()
                failures = refusals = 0
                if has_news:
                    continue
            except StoreError as error:
                if not error.retryable:
                    raise
                refusals += 1
                self._report(error, refusals)
            except (NothingToRestoreError, PrunedError, ReplicaGapError) as error:
                failures += 1
                if failures == ATTEMPTS:
                    raise
                self._follower.enter(self._follower.claim, None)
                extra = fields("gap", replica=self._client.url, consecutive_failures=failures)
                _logger.warning("%s: %s; looking again", self._client.url, error, extra=extra)
            if self.position is None or refusals:
                stop.wait(poll_interval)
            else:
                self._client.await_wal_segment(self.position, poll_interval, stop.wait)

    def _try_step(self) -> bool:
        """Take a step. Raises StoreError if the replica's root is away."""
        try:
            if self._follower.slot is None:
                self.catch_up()
            return self.step()
        except (NothingToRestoreError, PrunedError, ReplicaGapError) as lack:
            require_replica(self._client, lack)
            raise

    def _report(self, error: StoreError, refusals: int) -> None:
        if is_worth_logging(refusals):
            message = "%s: failure %d in a row, trying again: %s"
            where = {"replica": self._client.url, "position": str(self.position)}
            extra = fields("follow-failed", **where, consecutive_failures=refusals)
            _logger.warning(message, self._client.url, refusals, error, extra=extra)

    def step(self) -> bool:
        """Append the next data. Return False if there is none yet."""
        if self._side_files is not None:
            self._side_files.poll(self._follower.claim)
        follower, before = self._follower, self.copy.appended
        if follower.slot is None:
            self.catch_up()
            return False
        while (event := follower.poll()) is not None:
            if not isinstance(event, SegmentFound) or event.segment.header.sealed is not None:
                self.catch_up()
                return self.copy.appended > before
            header = event.segment.header
            if header.successor is None:
                self._take(event.segment)
                self.copy.flush()
            follower.pass_segment(header)
            if header.successor is None:
                return True
        return False

    def catch_up(self, plan: RestorePlan | None = None) -> None:
        """Append all data that the copy lacks, by ``plan`` if it was made just now, or by another one. The copy stays
        unchanged while it is unknown whether the latest generation has begun. Raises PrunedError if retention removed a
        part of the missing data."""
        plan, claim = plan or find_plan(self._client, Target(), self._format), self._follower.claim
        is_same = plan.claim.generation == claim.generation
        is_new = not plan.pieces and plan.base.start.index == plan.claim.first
        if not is_same and is_new and may_be_late(self._client, plan.claim):
            return
        held = self.copy.orders()
        self._require_joined(plan, held, 0 if is_same else find_shift(self._client, claim, plan.claim, self._end))
        with ThreadPoolExecutor(READING_THREADS, "catch-up") as executor:
            for part in plan.parts:
                self._append_part(part, plan, held, executor)
        self.copy.flush()
        last = read_header(self._client, plan.pieces[-1].position) if plan.pieces else None
        self._follower.enter(plan.claim, None)
        if last is None:
            self._follower.stand_at(plan.base.start)
            self._state = None if plan.base.snapshot is None else plan.base.link()
        else:
            self._follower.pass_segment(last)
            before = ChainState.before(last, Identity.of(plan.claim), plan.claim.first)
            self._state = before.after(last, digest="")
        self._end, self._last = self._follower.slot or self._end, None
        if self._side_files is not None:
            self._side_files.take(plan.base.snapshot, self._end.index)

    def _append_part(
        self, part: RestorePlan, plan: RestorePlan, held: Sequence[tuple[object, ...]], executor: Executor
    ) -> None:
        """Append what the copy lacks of one part of a plan. ``held``: the orders of the copy's log segments before."""
        history = GenerationBytes(self._client, part.claim, self._format, part.pieces, [p.entry for p in part.sealed])
        newest = next(reversed(plan.all_files), None)
        # The copy has the records of the others; or the log has them again, and a copy only grows at its end.
        files = [file for file in part.files if not self.copy.is_before_end(file.name, held)]
        begun: Iterator[ByteRun] | None = None
        for file, following in zip_longest(files, files[1:]):
            if file is not newest and self.copy.size_of(file.name) == file.size:
                continue
            self.copy.open_segment(file.name, self._follower.claim.key)
            if self.copy.size > file.size and file is newest:
                continue  # the listing lagged, or the newest generation has not come as far
            chunks, begun = begun or history.chunks(file.name, self.copy.size, file.size, executor), None
            for chunk in chunks:
                self._take_chunk(chunk)
                is_near = begun is None and file.size - self.copy.size <= NEXT_BYTES
                if is_near and following is not None and self.copy.size_of(following.name) is None:
                    begun = _begin(history.chunks(following.name, 0, following.size, executor), executor)

    def _require_joined(self, plan: RestorePlan, held: Sequence[tuple[object, ...]], shift: int) -> None:
        """Raise PrunedError unless the replica's contents begin in a log segment of the copy, or right after its end.

        ``held``: the orders of the copy's log segments. ``shift``: added to an index of the followed generation, gives
        that of the plan's generation.
        """
        first = next(iter(plan.all_files), None)
        order = self._format.segment_order(first.name) if first is not None else None
        if first is None or order is None or not held or order <= max(held):
            return
        if (self._end.index + shift, self._end.offset) != (first.index, 0):
            raise PrunedError(str(self._end))

    def _take(self, segment: WalSegment) -> None:
        header, key = segment.header, segment.key
        if self._state is None:
            state = state_after(self._follower.claim, segment)
        else:
            link = confirm_digest(self._client, self._state, self._last, header)
            state = next_state(link, segment, self._format)
        self.copy.open_segment(header.file, key)
        if header.offset != self.copy.size:
            raise CorruptObjectError(key, "offset", self.copy.size, header.offset)
        if header.length:
            data = segment.data()
            self.copy.append(key, data, header.crc_total, is_finished=header.final)
        self._state, self._end, self._last = state, header.next_slot, header.position
        if header.final and self._side_files is not None:
            self._side_files.expect(self._end.index)

    def _take_chunk(self, chunk: ByteRun) -> None:
        self.copy.append(f"{chunk.replica}: {self.copy.name}", chunk.data, chunk.crc_total, is_finished=True)


def _begin(chunks: Iterator[ByteRun], executor: Executor) -> Iterator[ByteRun]:
    """Let a thread begin to read chunks. Returns the chunks, for the caller's thread."""
    first = executor.submit(lambda: [*islice(chunks, 1)])
    return chain.from_iterable(wait() for wait in (first.result, lambda: chunks))
