"""Schedules the work of a task that its replica reports to be due."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litelog.replicator.background import Archives, Truncations
    from litelog.replicator.scheduler import SyncScheduler
    from litelog.replicator.task import ReplicaTask
    from litelog.shipping.source_truncation import LogTruncator


class TaskEvents:
    """Receives the events of one task's replica (``ReplicaEvents``)."""

    def __init__(
        self,
        scheduler: SyncScheduler,
        archives: Archives,
        truncations: Truncations,
        task: ReplicaTask,
        truncator: LogTruncator,
    ) -> None:
        self._scheduler = scheduler
        self._archives = archives
        self._truncations = truncations
        self._task = task
        self._truncator = truncator

    def on_archive_changed(self) -> None:
        """Schedule the archive's work."""
        self._archives.changed(self._task)

    def on_backlog_sealed(self) -> None:
        """Schedule the sync that waited for it."""
        self._scheduler.sealed(self._task)

    def on_segment_finished(self) -> None:
        """Schedule truncation by age."""
        self._truncations.note_newer(self._truncator)

    def on_replicated(self) -> None:
        """Truncate the log up to what all its replicas hold."""
        self._truncations.run(self._truncator)
