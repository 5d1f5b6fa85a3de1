"""One log to one replica: what is shipped next, and where it stands. When it is done is the replicator's matter."""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import wait
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog import claim as claims
from litelog.errors import (
    DivergedError,
    ExistsError,
    FencedError,
    GenerationMismatchError,
    LitelogError,
    NotYetAvailableError,
)
from litelog.event_fields import fields
from litelog.log.follower import Follower, GapError
from litelog.position import Position, generation
from litelog.replica_client import WalSegmentInfo
from litelog.segment_feed import SegmentFeed
from litelog.shipping.archive import Archive
from litelog.shipping.archive_state import read_state
from litelog.shipping.fencing import GRACE_SECONDS
from litelog.shipping.listener import Shipped
from litelog.shipping.pair import Pair
from litelog.shipping.preparation import Preparation
from litelog.shipping.refusal import adopt_own
from litelog.shipping.settings import Settings
from litelog.shipping.state_keeper import StateKeeper
from litelog.shipping.truncating import ReplicatedNotes

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from litelog.claim import Claim
    from litelog.clock import Clock
    from litelog.log.place import Place
    from litelog.replica_client import ReplicaClient
    from litelog.segment_iterator import SegmentIterator
    from litelog.shipping.listener import Listener
    from litelog.shipping.ownership import Owner
    from litelog.shipping.pair import Source, Workers
    from litelog.shipping.preparation import Prepared
    from litelog.shipping.replica_state import ReplicaState, StateFolder
    from litelog.snapshot import Snapshot
    from litelog.wal_segment import WalHeader

_logger = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
"""How often an isolated owner that ships looks for a newer claim: one listing. No put of its own is refused."""

_AHEAD = 3
"""Large WAL segments in memory at a time, compressed: one on its way, two for when the store is faster again."""


class _LostSegmentError(DivergedError):
    """It is the replica that lacks something, and not the log: a new generation may continue this one."""


class Replica:
    """Ships one log to one replica. Used by one thread at a time.

    After any error it is in order: the next ``sync`` goes on. FencedError and CorruptionError are for good.
    """

    def __init__(
        self,
        source: Source,
        client: ReplicaClient,
        folder: StateFolder,
        owner: Owner,
        workers: Workers,
        clock: Clock,
        listener: Listener,
        settings: Settings | None = None,
    ) -> None:
        self._source = source
        self._client = client
        self._folder = folder
        self._owner = owner
        self._workers = workers
        self._clock = clock
        self._listener = listener
        self._settings = settings or Settings()
        self._keeper = StateKeeper(folder, clock)
        self._notes = ReplicatedNotes(folder.path, source.folder)
        self._archive: Archive | None = None
        self._claim: Claim | None = None
        self._follower: Follower | None = None
        self._preparation: Preparation | None = None
        self._feed: SegmentFeed | None = None
        self._fork: DivergedError | None = None
        self._fenced: FencedError | None = None
        self._queue: deque[Prepared] = deque()
        self._drained = False
        self._noticed: float | None = None
        self._waiting_since = 0.0
        self._proved_at = 0.0
        self._looked_at = 0.0
        self.on_change: Callable[[], None] = _do_nothing
        """Called, from any thread, when the archive's ``due`` may have changed."""
        self.on_replicated: Callable[[], None] = _do_nothing
        """Called, in the background, when more log segments are sealed and in a durable snapshot, and noted so."""

    # --- what the replicator asks

    @property
    def archive(self) -> Archive | None:
        """Its sealed segments and snapshots; None before the first sync."""
        return self._archive

    @property
    def started(self) -> bool:
        """Whether it has a generation, and so a position."""
        return self._state is not None

    @property
    def acknowledged(self) -> tuple[Position, str] | None:
        """The last WAL segment that is durable, and its SHA-256; None where there is none in this generation."""
        state = self._state
        return None if state is None or state.last is None else (Position.parse(state.last), state.digest)

    @property
    def position(self) -> Position | None:
        """Every byte before it is acknowledged; None before the first sync."""
        if self._state is None or self._claim is None:
            return None
        place = self._state.place
        return Position(generation(self._claim.generation), place.index, place.offset)

    @property
    def sequence(self) -> int | None:
        """The sequence behind the last acknowledged record."""
        return self._state.place.sequence if self._state is not None else None

    def subscribe(self, start: Position | None = None) -> SegmentIterator:
        """The WAL segments of the generation at hand, from the slot ``start`` (its first) on, and then each as it is
        acknowledged. From any thread.

        A new generation ends it with GenerationMismatchError. NotYetAvailableError before the first sync; PrunedError
        where a snapshot covers ``start`` and it was removed (``SegmentFeed.subscribe``).
        """
        feed = self._feed
        if feed is None:
            raise NotYetAvailableError(f"{self._client.url}: no generation yet; the first sync has not been")
        return feed.subscribe(self._client.wal_segments, start)

    @property
    def place(self) -> Place | None:
        """Where the log is read on, all before it being acknowledged; None before the first sync. From any thread."""
        state = self._state
        return state.place if state is not None else None

    @property
    def queued(self) -> int:
        """WAL segments that are made, and not acknowledged."""
        return len(self._queue)

    def notice(self) -> None:
        """Something happened in the log's folder: what is shipped next has waited since now. From any thread."""
        if self._noticed is None:
            self._noticed = self._clock.monotonic()

    @property
    def settled(self) -> bool:
        """Whether ``changed`` can be relied on."""
        return self._follower is not None and self._follower.settled

    def changed(self) -> bool:
        """Whether there may be something to ship: cheap, and no request."""
        if self._follower is None or self._preparation is None or self._fork is not None:
            return True
        return not self._drained or self._follower.changed()

    def pending_bytes(self) -> int:
        """Bytes of the log at hand that are not acknowledged, as far as one look at it tells."""
        queued = sum(prepared.header.length for prepared in self._queue)
        if self._follower is None or self._preparation is None:
            return queued
        return queued + self._preparation.pending_bytes + self._follower.pending_bytes()

    def sync(self, going_on: Callable[[], bool] = lambda: True) -> bool:
        """Ship all that is there now; whether there was anything. Ends early once ``going_on()`` is false.

        What is appended meanwhile may be left to the next sync; ``changed`` tells. Once fenced, always fenced.
        """
        if self._fenced is None and self._archive is not None:
            self._fenced = self._archive.fenced
        if self._fenced is not None:
            raise self._fenced
        try:
            shipped = self._ship_or_fork(going_on)
        except FencedError as error:
            self._fenced = error
            if self._archive is not None:
                self._archive.stop()
            raise
        finally:
            if self._archive is not None:
                self._archive.poke()
        return shipped

    def close(self) -> None:
        """Save the position and let go of everything but the client."""
        if self._archive is not None:
            self._archive.stop()
        try:
            self._keeper.save()
        finally:
            self._keeper.release()
            self._queue.clear()
            if self._follower is not None:
                self._follower.close()
                self._follower = None
            if self._feed is not None:
                self._feed.close()
            self._folder.close()

    # --- generations

    def _start(self) -> None:
        self._take(self._owner.resume())

    def _begin_anew(self, fork: DivergedError) -> None:
        """The fork is kept in mind until the new generation has begun: the old one may be closed by then."""
        log, replica = self._source.folder, self._client.url
        extra = fields("diverged", log=log, replica=replica, position=self.position, reason=fork.reason)
        _logger.warning("%s: %s; a new generation begins in %s", log, fork.reason, replica, extra=extra)
        start_file = fork.file if isinstance(fork, GapError) else ""
        forked = not isinstance(fork, _LostSegmentError)
        if self._archive is not None:
            self._archive.stop()
        self._keeper.release()
        self._notes.lower()
        self._take(self._owner.begin(self._state, fork.reason, start_file, forked=forked))
        self._fork = None

    def _take(self, state: ReplicaState) -> None:
        assert state.claim is not None
        if self._follower is not None:
            self._follower.close()
        self._queue.clear()
        self._state = state
        self._claim = claims.parse(state.claim)
        if self._feed is not None:
            self._feed.fail(GenerationMismatchError(self._feed.generation, self._claim.generation))
        name = generation(self._claim.generation)
        self._feed = SegmentFeed(name, Position(name, self._claim.first, 0))
        self._follower = Follower(self._source.folder, self._source.format, state.place, self._clock)
        self._preparation = Preparation(
            self._follower, self._claim, self._workers.compressing, self._clock, self._settings.max_segment_bytes
        )
        self._archive = self._open_archive(state, self._claim)
        self._proved_at = self._looked_at = self._clock.monotonic()
        self._listener.began(self._source.folder, self._client.url, self._claim)

    def _open_archive(self, state: ReplicaState, claim: Claim) -> Archive:
        pair = Pair(self._source, self._client, self._workers, self._clock, self._listener, self._settings)
        kept = read_state(state.archive, claim.generation, self._folder.boot, self._clock.monotonic())
        archive = Archive(pair, claim, kept, state.place.index, self._keeper.save)
        archive.on_change = self.on_change
        archive.on_snapshot = self._note_replicated
        self._notes.begin(claim.generation)
        self._keeper.take(archive)
        return archive

    def _note_replicated(self, snapshot: Snapshot) -> None:
        if self._notes.note(snapshot):
            self.on_replicated()

    def _prove_if_due(self) -> None:
        if self._clock.monotonic() - self._proved_at <= GRACE_SECONDS / 2:
            return
        assert self._state is not None
        if not self._owner.prove(self._state):
            raise _LostSegmentError(
                self._source.folder, "the replica no longer holds the last WAL segment that was shipped"
            )
        self._proved_at = self._clock.monotonic()

    def _look_if_due(self) -> None:
        assert self._claim is not None
        assert self._state is not None
        if self._claim.is_isolated and self._clock.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._owner.look_for_newer(self._state)
            self._looked_at = self._clock.monotonic()

    def _keep_promise(self) -> None:
        """Before a generation comes to where its predecessor ended, see that the log still holds that.

        It may have been rewound since the claim. Until then readers stay with the predecessor.
        """
        assert self._state is not None
        assert self._claim is not None
        promised, header = self._state.promised, self._queue[0].header
        if promised is None:
            return
        index = promised.index + self._claim.shift
        missed = header.file == promised.file and header.index != index
        if (header.index, header.end) < (index, promised.end) and not missed:
            return
        if missed or not self._owner.keeps(self._state):
            raise DivergedError(self._source.folder, "was rewound before all was shipped that it continues")
        self._state = replace(self._state, promised=None)

    # --- shipping

    def _ship_or_fork(self, going_on: Callable[[], bool]) -> bool:
        if self._fork is None:
            try:
                return self._ship(going_on)
            except DivergedError as error:
                self._fork = error
        self._begin_anew(self._fork)
        try:
            return self._ship(going_on)
        except DivergedError as error:
            self._fork = error
            raise

    def _ship(self, going_on: Callable[[], bool]) -> bool:
        if self._follower is None:
            self._start()
        assert self._preparation is not None
        self._drained = False
        shipped, more = False, True
        stale = bool(self._queue) or self._preparation.pending_bytes > 0
        while (more or self._queue) and going_on():
            more = bool(self._queue) or self._prepare()
            if more:
                self._prove_if_due()
                self._look_if_due()
                self._keep_promise()
                more = self._put_first()  # what comes meanwhile waits, or a busy log would be put without a pause
                shipped = True
            if stale and not (more or self._queue):
                more, stale = True, False  # that was made in a sync that failed: there may be more by now
        self._drained = not (more or self._queue)
        self._keeper.save_if_due()
        return shipped

    def _put_first(self) -> bool:
        """Put the first of the queue; while a large one is on its way, make those behind it. Whether more is there."""
        prepared = self._queue[0]
        assert self._preparation is not None
        if not (prepared.more and self._preparation.is_bulk(prepared.header.length, final=prepared.header.final)):
            return self._put(prepared)
        put = self._workers.putting.submit(self._put_object, prepared)
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

    def _may_prepare(self) -> bool:
        """Whether there is room, and something that was there already, behind what is queued."""
        assert self._preparation is not None
        return len(self._queue) < _AHEAD and self._queue[-1].more and not self._preparation.failed

    def _put(self, prepared: Prepared) -> bool:
        try:
            self._put_object(prepared)
        except ExistsError:
            self._resolve_refusal(prepared)
            return True
        self._acknowledge(prepared)
        return prepared.more

    def _put_object(self, prepared: Prepared) -> None:
        self._client.write_wal_segment(prepared.header.position, prepared.body)

    def _prepare(self) -> bool:
        """Add the next WAL segment to the queue; whether there was one."""
        assert self._state is not None
        assert self._preparation is not None
        if not self._queue:
            noticed, self._noticed = self._noticed, None
            self._waiting_since = self._clock.monotonic() if noticed is None else noticed
        before = self._queue[-1] if self._queue else None
        prepared = self._preparation.next(
            previous=before.digest if before is not None else self._state.digest,
            shipped=before.header.shipped if before is not None else self._state.shipped,
        )
        if prepared is None:
            return False
        self._queue.append(prepared)
        return True

    def _acknowledge(self, prepared: Prepared) -> None:
        self._queue.popleft()
        self._advance(prepared.start, prepared.header, prepared.digest, prepared.after)
        self._tell(prepared.header, prepared.size)

    def _advance(self, start: Place, header: WalHeader, digest: str, place: Place) -> None:
        assert self._state is not None
        assert self._archive is not None
        self._archive.shipped(start, header, digest)  # before the state: it may know of more, and not of less
        self._proved_at = self._clock.monotonic()
        self._state = replace(
            self._state, digest=digest, last=str(header.position), shipped=header.shipped, place=place
        )

    def _tell(self, header: WalHeader, size: int) -> None:
        """Say that a WAL segment is durable: before the next one is put, as iterators need it."""
        assert self._feed is not None
        self._feed.publish(WalSegmentInfo(header.position, size))
        waited = self._clock.monotonic() - self._waiting_since
        self._listener.shipped(Shipped(self._source.folder, self._client.url, header, size, waited))

    def _resolve_refusal(self, prepared: Prepared) -> None:
        """The slot is taken: by a successor or another owner (then we are fenced), or by what we put ourselves."""
        assert self._follower is not None
        assert self._preparation is not None
        there, run = adopt_own(self._client, self._follower, prepared)
        self._queue.clear()
        self._preparation.rewind(run.after)
        self._advance(prepared.start, there.header, there.digest, run.after)
        self._tell(there.header, len(there.body))

    # --- state

    @property
    def _state(self) -> ReplicaState | None:
        return self._keeper.state

    @_state.setter
    def _state(self, state: ReplicaState) -> None:
        self._keeper.state = state


def _was_refused(put: Future[None]) -> bool:
    try:
        put.result()
    except ExistsError:
        return True
    return False


def _do_nothing() -> None: ...
