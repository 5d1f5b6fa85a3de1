"""Waits until all that the logs hold at one moment is durable in their replicas, and reports the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.replicator.task import FINISHED, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.replicator.run_state import RunState
    from litelog.replicator.scheduler import SyncScheduler
    from litelog.replicator.task import ReplicaTask

OPENING = "opening"
"""Reported in place of a phase: logs were still being opened, or opened again, when the time was over."""

NOT_REPLICATED = "not replicated"
"""Reported in place of a phase: the replica cannot be opened."""


@dataclass(frozen=True, slots=True)
class Unreached:
    """A replica that did not hold, in time, what its log held when the wait began."""

    log: str
    """The log's folder; empty: all logs."""
    replica: str
    """The replica's URL; empty: all replicas of the log."""
    phase: str
    error: str | None
    """Why its last sync failed, or why it is not open; None otherwise."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """The result of a wait: how many replicas it was for, and which of them were not reached in time."""

    replicas: int
    """The number of replicas that the wait was for."""
    unreached: tuple[Unreached, ...]

    @property
    def reached(self) -> bool:
        """Whether everything that the logs held at the call is durable in all of the replicas."""
        return not self.unreached


def wait_until_settled(is_settled: Callable[[], bool], run_state: RunState, timeout: float) -> float | None:
    """Wait until all opening and closing is done. Return how much of ``timeout`` (seconds) is left; None if it was too
    short. Called under the run state's lock, which it releases while it waits."""
    begun = run_state.clock.monotonic()
    run_state.progress.wait_for(lambda: is_settled() or run_state.stopping or run_state.bug is not None, timeout)
    if not is_settled():
        return None
    return max(0.0, timeout - (run_state.clock.monotonic() - begun))


def wait_for(tasks: Sequence[ReplicaTask], scheduler: SyncScheduler, run_state: RunState, timeout: float) -> Barrier:
    """Wait, for at most ``timeout`` seconds, until a sync or a look that began after the call has found nothing left,
    for each task. Called under the run state's lock, which it releases while it waits."""
    now = run_state.clock.monotonic()
    for task in tasks:
        if task.phase is Phase.IDLE:
            scheduler.schedule_now(task)
        elif task.phase is Phase.THROTTLED and task.replica is not None:
            scheduler.look(task, task.replica)  # it may have nothing left to ship
        elif task.phase is Phase.SYNCING:
            task.wake_pending = True  # its last look may have been before now
    waited_for = list(tasks)

    def is_settled() -> bool:
        while waited_for and (waited_for[-1].last_clean_at >= now or waited_for[-1].phase in FINISHED):
            waited_for.pop()
        return not waited_for or run_state.bug is not None

    run_state.progress.wait_for(is_settled, timeout)
    return Barrier(len(tasks), tuple(_describe(task) for task in tasks if task.last_clean_at < now))


def _describe(task: ReplicaTask) -> Unreached:
    return Unreached(task.log, task.url, task.phase.value, None if task.error is None else str(task.error))
