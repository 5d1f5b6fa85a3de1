"""The one shape of what the main loop of a replicator does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from litelog.replicator.task import ReplicaTask


class Duty(Protocol):
    """Work that the main loop starts when it is due. Only ``serve`` is called under the run state's lock."""

    def serve(self, now: float) -> float:
        """Start what is due. Return when something is due next, in monotonic seconds."""

    def stop(self, *, wait: bool) -> bool:
        """Start nothing more. Return whether nothing runs any more.

        With ``wait``, wait for what is running first; for a second at most if that may wait for a store."""


class TaskDuty(Duty, Protocol):
    """A duty to each task. Everything except ``stop`` is called under the run state's lock."""

    def add(self, task: ReplicaTask) -> None:
        """Serve a task from now on."""

    def finish(self, task: ReplicaTask) -> bool:  # noqa: ARG002
        """Bring the work for a task to its end, after its last sync. Return whether it has ended: until it has, this is
        called again."""
        return True

    def remove(self, task: ReplicaTask) -> None:
        """Forget a task."""
