"""Ships one log to one replica, and reports its status. The replicator decides when."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import (
    DivergedError,
    FencedError,
    GenerationMismatchError,
    LitelogError,
    NotYetAvailableError,
    ReplicaGapError,
    StoreError,
)
from litelog.events import fields
from litelog.log.follower import FolderReplacedError, GapError, RewrittenError
from litelog.objects.position import Position
from litelog.shipping.archive_state import resume_archive
from litelog.shipping.archiver import Archiver
from litelog.shipping.divergence import DivergenceRecord
from litelog.shipping.final_error import FinalErrorRecord, find_end
from litelog.shipping.ownership_guard import LostObjectsError, LostSegmentError, OwnershipGuard
from litelog.shipping.proof import describe_lost
from litelog.shipping.snapshots import LostSnapshotError
from litelog.shipping.stages import GenerationBegun
from litelog.shipping.standing_check import Expected, find_needed
from litelog.shipping.state import Running
from litelog.shipping.state_keeper import StateKeeper
from litelog.shipping.wal_shipper import WalShipper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.log.source_position import SourcePosition
    from litelog.objects.claim import Claim
    from litelog.reading.segment_iterator import SegmentIterator
    from litelog.shipping.archive_state import ArchiveState
    from litelog.shipping.checkpointer import Checkpointer
    from litelog.shipping.context import LogSource, ReplicaContext
    from litelog.shipping.ownership import Owner
    from litelog.shipping.state import StateFolder

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Shipping:
    """The objects that ship one generation."""

    keeper: StateKeeper
    archive: Archiver
    guard: OwnershipGuard
    writer: WalShipper


class Replica:
    """Ships one log to one replica. Used by one thread at a time.

    It can be used after any error: the next ``sync`` continues. FencedError and CorruptionError are final.
    """

    def __init__(
        self,
        context: ReplicaContext,
        folder: StateFolder,
        owner: Owner,
    ) -> None:
        self._context = context
        self._source = context.source
        self._client = context.client
        self._folder = folder
        self._owner = owner
        self._clock = context.clock
        self._listener = context.listener
        self._shipping: _Shipping | None = None
        self.divergence = DivergenceRecord(folder.path)
        self._final_error = FinalErrorRecord(folder.path, context.clock)
        self._closed = False
        self._fork: DivergedError | None = None
        self._fenced: FencedError | None = None
        self._damage: tuple[str, Sequence[str]] | None = None
        """A generation of which a check found something lost or damaged, and the keys."""
        self._suspected = False
        self._began_sealing = False
        self._gap = ""
        """The position that was missing from the replica at the last try."""

    @property
    def archive(self) -> Archiver | None:
        """The archive of its sealed segments and snapshots; None before the first sync."""
        return self._shipping.archive if self._shipping is not None else None

    @property
    def started(self) -> bool:
        """Whether it has a generation, and so a position."""
        return self._state is not None

    @property
    def has_history(self) -> bool:
        """Whether this daemon has shipped to it in this run, or began a generation there in an earlier one."""
        return self.started or isinstance(self._folder.load(), Running)

    @property
    def acknowledged(self) -> tuple[Position, str] | None:
        """The last durable WAL segment, and its SHA-256; None if this generation has none."""
        state = self._state
        return None if state is None or state.last is None else (state.last, state.digest)

    @property
    def position(self) -> Position | None:
        """Every byte before it is acknowledged; None before the first sync."""
        state = self._state
        return None if state is None else Position(state.claim.generation, state.place.index, state.place.offset)

    @property
    def sequence(self) -> int | None:
        """The sequence after the last acknowledged record."""
        return self._state.place.sequence if self._state is not None else None

    def subscribe(self, start: Position | None = None) -> SegmentIterator:
        """Iterate over the WAL segments of the current generation. Any thread may call it.

        Args:
            start: The slot of the first one; None: the generation's first slot.

        Returns:
            An iterator that yields existing WAL segments, and then each one as it is acknowledged. A new generation
            ends it with GenerationMismatchError.

        Raises:
            NotYetAvailableError: There was no sync yet.
            PrunedError: A snapshot covers ``start``, and it was deleted (``SegmentFeed.subscribe``).
        """
        shipping = self._shipping
        if shipping is None:
            raise NotYetAvailableError(f"{self._client.url}: no generation yet; wait for the first sync")
        return shipping.writer.feed.subscribe(self._client.wal_segments, start)

    @property
    def place(self) -> SourcePosition | None:
        """The position up to which the log is acknowledged; None before the first sync. Any thread may read it."""
        state = self._state
        return state.place if state is not None else None

    @property
    def shipped(self) -> tuple[Claim, SourcePosition] | None:
        """Its claim and ``place``, of the same time; None before the first sync. Any thread may read it."""
        state = self._state
        return None if state is None else (state.claim, state.place)

    @property
    def source(self) -> LogSource:
        """The log."""
        return self._source

    @property
    def queued(self) -> int:
        """How many WAL segments are encoded but not acknowledged."""
        return self._writer.queued if self._writer is not None else 0

    @property
    def waiting(self) -> bool:
        """Whether the last sync ended because log segments must be sealed in the background first."""
        return self._began_sealing or ((writer := self._writer) is not None and writer.waiting)

    @property
    def sealing(self) -> bool:
        """Whether log segments are being sealed. A sync that waits for them does nothing until then."""
        return self._owner.backlog_sealer is not None and self._owner.backlog_sealer.busy

    def notice(self) -> None:
        """Record that the log's folder changed: the latency of what is shipped next counts from now. Any thread may
        call it."""
        if self._writer is not None:
            self._writer.notice(self._clock.monotonic())

    @property
    def settled(self) -> bool:
        """Whether ``changed`` is reliable."""
        return (writer := self._writer) is not None and writer.follower.settled

    def changed(self) -> bool:
        """Whether there may be something to ship. Cheap; makes no request."""
        shipping, writer = self._shipping, self._writer
        if (self._began_sealing or (writer is not None and writer.waiting)) and self.sealing:
            return False
        blocked = self._fork is not None or self._damage is not None or self._suspected
        blocked = blocked or (shipping is not None and shipping.archive.blocked is not None)
        return writer is None or blocked or writer.changed()

    @property
    def withheld_by(self) -> str | None:
        """The file that states the log's watermark, if the log holds commits after it: they are shipped later."""
        return self._shipping.writer.follower.withheld_by if self._shipping is not None else None

    def pending_bytes(self) -> int:
        """Return about how many bytes of the current log segment are not acknowledged."""
        return self._writer.pending_bytes if self._writer is not None else 0

    def sync(self, should_continue: Callable[[], bool] = lambda: True) -> bool:
        """Ship everything that is there now. Return whether there was anything.

        Stops early once ``should_continue()`` is false. Bytes appended meanwhile may be left to the next sync;
        ``changed`` reports them. If log segments must be sealed first, it ends with ``waiting`` set: call it again once
        they are sealed. Once it has raised FencedError, it always does.
        """
        self._require_unfenced()
        self._began_sealing = False
        try:
            shipped = self._ship_or_fork(should_continue)
        except FencedError as error:
            self._fenced = error
            if self.archive is not None:
                self.archive.stop()
            self._note_end(error)
            raise
        except ReplicaGapError as error:
            self._confirm_gap(error)
            self._note_end(error)
            raise
        except StoreError:
            self.doubt()
            raise
        except LitelogError as error:
            self._note_end(error)
            raise
        finally:
            if self.archive is not None:
                self.archive.wake()
        self._gap = ""
        if self._shipping is not None:
            self._final_error.clear()
        return shipped

    def _require_unfenced(self) -> None:
        """Raise the FencedError that an earlier sync, or the archive, met."""
        if self._fenced is None and self.archive is not None and self.archive.fenced is not None:
            self._fenced = self.archive.fenced
            self._note_end(self._fenced)
        if self._fenced is not None:
            raise self._fenced

    def _note_end(self, error: LitelogError) -> None:
        """If shipping ends with ``error``, record it, and release what will not be put."""
        self._final_error.note(error)
        if find_end(error) is not None and self._writer is not None:
            self._writer.give_up()

    def _confirm_gap(self, gap: ReplicaGapError) -> None:
        """Raise StoreError for a gap that the last sync did not find: a replica that becomes unavailable between a
        listing and a read looks as if it had lost an object. A gap that is found twice is real."""
        if gap.position != self._gap:
            self._gap = gap.position
            self.doubt()
            reason = "is missing from the replica, or the replica is unavailable"
            raise StoreError("read", gap.position, reason) from gap

    def doubt(self) -> None:
        """Before the next put, prove that the replica holds all acknowledged objects. Any thread may call it."""
        if self._shipping is not None:
            self._shipping.guard.doubt()

    def suspect(self) -> None:
        """Make the next sync prove ownership even if it has nothing to ship. A check did not find our claim, so the
        replica counts as unavailable until the proof succeeds. Any thread may call it."""
        self._suspected = True

    @property
    def known(self) -> Expected | None:
        """The objects that the owner expects in the replica; None before the first sync. Any thread may read it."""
        shipping = self._shipping
        if shipping is None:
            return None
        state = shipping.keeper.state  # read first: an archive may know more than the position, but never less
        kept = shipping.archive.state
        sealed = {segment.sealed.key: segment.sealed.size for segment in kept.finished if segment.sealed is not None}
        return Expected(state, kept.snapshot, sealed)

    @property
    def archived(self) -> tuple[Running, ArchiveState] | None:
        """The owner's state, and its archive's; None before the first sync. Any thread may read it."""
        shipping = self._shipping
        return None if shipping is None else (shipping.keeper.state, shipping.archive.state)

    @property
    def lost(self) -> str:
        """A description of what the replica lost for good since this owner began; empty if it lost nothing."""
        return self._state.lost if self._state is not None else ""

    def repair(self, keys: Sequence[str]) -> None:
        """If the current generation relies on any of these lost or damaged objects, the next sync begins a generation
        that relies on none of them. Runs in the thread of a check. Raises StoreError."""
        known = self.known
        needed = find_needed(self._client, known, keys) if known is not None else ()
        if known is not None and needed:
            self._owner.damaged |= frozenset(needed)
            self._damage = (known.claim.generation, tuple(needed))

    def stop(self) -> None:
        """Start nothing more in the background."""
        if self.archive is not None:
            self.archive.stop()
        if self._owner.backlog_sealer is not None:
            self._owner.backlog_sealer.stop()

    def wait(self, seconds: float) -> bool:
        """Wait at most about ``seconds`` until no background work runs. Return whether that is so."""
        sealed = self._owner.backlog_sealer is None or self._owner.backlog_sealer.wait(seconds)
        return (self.archive is None or self.archive.wait(seconds)) and sealed

    def close(self) -> None:
        """Save the position and release everything except the client."""
        self.stop()
        try:
            if self._shipping is not None:
                self._shipping.keeper.save()
        finally:
            if self._shipping is not None:
                self._shipping.keeper.release()
                self._shipping.writer.close()
                self._shipping.writer.feed.close()
            self._closed = True
            self._folder.close()

    def _start(self) -> _Shipping | None:
        """Continue the generation, or begin one. Return None while log segments must be sealed for that."""
        asked = self._clock.monotonic()
        begun = self._owner.resume()
        self._began_sealing = begun is None
        return None if begun is None else self._take(begun, asked)

    def _begin_again(self, fork: DivergedError) -> bool:
        """Begin a generation because of ``fork``. The fork is kept until then: the old one may be closed before.
        Return False while log segments must be sealed for that."""
        start_file = fork.file if isinstance(fork, GapError) else ""
        forked = not isinstance(fork, LostSegmentError | FolderReplacedError)
        self._release()
        self._owner.notes.lower()
        asked = self._clock.monotonic()
        begun = self._owner.begin(self._state, fork.reason_in(self._source.folder), start_file, forked=forked)
        self._began_sealing = begun is None
        if begun is not None:
            self._take(begun, asked)
            self._fork = None
        return begun is not None

    def _release(self) -> None:
        """Stop the archive, and leave the state's file to the owner until ``_take``."""
        if self._shipping is not None:
            self._shipping.archive.stop()
            self._shipping.keeper.release()

    def _take(self, begun: GenerationBegun, asked: float) -> _Shipping:
        """Ship what ``begun`` describes. A generation that continues may have a backlog; a new one has sealed it.
        ``asked``: monotonic seconds before the replica was asked whose the generation is."""
        claim, before = begun.state.claim, self._shipping
        if before is not None:
            before.writer.close()
            before.writer.feed.fail(GenerationMismatchError(before.writer.feed.generation, claim.generation))
        keeper = StateKeeper(self._folder, self._clock, begun.state)
        guard = OwnershipGuard(self._context, self._owner.proof, keeper, asked)
        archive = self._open_archive(keeper, guard)
        if begun.replicated:
            self._context.workers.background(self._context.events.on_replicated)
        backlog_sealer = self._owner.backlog_sealer if begun.snapshot is None else None
        writer = WalShipper(self._context, keeper, archive, guard, backlog_sealer)
        shipping = self._shipping = _Shipping(keeper, archive, guard, writer)
        if before is None or claim != before.keeper.state.claim:
            sequence = None if before is None else before.keeper.state.place.sequence
            self.divergence.note(claim, sequence, is_usual=isinstance(self._fork, RewrittenError))
            self._listener.on_generation_started(self._source.folder, self._client.url, claim)
        if begun.snapshot is not None:
            self._listener.on_snapshot_written(begun.snapshot)
        return shipping

    def _open_archive(self, keeper: StateKeeper, guard: OwnershipGuard) -> Archiver:
        state, claim, notes = keeper.state, keeper.state.claim, self._owner.notes
        kept = resume_archive(state.archive, claim.generation, self._folder.boot, self._clock.monotonic())
        checkpointer = self._open_checkpointer(keeper)
        archive = Archiver(self._context, claim, kept, state.place.index, keeper.save, guard.doubt, notes, checkpointer)
        notes.begin(claim.generation)
        keeper.take(archive)
        return archive

    def _open_checkpointer(self, keeper: StateKeeper) -> Checkpointer | None:
        policy = self._context.settings.checkpoints
        if policy is None:
            return None
        from litelog.shipping.checkpointer import Checkpointer  # noqa: PLC0415 - few replicas need it

        return Checkpointer(self._context, policy, keeper.state.claim, self._folder.path, lambda: keeper.known)

    def _ship_or_fork(self, should_continue: Callable[[], bool]) -> bool:
        fork = self._fork
        while fork is None:
            try:
                return self._ship(should_continue)
            except DivergedError as error:
                if not self._catch_up(error):
                    self._note_fork(error)
                    fork = error
        if not self._begin_again(fork):
            return False
        try:
            return self._ship(should_continue)
        except DivergedError as error:
            self._note_fork(error)
            raise

    def _catch_up(self, fork: DivergedError) -> bool:
        """If the state is older than the replica, adopt what the replica holds after the state's position. Return
        whether it was.

        The log may have been truncated since, so that it no longer holds the position of an old state."""
        state = self._state
        if isinstance(fork, LostSegmentError | FolderReplacedError) or state is None:
            return False
        asked = self._clock.monotonic()
        ahead = self._owner.proof.find_ahead(state)
        if ahead is None:
            return False
        self._release()
        self._take(GenerationBegun(ahead), asked)
        return True

    def _note_fork(self, fork: DivergedError) -> None:
        """Keep a fork, and log it once, no matter how often a new generation is tried."""
        self._fork = fork
        lost = isinstance(fork, LostObjectsError)
        log, replica = self._source.folder, self._client.url
        position, reason = self.position, fork.reason_in(log)
        if lost:
            extra = fields("objects-lost", log=log, replica=replica, position=position, reason=reason)
        else:
            extra = fields("diverged", log=log, replica=replica, position=position, reason=reason)
        usual = logging.INFO if isinstance(fork, RewrittenError) else logging.WARNING
        level = logging.ERROR if lost else usual
        _logger.log(level, "%s: %s; a new generation begins in %s", log, reason, replica, extra=extra)

    def _ship(self, should_continue: Callable[[], bool]) -> bool:
        shipping = self._shipping or self._start()
        if shipping is None:
            return False
        damage, self._damage = self._damage, None
        if damage is not None and damage[0] == shipping.keeper.state.claim.generation:
            raise LostObjectsError(self._source.folder, describe_lost(damage[1]))
        blocked = shipping.archive.blocked
        if isinstance(blocked, LostSnapshotError):
            raise LostObjectsError(self._source.folder, blocked.reason)
        if blocked is not None:
            raise LostSegmentError(self._source.folder, str(blocked))
        if self._suspected:
            shipping.guard.check_ownership()
            self._suspected = False
        before = shipping.writer.index
        try:
            shipped = shipping.writer.ship(should_continue)
        finally:
            if shipping.writer.index > before:
                self._context.events.on_segment_finished()
        shipping.keeper.save_if_due()
        return shipped

    @property
    def _state(self) -> Running | None:
        return self._shipping.keeper.state if self._shipping is not None else None

    @property
    def _writer(self) -> WalShipper | None:
        """The writer of the current generation; None before the first sync, and after ``close``."""
        return self._shipping.writer if self._shipping is not None and not self._closed else None
