"""Seals log segments, writes snapshots and deletes covered objects of one generation, next to its WAL segments.

The archive never delays a WAL segment: it works in the background, a step at a time. Failed steps are retried and
reported. The thread that ships reports each WAL segment (``shipped``). Any thread may call ``wake`` to start due work.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import FencedError, SourceError, StoreError
from litelog.events import fields
from litelog.objects.layout import snapshot_key
from litelog.reading.contents import find_snapshot
from litelog.retention.facts import SourceTrim
from litelog.retention.policy import note_drop
from litelog.shipping.archive_state import ArchiveState, Covered, Opening, ShippedSegment, ShipTimeLog, shipped_segment
from litelog.shipping.claiming import require_claim, require_newest
from litelog.shipping.cleanup import WalCleanup
from litelog.shipping.events import SegmentSealed, SnapshotWritten
from litelog.shipping.proof import describe_lost
from litelog.shipping.retried_work import AT_ONCE, FailureLog, RetriedWork
from litelog.shipping.sealer import SealedConflictError, Sealer, find_finished
from litelog.shipping.snapshots import LostSnapshotError, Snapshots

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.log.source_position import SourcePosition
    from litelog.objects.claim import Claim
    from litelog.objects.snapshot import Snapshot
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.shipping.checkpointer import Checkpointer
    from litelog.shipping.context import ReplicaContext
    from litelog.shipping.source_truncation import ReplicatedNotes

_logger = logging.getLogger(__name__)
_FAILURES = FailureLog(_logger, "sealing-failed", "sealing")

LAST_FAILURES = 5
"""After how many failures in a row a stopping daemon gives up the last sealed segments and snapshot."""


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """The state of sealing."""

    sealed: int
    """Sealed segments that this run wrote."""
    unsealed: int
    """Log segments that were shipped to their end but are not sealed yet."""
    snapshot: str | None
    """The newest snapshot's key, if known."""
    failures: int
    """How many times in a row the work failed."""
    error: str | None


class Archiver:
    """Seals, writes snapshots and deletes what they cover, for one generation.

    The thread that ships calls ``shipped``, ``note_put``, ``wake`` and ``stop``. Any thread may call the other public
    methods. One thread at a time runs ``_work`` in the background.
    """

    def __init__(
        self,
        context: ReplicaContext,
        claim: Claim,
        state: ArchiveState,
        below: int,
        save: Callable[[], None],
        doubt: Callable[[], None],
        notes: ReplicatedNotes,
        checkpointer: Checkpointer | None = None,
    ) -> None:
        """``below``: all indexes below it are finished. ``save`` saves ``state``, and ``doubt`` is called
        after a request failed; any thread may call both. ``notes`` gets each durable snapshot. ``checkpointer`` writes
        checkpoints whenever this archive may work; None: there are none."""
        self._context = context
        self._claim = claim
        self._generation = claim.generation
        self._state = state
        self._below = below
        self._save = save
        self._doubt = doubt
        self._notes = notes
        self.checkpointer = checkpointer
        self._sealer = Sealer(context, claim)
        self._snapshots = Snapshots(context, claim)
        self._newest: Snapshot | None = None
        self._marks = ShipTimeLog()
        self._cleanup = WalCleanup(context, claim)
        self._counted_from = context.clock.monotonic()
        self._sealed = 0
        self._asked = False
        self._waiting: list[Callable[[ArchiveStatus], None]] = []
        self._last = False
        self._background = RetriedWork(context, _FAILURES, self._find_due, self._work, self._on_idle)
        self._lock = self._background.lock
        self.fenced: FencedError | None = None
        """The error that names a successor, if one was found."""
        self.blocked: SealedConflictError | LostSnapshotError | None = None
        """Why another generation must begin: a sealed segment with other bytes is in the way, or a snapshot is lost."""

    def shipped(
        self, start: SourcePosition, header: WalHeader, digest: str, sealed: SnapshotEntry | None = None
    ) -> None:
        """Record that a WAL segment is durable, which begins at ``start``. ``sealed``: it stands for that sealed
        segment."""
        with self._lock:
            self._marks.add(header)
            state = self._state
            if header.offset == 0:
                opening = Opening(header.index, header.previous, start.sequence, start.epoch)
                state = replace(state, opening=opening)
            if header.final:
                self._below = max(self._below, header.index + 1)
                if state.opening is not None and state.opening.index == header.index:
                    state = state.with_finished(shipped_segment(state.opening, header, digest, sealed))
                state = replace(state, opening=None)
            if sealed is not None:
                self._marks.drop(header.index)
                self._sealed += 1
            self._state = state

    def note_put(self) -> None:
        """Record that a WAL segment was put just now: objects may be deleted for a while."""
        with self._lock:
            self._cleanup.note_put(self._state.snapshot)

    def wake(self) -> None:
        """Start the work that is due, in the background."""
        if self.checkpointer is not None:
            self.checkpointer.wake()
        self._background.wake()

    def stop(self) -> None:
        """Start nothing more: another owner has the generation, or the process ends."""
        self._background.stop()
        self._cleanup.stop()
        if self.checkpointer is not None:
            self.checkpointer.stop()

    @property
    def state(self) -> ArchiveState:
        """The state to save."""
        return self._state

    @property
    def status(self) -> ArchiveStatus:
        """The state of sealing."""
        with self._lock:
            state = self._state
            unsealed = (
                self._below
                - (state.snapshot or self._claim.first)
                - sum(segment.sealed is not None for segment in state.finished)
            )
            return ArchiveStatus(
                self._sealed,
                max(0, unsealed),
                None if state.snapshot is None else snapshot_key(self._generation, state.snapshot),
                self._background.failures,
                self._background.error,
            )

    @property
    def due(self) -> float | None:
        """When ``wake`` must be called next, in monotonic seconds; None while no work is expected."""
        checkpoint = None if self.checkpointer is None else self.checkpointer.due
        return min((due for due in (self._background.due, checkpoint) if due is not None), default=None)

    def request_snapshot(self, answer: Callable[[ArchiveStatus], None] | None = None) -> None:
        """Write a snapshot now, of all finished log segments. ``answer`` is called once that is done or has failed,
        from any thread."""
        with self._lock:
            self._asked = True
            self._background.retry_now()
            if answer is not None:
                self._waiting.append(answer)
        self.wake()
        self._answer()

    def finish(self) -> None:
        """Seal all finished log segments, write the last snapshot, and a checkpoint. ``busy`` is true while that
        takes."""
        with self._lock:
            self._last = True
        if self.checkpointer is not None:
            self.checkpointer.finish()
        self.request_snapshot()

    @property
    def busy(self) -> bool:
        """Whether there is work to do now, other than work that keeps failing."""
        with self._lock:
            if self._background.running:
                return True
            given_up = self._last and self._background.failures >= LAST_FAILURES
            if not self._background.stopped and not given_up and self._next_step(last=True) is not None:
                return True
        return self.checkpointer is not None and self.checkpointer.busy

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` until no step is running; whether that is so."""
        clock = self._context.clock
        until = clock.monotonic() + seconds
        if not self._background.wait(seconds):
            return False
        return self.checkpointer is None or self.checkpointer.wait(max(0.0, until - clock.monotonic()))

    def _on_idle(self) -> None:
        self._answer()
        self._context.events.on_archive_changed()

    def _answer(self) -> None:
        with self._lock:
            if self._background.running:
                return
            waiting, self._waiting = self._waiting, []
        for answer in waiting:
            answer(self.status)

    def _work(self) -> None:
        try:
            while True:
                with self._lock:
                    step = self._next_step()
                    self._asked = self._asked and step is not None
                if step is None:
                    break
                step()
                self._background.succeed()
        except FencedError as error:
            self.fenced = error
            self.stop()
        except (SealedConflictError, LostSnapshotError) as error:
            self.blocked = error
            self.stop()
        except StoreError:
            self._doubt()
            raise

    def _find_due(self) -> float | None:
        if self._next_step() is not None:
            return AT_ONCE
        return self._snapshot_at if self._state.sealed else None

    def _next_step(self, *, last: bool = False) -> Callable[[], None] | None:
        """Return the step that is due; with ``last``, only steps that must be done before the daemon stops."""
        state = self._state
        if self._background.stopped:
            return None
        if state.snapshot is None:
            return self._find_newest if self._below > self._claim.first or self._asked else None
        if not last and (covered := self._cleanup.due_deletion(state.covered)) is not None:
            return partial(self._delete, covered)  # first, as only a recent put permits it
        seal = self._next_seal(state, state.snapshot)
        if seal is None and not last and (last_snapshot := self._cleanup.due_pruning()) is not None:
            return partial(self._prune, last_snapshot)
        return seal

    def _next_seal(self, state: ArchiveState, snapshot: int) -> Callable[[], None] | None:
        ready = state.sealed
        known = len(state.finished) == self._below - snapshot
        unsealed = len(ready) < len(state.finished)
        many = len(ready) >= self._context.settings.snapshot_segments
        asked = (self._asked or self._last) and known and not unsealed
        if ready and (many or asked or self._context.clock.monotonic() >= self._snapshot_at):
            return partial(self._take_snapshot, ready)
        if not known:
            return partial(self._recover_next, snapshot)
        return partial(self._seal, state.finished[len(ready)]) if unsealed else None

    @property
    def _snapshot_at(self) -> float:
        return self._counted_from + self._context.settings.snapshot_interval

    def _delete(self, covered: Covered) -> None:
        if self._cleanup.delete(covered):
            with self._lock:
                self._state = replace(self._state, covered=self._state.covered[1:])
            self._save()

    def _prune(self, last_snapshot: int) -> None:
        self._cleanup.prune(last_snapshot, self._state.drops)

    def _find_newest(self) -> None:
        """Find the newest snapshot. The state was lost, or an older version wrote it without sealed segments."""
        found = find_snapshot(self._context.client, self._claim)
        with self._lock:
            self._stand_at(self._claim.first if found is None else found.next)

    def _stand_at(self, snapshot: int) -> None:
        """Continue at the index of a snapshot in the replica. All log segments below are finished, although an owner
        with an older state may not have come that far."""
        self._state = self._state.with_snapshot(snapshot)
        self._below = max(self._below, snapshot)

    def _recover_next(self, snapshot: int) -> None:
        """Read, from its WAL segments, the first finished log segment that the state does not know. ``snapshot``: the
        index of the newest snapshot."""
        known = {segment.index for segment in self._state.finished}
        index = next(index for index in range(snapshot, self._below) if index not in known)
        found = find_finished(self._context.client, self._generation, index)
        with self._lock:
            self._state = self._state.with_finished(found)

    def _seal(self, segment: ShippedSegment) -> None:
        entry = self._sealer.seal_shipped(segment, self._marks.of(segment.index))
        with self._lock:
            self._state = self._state.with_finished(replace(segment, sealed=entry))
            self._marks.drop(segment.index)
            self._sealed += 1
            left = len(self._state.finished) - len(self._state.sealed)
        self._save()
        self._context.listener.on_segment_sealed(
            SegmentSealed(self._context.source.folder, self._context.client.url, entry, left)
        )

    def _take_snapshot(self, ready: tuple[ShippedSegment, ...]) -> None:
        if not self._cleanup.checked_lately:
            require_newest(self._context.client, self._claim)
        newest = self._newest
        if newest is None or newest.next != self._state.snapshot:
            newest = find_snapshot(self._context.client, self._claim)
        if newest is not None and newest.next == self._state.snapshot:
            if self.checkpointer is not None:
                self.checkpointer.note_sealed(ready)
            drops = self._state.drops
            made = self._snapshots.write_next(newest, ready, lambda made: self._cleanup.first_kept(made, drops))
        elif newest is not None and self._snapshots.is_own(newest, ready):
            made = newest
        elif newest is not None and newest.next > (self._state.snapshot or 0):
            self._take_newer(newest)
            return
        else:
            require_claim(self._context.client, self._claim)
            key = snapshot_key(self._generation, self._state.snapshot or 0)
            raise LostSnapshotError(self._context.source.folder, describe_lost([f"{key} is missing or damaged"]))
        self._note_drop(made)
        self._cleanup.schedule_pruning()
        self._newest = None  # it may be large, and is needed once an hour
        with self._lock:
            self._counted_from = self._context.clock.monotonic()
            covered = self._state.covered
            if not self._context.settings.no_delete:  # a pruner finds what is covered by itself
                covered = (*covered, Covered(self._claim.generation, made.next, self._counted_from))
            self._state = replace(self._state.with_snapshot(made.next), covered=covered)
        self._save()
        if self._notes.note(made):
            self._context.events.on_replicated()
        where = (self._context.source.folder, self._context.client.url)
        self._context.listener.on_snapshot_written(SnapshotWritten(*where, made.key, made.first, made.next))

    def _note_drop(self, made: Snapshot) -> None:
        """Note which log segments of a durable snapshot the source has dropped: retention keeps all that the log held
        at any time in its window. The snapshot may be old and only found now, so the drop counts from now."""
        policy = self._context.settings.retention
        if not policy.limits:
            return
        with suppress(SourceError):  # a missing folder does not mean that anything was dropped
            shipped = max((entry.shipped_last for entry in made.segments), default=0)
            now = max(made.created, shipped, self._context.clock.now())
            drop = SourceTrim(now, self._snapshots.first_at_source(made))
            with self._lock:
                self._state = replace(self._state, drops=note_drop(self._state.drops, drop, policy))

    def _take_newer(self, newest: Snapshot) -> None:
        """Continue after the newest snapshot, which is later than the one in the state, as after a crash."""
        with self._lock:
            before = self._state.snapshot
            self._newest = newest
            self._stand_at(newest.next)
        _logger.warning(
            "%s: the newest snapshot of generation %s stands at index %s, not at %s: the next one is made from it",
            self._context.client.url,
            self._generation,
            self._state.snapshot,
            before,
            extra=fields("snapshot-replaced", log=self._context.source.folder, replica=self._context.client.url),
        )
