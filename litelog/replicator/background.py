"""The duties of a replicator in the background, and the events that make them due: archives, snapshots on request,
and truncations by age."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from litelog.replicator.run_state import DueTimes
from litelog.replicator.snapshot_requests import Answer, Requests
from litelog.replicator.task import FINISHED, Phase, ReplicaTask, TaskDuty

if TYPE_CHECKING:
    from litelog.replicator.run_state import RunState
    from litelog.replicator.scheduler import SyncScheduler
    from litelog.replicator.snapshot_requests import Request
    from litelog.shipping.archiver import Archiver
    from litelog.shipping.source_truncation import LogTruncator
    from litelog.system.inotify import Watcher


STOP_SECONDS = 1.0
"""How long the end of the run waits for archives' requests that are still running, in seconds."""

FINISH_LOOK_SECONDS = 0.1
"""How often the end of the run checks whether the last snapshots are written, in seconds."""

REQUEST_SECONDS = 1.0
"""How often the daemon looks for requests if no file-system event reports them, in seconds."""

REQUEST_SPACING = 0.1
"""The least time between two looks for requests, in seconds."""

NEVER_SECONDS = 3600.0


def archive_of(task: ReplicaTask) -> Archiver | None:
    """Return a task's archive; None before its first sync."""
    return task.replica.archive if task.replica is not None else None


class Archives(TaskDuty):
    """Runs the archives' background work: seals log segments, writes snapshots, deletes what they cover."""

    def __init__(self, run_state: RunState) -> None:
        self._run_state = run_state
        self._tasks: dict[ReplicaTask, None] = {}
        self._finishing: set[ReplicaTask] = set()
        self._schedule: DueTimes[ReplicaTask] = DueTimes()

    def add(self, task: ReplicaTask) -> None:
        """As in ``TaskDuty``. The task's archive is scheduled after its first sync."""
        self._tasks[task] = None

    def note(self, task: ReplicaTask) -> None:
        """Schedule a task's archive for when it has work to do next."""
        archive = archive_of(task)
        due = archive.due if archive is not None else None
        if due is None:
            self._schedule.drop(task)
        else:
            self._schedule.set(task, due)
            self._run_state.wake_by(due)

    def changed(self, task: ReplicaTask) -> None:
        """As ``note``, from any thread. A last snapshot may have been written."""
        with self._run_state.changed:
            self.note(task)
            if task.leaving or self._run_state.final:
                self._run_state.wake()

    def finish(self, task: ReplicaTask) -> bool:
        """As in ``TaskDuty``. If the last sync succeeded, a last snapshot is written first, as time permits."""
        archive = archive_of(task)
        if archive is None:
            return True
        if task.final and task.phase is Phase.DONE and task not in self._finishing:
            self._finishing.add(task)
            archive.finish()
        if task in self._finishing and archive.busy and self._run_state.clock.monotonic() < task.leave_by:
            archive.wake()
            return False
        archive.stop()
        return archive.wait(0.0)

    def remove(self, task: ReplicaTask) -> None:
        """As in ``TaskDuty``."""
        self._schedule.drop(task)
        self._finishing.discard(task)
        self._tasks.pop(task, None)

    def serve(self, now: float) -> float:
        """As in ``Duty``."""
        for task in self._schedule.take(now):  # it is scheduled again when it reports a change
            archive = archive_of(task)
            if archive is not None:
                archive.wake()
        return self._schedule.next

    def finish_all(self) -> None:
        """Seal finished log segments and write the last snapshots, as time permits: the WAL segments hold all of it.
        Blocks, and needs no lock."""
        run_state = self._run_state
        done = [task for task in self._tasks if task.phase is Phase.DONE]
        archives = [archive for task in done if (archive := archive_of(task)) is not None]
        for archive in archives:
            archive.finish()
        busy = [archive for archive in archives if archive.busy]
        with run_state.changed:
            while run_state.bug is None and run_state.should_continue() and busy:
                run_state.changed.wait(FINISH_LOOK_SECONDS)
                for archive in busy:
                    archive.wake()
                busy = [archive for archive in busy if archive.busy]

    def stop(self, *, wait: bool) -> bool:
        """As in ``Duty``."""
        with self._run_state.changed:
            replicas = [task.replica for task in self._tasks if task.replica is not None]
        for replica in replicas:
            replica.stop()
        clock = self._run_state.clock
        until = clock.monotonic() + (STOP_SECONDS if wait else 0.0)
        return all(replica.wait(max(0.0, until - clock.monotonic())) for replica in replicas)


class SnapshotRequests(TaskDuty):
    """Serves other processes' requests for snapshots."""

    def __init__(self, run_state: RunState, watcher: Watcher, state_dir: str) -> None:
        self._run_state = run_state
        self._watcher = watcher
        self._requests = Requests(state_dir)
        self._tasks: dict[str, ReplicaTask] = {}
        """By state folder."""
        self._looked_at = 0.0
        self._noticed = True
        """Whether an event has reported a change of the folder since the last look."""

    def prepare(self) -> None:
        """Create the folder for requests. Needs no lock."""
        self._requests.prepare()

    def add(self, task: ReplicaTask) -> None:
        """As in ``TaskDuty``."""
        self._tasks[task.state_folder] = task

    def remove(self, task: ReplicaTask) -> None:
        """As in ``TaskDuty``."""
        if self._tasks.get(task.state_folder) is task:
            del self._tasks[task.state_folder]

    def serve(self, now: float) -> float:
        """As in ``Duty``. Looks for requests, and answers them."""
        if self._run_state.final:
            return now + NEVER_SECONDS
        watched = self._watcher.arm(self._requests.folder, self._look_again)
        passed = now - self._looked_at
        if passed >= REQUEST_SECONDS or (self._noticed and passed >= REQUEST_SPACING):
            self._looked_at, self._noticed = now, False
            for request in self._requests.take():
                self._serve(request)
        elif self._noticed:
            return self._looked_at + REQUEST_SPACING
        return now + (NEVER_SECONDS if watched else REQUEST_SECONDS)

    def stop(self, *, wait: bool) -> bool:  # noqa: ARG002
        """As in ``Duty``. Nothing runs."""
        return True

    def _look_again(self) -> None:
        with self._run_state.changed:
            self._noticed = True
            self._run_state.wake()

    def _serve(self, request: Request) -> None:
        task = self._tasks.get(request.folder)
        archive = archive_of(task) if task is not None else None
        if archive is None or task is None or task.phase in FINISHED:
            reason = "it is not replicated here" if task is None else f"it is not shipped now ({task.phase.value})"
            self._requests.answer(request, Answer(None, reason))
            return
        requests = self._requests
        archive.request_snapshot(lambda status: requests.answer(request, Answer(status.snapshot, status.error)))


class Truncations(TaskDuty):
    """Truncates logs by age, one at a time: that needs no network."""

    def __init__(self, run_state: RunState) -> None:
        self._run_state = run_state
        self._schedule: DueTimes[LogTruncator] = DueTimes()
        self._truncators: dict[ReplicaTask, LogTruncator] = {}
        self._pool = ThreadPoolExecutor(1, "truncate")

    def add(self, task: ReplicaTask) -> None:
        """As in ``TaskDuty``, for the task's log."""
        truncator = task.truncator
        if truncator is not None and truncator.has_age:
            self._truncators[task] = truncator
            self._note(truncator)

    def remove(self, task: ReplicaTask) -> None:
        """As in ``TaskDuty``, unless the log has another task."""
        truncator = self._truncators.pop(task, None)
        if truncator is not None and truncator not in self._truncators.values():
            self._schedule.drop(truncator)

    def serve(self, now: float) -> float:
        """As in ``Duty``. Starts nothing once the last sync has begun."""
        if self._run_state.final:
            return math.inf
        for truncator in self._schedule.take(now):  # it is scheduled again when it reports a change
            self._pool.submit(self._run_state.guard, partial(self.run, truncator, asks=True))
        return self._schedule.next

    def run(self, truncator: LogTruncator, *, asks: bool = False) -> None:
        """Truncate a log now, in any thread, and schedule the next time. ``asks``: as for ``LogTruncator.run``."""
        truncator.run(asks=asks)
        self._changed(truncator)

    def note_newer(self, truncator: LogTruncator) -> None:
        """Record that a log has a newer log segment: it is truncated soon, if time alone makes that possible. Any
        thread may call it."""
        truncator.note_newer()
        self._changed(truncator)

    def stop(self, *, wait: bool) -> bool:
        """As in ``Duty``."""
        self._pool.shutdown(wait=wait, cancel_futures=True)
        return True

    def _changed(self, truncator: LogTruncator) -> None:
        with self._run_state.changed:
            if truncator in self._truncators.values():
                self._note(truncator)

    def _note(self, truncator: LogTruncator) -> None:
        if truncator.due is None:
            self._schedule.drop(truncator)
        else:
            self._schedule.set(truncator, truncator.due)
            self._run_state.wake_by(truncator.due)


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
        self._scheduler.resume(self._task)

    def on_segment_finished(self) -> None:
        """Schedule truncation by age."""
        self._truncations.note_newer(self._truncator)

    def on_replicated(self) -> None:
        """Truncate the log up to what all its replicas hold."""
        self._truncations.run(self._truncator)
