"""Writes one generation's WAL segments, each to the one next slot: made in order, put one at a time, adopted where they
are there already."""

from __future__ import annotations

from collections import deque
from concurrent.futures import wait
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.errors import CorruptObjectError, ExistsError, LitelogError
from litelog.log.follower import Follower
from litelog.objects.position import Position, generation
from litelog.reading.segment_feed import SegmentFeed
from litelog.shipping.absence import Absence
from litelog.shipping.background_job import UnderWayError
from litelog.shipping.events import Shipped
from litelog.shipping.finished_segments import FinishedFiles
from litelog.shipping.refusal import adopt_own
from litelog.shipping.tally import add_to_tallies
from litelog.shipping.wal_encoder import Preparation
from litelog.stores.replica_client import WalSegmentInfo

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from litelog.log.source_position import Place
    from litelog.objects.claim import Claim
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.shipping.archiver import Archive
    from litelog.shipping.backlog import FirstContact
    from litelog.shipping.context import Pair
    from litelog.shipping.put_checks import PutChecks
    from litelog.shipping.state_keeper import StateKeeper
    from litelog.shipping.wal_encoder import Prepared

_AHEAD = 3
"""Large WAL segments in memory at a time, compressed: one on its way, two for when the store is faster again."""


class WalWriter:
    """The WAL segments of one generation. Used by one thread at a time; after any error it is in order."""

    def __init__(
        self,
        pair: Pair,
        claim: Claim,
        keeper: StateKeeper,
        archive: Archive,
        checks: PutChecks,
        away: FirstContact | None = None,
    ) -> None:
        """``away`` seals what was finished while the daemon was away; None: it was not."""
        state = keeper.state
        assert state is not None
        self._pair = pair
        self._claim = claim
        self._keeper = keeper
        self._archive = archive
        self._checks = checks
        source, clock = pair.source, pair.clock
        self.follower = Follower(source.folder, source.format, state.place, clock, state.folder_inode, state.oldest)
        name = generation(claim.generation)
        self.feed = SegmentFeed(name, Position(name, claim.first, 0))
        limit = pair.settings.max_segment_bytes
        self._preparation = Preparation(self.follower, claim, pair.workers.compressing, clock, limit)
        self._absence = Absence(away, claim, clock)
        self._files = FinishedFiles(source.folder, source.format, clock)
        self._queue: deque[Prepared] = deque()
        self._drained = False
        self._skipped = False
        self._noticed: float | None = None
        self._waiting_since = 0.0
        self.waiting = False
        """Whether the last ``ship`` ended because what is next is being sealed."""

    @property
    def queued(self) -> int:
        """WAL segments that are made, and not acknowledged."""
        return len(self._queue)

    @property
    def pending_bytes(self) -> int:
        """Bytes of the log at hand that are not acknowledged, as far as one look at it tells."""
        queued = sum(prepared.header.length for prepared in self._queue)
        return queued + self._preparation.pending_bytes + self.follower.pending_bytes()

    def notice(self, at: float) -> None:
        """What is shipped next has waited since ``at``, monotonic seconds. From any thread."""
        if self._noticed is None:
            self._noticed = at

    @property
    def index(self) -> int:
        """Of the log segment that is shipped next."""
        return self._keeper.state.place.index if self._keeper.state is not None else 0

    def changed(self) -> bool:
        """Whether there may be something to ship: cheap, and no request."""
        return not self._drained or self.follower.changed()

    def close(self) -> None:
        """Let go of all but the feed."""
        self._queue.clear()
        self.follower.close()

    def ship(self, going_on: Callable[[], bool]) -> bool:
        """Ship all that is there now; whether there was anything. Ends early once ``going_on()`` is false."""
        self._drained = self.waiting = False
        shipped, more = False, True
        stale = bool(self._queue) or self._preparation.pending_bytes > 0
        while (more or self._queue) and going_on():
            more = bool(self._queue) or self._prepare()
            if more:
                self._checks.check(self._queue[0])
                more = self._put_first()  # what comes meanwhile waits, or a busy log would be put without a pause
                shipped = True
            if stale and not (more or self._queue):
                more, stale = True, False  # that was made in a sync that failed: there may be more by now
        self._drained = not (more or self._queue or self.waiting)
        return shipped

    # --- making them

    def _prepare(self) -> bool:
        """Add the next WAL segment to the queue; whether there was one."""
        state = self._keeper.state
        assert state is not None
        if not self._queue:
            noticed, self._noticed = self._noticed, None
            self._waiting_since = self._pair.clock.monotonic() if noticed is None else noticed
        before = self._queue[-1] if self._queue else None
        place = state.place if before is None else before.after
        previous = state.digest if before is None else before.digest
        shipped = state.shipped if before is None else before.header.shipped
        if before is not None and self._absence.open and not place.offset:
            return False  # what is sealed comes behind what is acknowledged
        try:
            prepared = self._absence.next(place, previous, shipped) or self._prepare_run(place, previous, shipped)
        except UnderWayError:
            self.waiting = True
            return False
        if prepared is None:
            return False
        self._skipped = prepared.sealed is not None
        self._queue.append(prepared)
        return True

    def _prepare_run(self, place: Place, previous: str, shipped: int) -> Prepared | None:
        if self._skipped:
            self._preparation.rewind(place)
            self._skipped = False
        return self._preparation.next(previous, shipped)

    def _may_prepare(self) -> bool:
        """Whether there is room, and something that was there already, behind what is queued."""
        return len(self._queue) < _AHEAD and self._queue[-1].more and not self._preparation.failed

    # --- putting them

    def _put_first(self) -> bool:
        """Put the first of the queue; while a large one is on its way, make those behind it. Whether more is there."""
        prepared = self._queue[0]
        header = prepared.header
        is_large = prepared.sealed is None and self._preparation.is_bulk(header.length, final=header.final)
        if not (prepared.more and is_large):
            return self._put(prepared)
        put = self._pair.workers.putting.submit(self._put_object, prepared)
        try:
            while self._may_prepare() and self._prepare() and not put.done():
                pass
        except LitelogError as error:
            self._preparation.postpone(error)  # it comes behind what is queued
        finally:
            wait([put])
        if _was_refused(put):
            self._resolve_refusal(prepared)  # what was made meanwhile is made again, behind what is there
            return True
        self._acknowledge(prepared)
        return prepared.more

    def _put(self, prepared: Prepared) -> bool:
        try:
            self._put_object(prepared)
        except ExistsError:
            self._resolve_refusal(prepared)
            return True
        self._acknowledge(prepared)
        return prepared.more

    def _put_object(self, prepared: Prepared) -> None:
        self._pair.client.write_wal_segment(prepared.header.position, prepared.body)

    def _acknowledge(self, prepared: Prepared) -> None:
        self._queue.popleft()
        self._advance(prepared.start, prepared.header, prepared.digest, prepared.after, prepared.sealed, prepared.size)
        self._tell(prepared.header, prepared.size)

    def _resolve_refusal(self, prepared: Prepared) -> None:
        """The slot is taken: by a successor or another owner (then we are fenced), or by what we put ourselves."""
        try:
            own = adopt_own(self._pair.client, self.follower, self._files, prepared)
        except CorruptObjectError as error:
            self._checks.leave_slot(error)
        self._queue.clear()
        self._preparation.rewind(own.after)
        self._skipped = False
        size = len(own.there.body)
        self._advance(prepared.start, own.there.header, own.there.digest, own.after, own.sealed, size)
        self._tell(own.there.header, size)

    def _advance(
        self, start: Place, header: WalHeader, digest: str, place: Place, sealed: SnapshotEntry | None, size: int
    ) -> None:
        state = self._keeper.state
        assert state is not None
        # before the state: it may know of more, and not of less
        self._archive.shipped(start, header, digest, sealed)
        self._checks.succeeded()
        self._keeper.state = replace(
            state,
            digest=digest,
            last=str(header.position),
            shipped=header.shipped,
            place=place,
            oldest=self.follower.oldest,
            tallies=add_to_tallies(state.tallies, header.position, size, self._archive.state.snapshot),
        )

    def _tell(self, header: WalHeader, size: int) -> None:
        """Say that a WAL segment is durable: before the next one is put, as iterators need it."""
        self.feed.publish(WalSegmentInfo(header.position, size))
        pair = self._pair
        waited = pair.clock.monotonic() - self._waiting_since
        pair.listener.shipped(Shipped(pair.source.folder, pair.client.url, header, size, waited))


def _was_refused(put: Future[None]) -> bool:
    try:
        put.result()
    except ExistsError:
        return True
    return False
