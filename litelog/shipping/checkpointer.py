"""Writes signed checkpoints of one generation to its replica, in the background: after each snapshot, and at intervals.

A failure never delays a WAL segment, a sealed segment or a snapshot. It is retried, and reported.

Specified in litelog/shipping/README.md#checkpoints.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from litelog.dataclass import dataclass
from litelog.errors import FencedError
from litelog.shipping.checkpoint_writer import CheckpointWriter
from litelog.shipping.retried_work import AT_ONCE, FailureLog, RetriedWork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from litelog.log.source_position import SourcePosition
    from litelog.objects.claim import Claim
    from litelog.shipping.archive_state import ArchiveState, ShippedSegment
    from litelog.shipping.context import CheckpointPolicy, ReplicaContext
    from litelog.shipping.state import Running

_FAILURES = FailureLog(logging.getLogger(__name__), "checkpoint-failed", "writing a checkpoint")

Known: TypeAlias = "tuple[Running, ArchiveState | None]"
"""The shipped position, and the sealed log segments: None once another generation begins."""

LAST_FAILURES = 3
"""After how many failures in a row a stopping daemon gives up the last checkpoint."""


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """The state of checkpoints."""

    written: int
    """How many this run wrote."""
    number: int | None
    """The number of the newest one; None if there is none yet."""
    time: int | None
    """When it was made, in microseconds since 1970."""
    failures: int
    """How many times in a row the work failed."""
    error: str | None


class Checkpointer:
    """Writes the checkpoints of one generation. Any thread may call the public methods. One thread at a time runs
    ``_work`` in the background."""

    def __init__(
        self, context: ReplicaContext, policy: CheckpointPolicy, claim: Claim, folder: str, known: Callable[[], Known]
    ) -> None:
        """``folder``: the replica's state folder. ``known`` returns what is shipped and sealed now; any thread may call
        it."""
        self._context = context
        self._policy = policy
        self._known = known
        self._writer = CheckpointWriter(context, policy, claim, folder)
        self._stated: SourcePosition | None = None
        """The end that the newest checkpoint states."""
        self._snapshot: int | None = None
        """The newest snapshot's index at that time."""
        self._next_at = AT_ONCE
        self._last = False
        changed = context.events.on_archive_changed
        self._background = RetriedWork(context, _FAILURES, self._find_due, self._work, changed)
        self._lock = self._background.lock

    def note_sealed(self, segments: Iterable[ShippedSegment]) -> None:
        """Remember the digests of log segments that a snapshot is about to name."""
        self._writer.note_sealed(segments)

    def wake(self) -> None:
        """Start the work that is due, in the background."""
        self._background.wake()

    def stop(self) -> None:
        """Start nothing more."""
        self._background.stop()

    def finish(self) -> None:
        """State the acknowledged end, whenever the last checkpoint was. ``busy`` is true while that takes."""
        with self._lock:
            self._last = True
        self.wake()

    @property
    def due(self) -> float | None:
        """When ``wake`` must be called next, in monotonic seconds; None while no work is expected."""
        return self._background.due

    @property
    def busy(self) -> bool:
        """Whether a last checkpoint is being made, or due and not given up."""
        with self._lock:
            given_up = self._background.failures >= LAST_FAILURES
            return self._background.running or (self._last and not given_up and self.due is not None)

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` until nothing is running; whether that is so."""
        return self._background.wait(seconds)

    @property
    def status(self) -> CheckpointStatus:
        """The state of checkpoints."""
        with self._lock:
            head = self._writer.newest
            return CheckpointStatus(
                self._writer.written,
                None if head is None else head.number,
                None if head is None else head.checkpoint.time,
                self._background.failures,
                self._background.error,
            )

    def _find_due(self) -> float | None:
        state, archive = self._known()
        if archive is None or state.place == self._stated:
            return None
        at_once = self._last or self._stated is None or archive.snapshot != self._snapshot
        return AT_ONCE if at_once else self._next_at

    def _work(self) -> None:
        try:
            while not self._background.stopped:
                state, archive = self._known()
                if archive is None:
                    return
                if self._writer.write_next(state, archive):
                    continue
                with self._lock:
                    self._stated, self._snapshot = state.place, archive.snapshot
                    self._next_at = self._find_next()
                    self._background.succeed()
                return
        except FencedError:
            self.stop()  # the thread that ships finds it out by itself

    def _find_next(self) -> float:
        """When the next checkpoint is due, in monotonic seconds: after an interval from the newest one."""
        every = self._policy.interval
        clock, head = self._context.clock, self._writer.newest
        ago = 0.0 if head is None else (clock.now() - head.checkpoint.time) / 1e6
        return clock.monotonic() + min(every, max(0.0, every - ago))
