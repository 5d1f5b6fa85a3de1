"""Ships one generation's WAL segments, one PUT at a time, each into the one next slot.

Before a PUT it checks what the owner must still hold. A refused PUT is resolved by the object in the slot: the owner
adopts its own object, and is fenced by another owner's.

Specified in litelog/shipping/README.md#put-a-wal-segment.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, DivergedError, ExistsError, FencedError, LitelogError, StoreError
from litelog.formats import MAX_COMMIT_BYTES
from litelog.log.follower import Follower
from litelog.objects import wal_segment
from litelog.objects.layout import parse_claim, wal_key
from litelog.objects.position import Position
from litelog.reading.fetch import read_verified
from litelog.reading.generations import read_claim
from litelog.reading.segment_feed import SegmentFeed
from litelog.reading.wal_cursor import describe_sealed
from litelog.shipping.backlog import Backlog
from litelog.shipping.claiming import SucceededError
from litelog.shipping.events import WalSegmentShipped
from litelog.shipping.finished_segments import FinishedSegments, NotSealableError
from litelog.shipping.state import add_to_tallies
from litelog.shipping.wal_encoder import WalEncoder
from litelog.stores.replica_client import WalSegmentInfo

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from litelog.log.source_position import SourcePosition
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader, WalSegment
    from litelog.shipping.archiver import Archiver
    from litelog.shipping.backlog import BacklogSealer
    from litelog.shipping.context import ReplicaContext
    from litelog.shipping.ownership_guard import OwnershipGuard
    from litelog.shipping.state_keeper import StateKeeper
    from litelog.shipping.wal_encoder import EncodedWalSegment
    from litelog.stores.replica_client import ReplicaClient

_MOST_AHEAD = 3
"""How many large WAL segments are in memory, compressed: one being put, two for when the store is faster again. There
are fewer if the process has no room for what follows them."""


class WalShipper:
    """Ships the WAL segments of one generation. Used by one thread at a time. It can be used after any error."""

    def __init__(
        self,
        context: ReplicaContext,
        keeper: StateKeeper,
        archive: Archiver,
        guard: OwnershipGuard,
        backlog_sealer: BacklogSealer | None = None,
    ) -> None:
        """``backlog_sealer`` seals the log segments that were finished while the daemon was down; None: it was not."""
        state = keeper.state
        self._context = context
        self._keeper = keeper
        self._archive = archive
        self._guard = guard
        source, clock, claim = context.source, context.clock, state.claim
        self.follower = Follower(
            source.folder,
            source.format,
            state.place,
            clock,
            state.folder_inode,
            state.oldest,
            source.failed_syncs,
            source.watermark,
        )
        name = claim.generation
        self.feed = SegmentFeed(name, Position(name, claim.first, 0))
        self._encoder = WalEncoder(context, claim, self.follower)
        self._backlog = Backlog(context, claim, backlog_sealer)
        self._files = FinishedSegments(source, clock)
        self._queue: deque[EncodedWalSegment] = deque()
        self._drained = False
        self._skipped = False
        self._noticed: float | None = None
        self._waiting_since = 0.0
        self._released_bytes = 0
        self._failing = False
        """Whether a request has failed since a WAL segment was acknowledged."""
        self.waiting = False
        """Whether the last ``ship`` ended because the next log segment is being sealed."""

    @property
    def queued(self) -> int:
        """How many WAL segments are encoded but not acknowledged."""
        return len(self._queue)

    @property
    def pending_bytes(self) -> int:
        """About how many bytes of the current log segment are not acknowledged."""
        queued = sum(encoded.header.length for encoded in self._queue)
        encoded_bytes = queued + self._encoder.pending_bytes
        return max(self._released_bytes, encoded_bytes + self.follower.pending_bytes())

    def notice(self, at: float) -> None:
        """Record that bytes to ship were noticed at ``at``, in monotonic seconds. Any thread may call it."""
        if self._noticed is None:
            self._noticed = at

    @property
    def index(self) -> int:
        """The index of the log segment that is shipped next."""
        return self._keeper.state.place.index

    def changed(self) -> bool:
        """Whether there may be something to ship. Cheap; makes no request."""
        return not self._drained or self.follower.changed()

    def close(self) -> None:
        """Release everything except the feed."""
        self._clear_queue()
        self._encoder.close()
        self.follower.close()

    def give_up(self) -> None:
        """Release what is encoded but not put, as shipping has ended for good: its room would be missing for the other
        replicas of the process. Another ``ship`` encodes it again. Idempotent."""
        if not self._queue and not self._encoder.pending_bytes:
            return
        self._released_bytes = self.pending_bytes
        self._clear_queue()
        self._encoder.close()
        self.follower.rewind(self._keeper.state.place)
        self._drained = self._skipped = False

    def _keep_first(self) -> None:
        """Release what is encoded after the first of the queue, which is put again. A store may fail for hours, and the
        other replicas of the process need the room. An error that the log had is kept for its turn."""
        self._failing = True
        if not self._queue or self._encoder.failed or not (len(self._queue) > 1 or self._encoder.pending_bytes):
            return
        self._released_bytes = self.pending_bytes
        first = self._queue.popleft()
        self._clear_queue()
        self._queue.append(first)
        self._encoder.rewind(first.after)
        self._skipped = False

    def ship(self, should_continue: Callable[[], bool]) -> bool:
        """Ship everything that is there now. Return whether there was anything. Stops early once ``should_continue()``
        is false."""
        self._drained = self.waiting = False
        try:
            return self._ship(should_continue)
        except StoreError:
            self._keep_first()
            raise

    def _ship(self, should_continue: Callable[[], bool]) -> bool:
        shipped, more = False, True
        stale = bool(self._queue) or self._encoder.pending_bytes > 0
        while (more or self._queue) and should_continue():
            more = bool(self._queue) or self._encode_next()
            if more:
                self._guard.check(self._queue[0])
                more = self._put_first()  # bytes that arrive meanwhile wait, or a busy log would be put without a pause
                shipped = True
            if stale and not (more or self._queue):
                more, stale = True, False  # an earlier sync that failed had encoded these: there may be more by now
        self._drained = not (more or self._queue or self.waiting)
        return shipped

    def _encode_next(self) -> bool:
        """Add the next WAL segment to the queue. Return whether there was one."""
        state = self._keeper.state
        if not self._queue:
            noticed, self._noticed = self._noticed, None
            self._waiting_since = self._context.clock.monotonic() if noticed is None else noticed
        before = self._queue[-1] if self._queue else None
        place = state.place if before is None else before.after
        previous = state.digest if before is None else before.digest
        shipped = state.shipped if before is None else before.header.shipped
        if before is not None and self._backlog.open and not place.offset:
            return False  # sealed log segments follow what is acknowledged
        self.waiting = not self._backlog.seal(place, shipped)
        if self.waiting:
            return False
        encoded = self._backlog.next(place, previous, shipped) or self._encode_run(place, previous, shipped)
        if encoded is None:
            return False
        self._skipped = encoded.sealed is not None
        self._queue.append(encoded)
        return True

    def _encode_run(self, place: SourcePosition, previous: str, shipped: int) -> EncodedWalSegment | None:
        if self._skipped:
            self._encoder.rewind(place)
            self._skipped = False
        return self._encoder.next(previous, shipped)

    def _may_encode(self) -> bool:
        """Whether the queue has room, which it has not after a commit of more than MAX_COMMIT_BYTES, and bytes followed
        its last run."""
        last = self._queue[-1]
        has_room = len(self._queue) < _MOST_AHEAD and self._encoder.may_read_on()
        return has_room and last.header.length <= MAX_COMMIT_BYTES and last.more and not self._encoder.failed

    def _put_first(self) -> bool:
        """Put the first of the queue. While a large one is being put, encode the next ones, unless a request has just
        failed. Return whether more follow."""
        encoded = self._queue[0]
        header = encoded.header
        is_large = encoded.sealed is None and self._encoder.is_bulk(header.length, final=header.final)
        if not (encoded.more and is_large) or self._failing:
            return self._put(encoded)
        put = self._context.workers.putting.submit(self._put_object, encoded)
        try:
            while self._may_encode() and self._encode_next() and not put.done():
                pass
        except LitelogError as error:
            self._encoder.postpone(error)  # it is raised after the queue is put
        finally:
            wait([put])
        if _was_refused(put):
            self._resolve_refusal(encoded)  # encode the later ones again, after the object there
            return True
        self._acknowledge(encoded)
        return encoded.more

    def _put(self, encoded: EncodedWalSegment) -> bool:
        try:
            self._put_object(encoded)
        except ExistsError:
            self._resolve_refusal(encoded)
            return True
        self._acknowledge(encoded)
        return encoded.more

    def _put_object(self, encoded: EncodedWalSegment) -> None:
        self._context.client.write_wal_segment(encoded.header.position, encoded.body)

    def _acknowledge(self, encoded: EncodedWalSegment) -> None:
        """Continue after a WAL segment that was put, which proves that the generation is still the owner's."""
        self._guard.succeeded()
        self._queue.popleft().release()
        self._archive.note_put()
        self._advance(encoded.start, encoded.header, encoded.digest, encoded.after, encoded.sealed, encoded.size)
        self._report(encoded.header, encoded.size)

    def _resolve_refusal(self, encoded: EncodedWalSegment) -> None:
        """Continue after the object in a slot that is taken, if it is our own. It was put earlier, perhaps long ago, so
        it proves nothing about the present. Raises FencedError if it is a successor's or another owner's."""
        try:
            own = adopt_existing(self._context.client, self.follower, self._files, encoded)
        except CorruptObjectError as error:
            self._guard.leave_slot(error)
        self._guard.adopts()
        self._clear_queue()
        self._encoder.rewind(own.after)
        self._skipped = False
        size = len(own.segment.body)
        self._advance(encoded.start, own.segment.header, own.segment.digest, own.after, own.sealed, size)
        self._report(own.segment.header, size)

    def _clear_queue(self) -> None:
        for encoded in self._queue:
            encoded.release()
        self._queue.clear()

    def _advance(
        self,
        start: SourcePosition,
        header: WalHeader,
        digest: str,
        place: SourcePosition,
        sealed: SnapshotEntry | None,
        size: int,
    ) -> None:
        self._failing, self._released_bytes = False, 0
        state = self._keeper.state
        # before the state: the archive may know more than the state, but never less
        self._archive.shipped(start, header, digest, sealed)
        self._keeper.state = replace(
            state,
            digest=digest,
            last=header.position,
            shipped=header.shipped,
            place=place,
            oldest=self.follower.oldest,
            tallies=add_to_tallies(state.tallies, header.position, size, self._archive.state.snapshot),
        )

    def _report(self, header: WalHeader, size: int) -> None:
        """Report that a WAL segment is durable, before the next one is put: iterators rely on that order."""
        self.feed.publish(WalSegmentInfo(header.position, size))
        context = self._context
        waited = context.clock.monotonic() - self._waiting_since
        context.listener.on_wal_segment_shipped(
            WalSegmentShipped(context.source.folder, context.client.url, header, size, waited)
        )


def _was_refused(put: Future[None]) -> bool:
    try:
        put.result()
    except ExistsError:
        return True
    return False


@dataclass(frozen=True, slots=True)
class AdoptedSegment:
    """A WAL segment of our own that is already in its slot."""

    segment: WalSegment
    after: SourcePosition
    """The position at which reading of the log continues after it."""
    sealed: SnapshotEntry | None
    """The sealed segment that it stands for, if any."""


def adopt_existing(
    client: ReplicaClient, follower: Follower, files: FinishedSegments, encoded: EncodedWalSegment
) -> AdoptedSegment:
    """Return the object in the slot of ``encoded``, if it is our own and the log still holds it. An earlier run put
    it, so it may stand for a sealed segment even if ``encoded`` does not, and the other way round.

    Raises FencedError for a terminal or another owner's object, DivergedError if the log holds other bytes, and
    SourceMissingError if the log is gone.
    """
    key = wal_key(encoded.header.position)
    there = read_verified(
        lambda: client.read_wal_segment(encoded.header.position), partial(wal_segment.decode_checked, key)
    )
    header = there.header
    if header.successor is not None or header.owner != encoded.header.owner:
        raise _find_successor(client, header)
    if header.previous != encoded.header.previous:
        raise DivergedError(key, "the replica holds another chain under this owner's name")
    if header.file != encoded.header.file:
        raise DivergedError(key, f"the replica holds {header.file} under this owner's name")
    if header.sealed is not None:
        entry = describe_sealed(client, header)
        return AdoptedSegment(there, _place_after(files, follower, entry, key), entry)
    run = follower.read_again(encoded.start, header.length, final=header.final)
    if (run.crc, run.end.crc_total) != (header.crc, header.crc_total) or run.data != there.data():
        raise DivergedError(key, "the replica holds other bytes under this owner's name")
    return AdoptedSegment(there, run.after, None)


def _find_successor(client: ReplicaClient, header: WalHeader) -> FencedError:
    """Return the error of an owner whose slot another one has taken: it names the successor, if its claim is known and
    can be read."""
    generation, successor = header.generation, header.successor
    if successor is None:
        by = f"written by owner {header.owner[:8]}"
    else:
        by = f"ended by {successor}"
        name = parse_claim(successor)
        with suppress(LitelogError):
            if name is not None:
                return SucceededError(client.url, generation, read_claim(client, name))
    return FencedError(f"{client.url}: generation {generation} was {by}")


def _place_after(files: FinishedSegments, follower: Follower, entry: SnapshotEntry, key: str) -> SourcePosition:
    """Return where reading of the log continues after a sealed log segment. Raises as ``adopt_existing``."""
    try:
        with files.open(entry.file) as opened:
            if files.holds(opened, entry.length, entry.digest):
                return files.place_after(entry)
    except (FileNotFoundError, NotSealableError):
        follower.require_segment(entry.file)
    raise DivergedError(key, "the replica holds other bytes under this owner's name")
