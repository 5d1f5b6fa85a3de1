"""One generation's sealed segments and snapshots: what is to be done beside the WAL segments, and when.

Nothing here holds up a WAL segment: the work is done in the background, a step at a time, and what fails is tried again
and told. The thread that ships tells of what was shipped (``shipped``); whoever has time calls ``poke``.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from litelog.errors import FencedError, LitelogError, SourceError, StoreError, release
from litelog.events import fields
from litelog.objects.layout import snapshot_key
from litelog.objects.position import generation
from litelog.shipping.archive_state import ArchiveState, Covered, MarkLog, Opening, ShippedSegment, finished_by
from litelog.shipping.backoff import BackOff, describe_wait, needs_help
from litelog.shipping.claiming import require_claim, require_newest
from litelog.shipping.cleanup import Clearing
from litelog.shipping.events import Sealed, Snapped
from litelog.shipping.proof import describe_lost
from litelog.shipping.sealer import Sealer, TakenError, find_finished
from litelog.shipping.snapshots import LostSnapshotError, Snapshots, find_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.log.source_position import Place
    from litelog.objects.claim import Claim
    from litelog.objects.snapshot import Snapshot
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.shipping.context import Pair

_logger = logging.getLogger(__name__)

LAST_FAILURES = 5
"""How often in a row the work may fail where it is the last there is to do."""


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """Where sealing stands."""

    sealed: int
    """Sealed segments that were written in this run."""
    unsealed: int
    """Log segments that were shipped to their end, and are not sealed yet."""
    snapshot: str | None
    """The newest snapshot's key, if it is known."""
    failures: int
    """How often the work failed in a row."""
    error: str | None


class Archive:
    """Seals, writes snapshots and deletes what they cover, for one generation."""

    def __init__(self, pair: Pair, claim: Claim, state: ArchiveState, below: int, save: Callable[[], None]) -> None:
        """``below``: all indexes below it are finished; ``save`` has ``state`` kept, from any thread."""
        self._pair = pair
        self._claim = claim
        self._name = generation(claim.generation)
        self._state = state
        self._below = below
        self._save = save
        source, client, clock = pair.source, pair.client, pair.clock
        self._sealer = Sealer(source.folder, source.format, client, claim, clock)
        self._snapshots = Snapshots(source.folder, source.format, client, claim, clock, pair.settings.snapshot_policy)
        self._newest: Snapshot | None = None
        self._marks = MarkLog()
        self._clearing = Clearing(pair, claim, lambda: self._state, self._change, save, self._snapshots.first_at_source)
        self._back_off = BackOff(Random())  # noqa: S311  spreads load, keeps no secret
        self._retry_at = 0.0
        self._error: LitelogError | None = None
        self._counted_from = clock.monotonic()
        self._sealed = 0
        self._asked = False
        self._waiting: list[Callable[[ArchiveStatus], None]] = []
        self._last = False
        self._running = False
        self._stopped = False
        self._changed = threading.Condition()
        self.fenced: FencedError | None = None
        """What was found out about a successor, if anything."""
        self.blocked: TakenError | LostSnapshotError | None = None
        """Why another generation has to begin: a sealed segment of other bytes is in the way, or a snapshot is lost."""
        self.on_change: Callable[[], None] = _do_nothing
        """Called, from any thread, when ``due`` or ``busy`` may have changed."""
        self.on_failed: Callable[[], None] = _do_nothing
        """Called, in the background, after a request failed."""
        self.on_snapshot: Callable[[Snapshot], None] = _do_nothing_with
        """Called, in the background, with each snapshot once it is durable."""

    # --- the thread that ships

    def shipped(self, start: Place, header: WalHeader, digest: str, sealed: SnapshotEntry | None = None) -> None:
        """A WAL segment is durable that begins at ``start``; ``sealed``: it stands for that sealed segment."""
        with self._changed:
            self._clearing.put(self._state.snapshot)
            self._marks.add(header)
            state = self._state
            if header.offset == 0:
                opening = Opening(header.index, header.previous, start.sequence, start.epoch)
                state = replace(state, opening=opening)
            if header.final:
                self._below = max(self._below, header.index + 1)
                if state.opening is not None and state.opening.index == header.index:
                    state = state.with_finished(finished_by(state.opening, header, digest, sealed))
                state = replace(state, opening=None)
            if sealed is not None:
                self._marks.drop(header.index)
                self._sealed += 1
            self._state = state

    def poke(self) -> None:
        """Have done in the background what is due."""
        with self._changed:
            due = self._due()
            if due is None or due > self._pair.clock.monotonic():
                return
            self._running = True
        self._pair.workers.background(self._work)

    def stop(self) -> None:
        """Begin nothing more: the generation is another's, or the process ends."""
        with self._changed:
            self._stopped = True
        self._clearing.stop()

    # --- whoever asks

    @property
    def state(self) -> ArchiveState:
        """What is to be kept."""
        return self._state

    @property
    def status(self) -> ArchiveStatus:
        """Where it stands."""
        with self._changed:
            state = self._state
            unsealed = (
                self._below
                - (state.snapshot or self._claim.first)
                - sum(segment.sealed is not None for segment in state.finished)
            )
            return ArchiveStatus(
                self._sealed,
                max(0, unsealed),
                None if state.snapshot is None else snapshot_key(self._name, state.snapshot),
                self._back_off.failures,
                None if self._error is None else str(self._error),
            )

    @property
    def due(self) -> float | None:
        """When ``poke`` is to be called next, in monotonic seconds; None while there is nothing to wait for."""
        with self._changed:
            return self._due()

    def ask(self, answer: Callable[[ArchiveStatus], None] | None = None) -> None:
        """Have a snapshot written now, of all that is finished; ``answer`` is called, from any thread, once that is
        done or has failed."""
        with self._changed:
            self._asked = True
            self._retry_at = 0.0
            if answer is not None:
                self._waiting.append(answer)
        self.poke()
        self._answer()

    def finish(self) -> None:
        """Seal what is finished, and write the last snapshot; ``busy`` tells how long that takes."""
        with self._changed:
            self._last = True
        self.ask()

    @property
    def busy(self) -> bool:
        """Whether there is work to do now, that does not fail again and again."""
        with self._changed:
            if self._running:
                return True
            given_up = self._last and self._back_off.failures >= LAST_FAILURES
            return not self._stopped and not given_up and self._next_step(last=True) is not None

    def wait(self, seconds: float) -> bool:
        """Until no step is being done; whether that came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, seconds)

    # --- in the background

    def _answer(self) -> None:
        with self._changed:
            if self._running:
                return
            waiting, self._waiting = self._waiting, []
        for answer in waiting:
            answer(self.status)

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    step = self._next_step()
                    self._asked = self._asked and step is not None
                if step is None:
                    break
                step()
                with self._changed:
                    self._back_off.succeed()
                    self._error = None
        except FencedError as error:
            self.fenced = error
            self.stop()
        except (TakenError, LostSnapshotError) as error:
            self.blocked = error
            self.stop()
        except (LitelogError, OSError) as error:
            self._failed(error if isinstance(error, LitelogError) else SourceError(str(error)))
        finally:
            with self._changed:
                self._running = False
                self._changed.notify_all()
            self._answer()
            self.on_change()

    def _failed(self, error: LitelogError) -> None:
        release(error)
        if isinstance(error, StoreError):
            self.on_failed()
        with self._changed:
            delay = self._back_off.fail(error)
            self._retry_at = self._pair.clock.monotonic() + delay
            self._error = error
            if self._back_off.worth_saying:
                level = logging.ERROR if needs_help(error) else logging.WARNING
                said = "%s to %s: sealing failed %d times in a row, %s: %s"
                where = (self._pair.source.folder, self._pair.client.url)
                extra = fields("sealing-failed", log=where[0], replica=where[1], failures=self._back_off.failures)
                wait = describe_wait(error, delay)
                _logger.log(level, said, *where, self._back_off.failures, wait, error, extra=extra)

    def _due(self) -> float | None:
        if self._running or self._stopped:
            return None
        if self._next_step() is not None:
            return self._retry_at
        return max(self._retry_at, self._snapshot_at) if self._state.sealed else None

    def _next_step(self, *, last: bool = False) -> Callable[[], None] | None:
        """What is to be done now; with ``last``, without what may stay undone."""
        state = self._state
        if self._stopped:
            return None
        if state.snapshot is None:
            return self._find_newest if self._below > self._claim.first or self._asked else None
        deletion = None if last else self._clearing.next_deletion()  # first: right behind the put that lets it
        return deletion or self._next_seal(state, state.snapshot) or (None if last else self._clearing.next_pruning())

    def _next_seal(self, state: ArchiveState, snapshot: int) -> Callable[[], None] | None:
        ready = state.sealed
        known = len(state.finished) == self._below - snapshot
        unsealed = len(ready) < len(state.finished)
        many = len(ready) >= self._pair.settings.snapshot_segments
        asked = (self._asked or self._last) and known and not unsealed
        if ready and (many or asked or self._pair.clock.monotonic() >= self._snapshot_at):
            return partial(self._take_snapshot, ready)
        if not known:
            return self._recover_next
        return partial(self._seal, state.finished[len(ready)]) if unsealed else None

    @property
    def _snapshot_at(self) -> float:
        return self._counted_from + self._pair.settings.snapshot_interval

    def _change(self, **changes: object) -> None:
        with self._changed:
            self._state = replace(self._state, **changes)  # type: ignore[arg-type]

    def _find_newest(self) -> None:
        """The state was lost, or written before there were sealed segments: look what the replica holds."""
        found = find_snapshot(self._pair.client, self._name)
        with self._changed:
            self._state = self._state.with_snapshot(self._claim.first if found is None else found.next)

    def _recover_next(self) -> None:
        """Look up, in its WAL segments, the first log segment that is finished and not known."""
        state = self._state
        assert state.snapshot is not None
        known = {segment.index for segment in state.finished}
        index = next(index for index in range(state.snapshot, self._below) if index not in known)
        found = find_finished(self._pair.client, self._name, index)
        with self._changed:
            self._state = self._state.with_finished(found)

    def _seal(self, segment: ShippedSegment) -> None:
        entry = self._sealer.seal_shipped(segment, self._marks.of(segment.index))
        with self._changed:
            self._state = self._state.with_finished(replace(segment, sealed=entry))
            self._marks.drop(segment.index)
            self._sealed += 1
            left = len(self._state.finished) - len(self._state.sealed)
        self._save()
        self._pair.listener.sealed(Sealed(self._pair.source.folder, self._pair.client.url, entry, left))

    def _take_snapshot(self, ready: tuple[ShippedSegment, ...]) -> None:
        if not self._clearing.proved_lately:
            require_newest(self._pair.client, self._claim)
        newest = self._newest
        if newest is None or newest.next != self._state.snapshot:
            newest = find_snapshot(self._pair.client, self._name)
        if newest is not None and newest.next == self._state.snapshot:
            made = self._snapshots.write_next(newest, ready, self._clearing.first_kept)
        elif newest is not None and self._snapshots.is_own(newest, ready):
            made = newest
        elif newest is not None and newest.next > (self._state.snapshot or 0):
            self._take_newer(newest)
            return
        else:
            require_claim(self._pair.client, self._claim)
            key = snapshot_key(self._name, self._state.snapshot or 0)
            raise LostSnapshotError(self._pair.source.folder, describe_lost([f"{key} is missing or damaged"]))
        self._clearing.snapped(made)
        self._newest = None  # it may be large, and is needed once an hour
        with self._changed:
            self._counted_from = self._pair.clock.monotonic()
            covered = (*self._state.covered, Covered(self._claim.generation, made.next, self._counted_from))
            self._state = replace(self._state.with_snapshot(made.next), covered=covered)
        self._save()
        self.on_snapshot(made)
        where = (self._pair.source.folder, self._pair.client.url)
        self._pair.listener.snapped(Snapped(*where, made.key, made.first, made.next))

    def _take_newer(self, there: Snapshot) -> None:
        """The newest snapshot is a later one than is remembered, as after a crash: go on after it."""
        with self._changed:
            before = self._state.snapshot
            self._newest = there
            self._state = self._state.with_snapshot(there.next)
        _logger.warning(
            "%s: the newest snapshot of generation %s stands at index %s, not at %s: the next one is made from it",
            self._pair.client.url,
            self._name,
            self._state.snapshot,
            before,
            extra=fields("snapshot-replaced", log=self._pair.source.folder, replica=self._pair.client.url),
        )


def _do_nothing() -> None: ...


def _do_nothing_with(_snapshot: Snapshot) -> None: ...
