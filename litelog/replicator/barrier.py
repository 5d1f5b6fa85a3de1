"""Waits until what the logs held at one moment is durable in their replicas, and reports the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.replicator.task import OVER, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.replicator.run_state import Course
    from litelog.replicator.scheduler import SyncScheduler
    from litelog.replicator.task import ReplicaTask

OPENING = "opening"
"""Stands in for a phase: logs were still being opened, or opened again, when the time was over."""

NOT_REPLICATED = "not replicated"
"""Stands in for a phase: the replica cannot be opened."""


@dataclass(frozen=True, slots=True)
class Unreached:
    """A replica that did not hold, in time, what its log held when the wait began."""

    log: str
    """The log's folder; empty: all logs."""
    replica: str
    """The replica's URL; empty: all replicas of the log."""
    phase: str
    error: str | None
    """Why its last sync failed, or why it is not open; None if neither is so."""


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


def wait_until_settled(is_settled: Callable[[], bool], course: Course, timeout: float) -> float | None:
    """Wait until all opening and closing is done. Return how much of ``timeout`` (seconds) is left; None if it was too
    short. Called under the run state's lock, which it releases while it waits."""
    begun = course.clock.monotonic()
    course.progress.wait_for(lambda: is_settled() or course.stopping or course.bug is not None, timeout)
    if not is_settled():
        return None
    return max(0.0, timeout - (course.clock.monotonic() - begun))


def wait_for(tasks: Sequence[ReplicaTask], turns: SyncScheduler, course: Course, timeout: float) -> Barrier:
    """Wait, for at most ``timeout`` seconds, until a sync or a look that began after the call has found nothing left,
    for each task. Called under the run state's lock, which it releases while it waits."""
    now = course.clock.monotonic()
    for task in tasks:
        if task.phase is Phase.IDLE:
            turns.hasten(task)
        elif task.phase is Phase.SPACING and task.replica is not None:
            turns.look(task)  # it may have nothing left to ship
        elif task.phase is Phase.SYNCING:
            task.woken = True  # its last look may have been before now
    waited_for = list(tasks)

    def is_settled() -> bool:
        while waited_for and (waited_for[-1].caught_up >= now or waited_for[-1].phase in OVER):
            waited_for.pop()
        return not waited_for or course.bug is not None

    course.progress.wait_for(is_settled, timeout)
    return Barrier(len(tasks), tuple(_describe(task) for task in tasks if task.caught_up < now))


def _describe(task: ReplicaTask) -> Unreached:
    return Unreached(task.log, task.url, task.phase.value, None if task.error is None else str(task.error))
