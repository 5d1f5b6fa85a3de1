"""When the archives of all replicas work: sealed segments and snapshots, beside all that is shipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.replicator.schedule import Schedule
from litelog.replicator.snapshot_requests import Answer, Requests
from litelog.replicator.task import OVER, Phase, ReplicaTask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.replicator.run_state import Course
    from litelog.replicator.snapshot_requests import Request
    from litelog.shipping.archiver import Archive
    from litelog.system.inotify import Watcher

STOP_SECONDS = 1.0
"""How long requests of archives are waited for that are under way when all else has ended."""

FINISH_LOOK_SECONDS = 0.1
"""How often it is looked whether the last snapshots are written."""

REQUEST_SECONDS = 1.0
"""How often it is looked for requests where no file-system event tells of them."""

REQUEST_SPACING = 0.1
"""How often it is looked for requests at most."""

NEVER_SECONDS = 3600.0


def archive_of(task: ReplicaTask) -> Archive | None:
    """A task's archive; None before its first sync."""
    return task.replica.archive if task.replica is not None else None


class Archives:
    """Called under the course's lock, but for ``finish`` and ``stop``."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._schedule: Schedule[ReplicaTask] = Schedule()

    def note(self, task: ReplicaTask) -> None:
        """Look when a task's archive has something to do next."""
        archive = archive_of(task)
        due = archive.due if archive is not None else None
        if due is None:
            self._schedule.drop(task)
        else:
            self._schedule.set(task, due)
            self._course.call_by(due)

    def changed(self, task: ReplicaTask) -> None:
        """The same, from any thread; a last snapshot may be written."""
        with self._course.changed:
            self.note(task)
            if task.leaving or self._course.final:
                self._course.call()

    def remove(self, task: ReplicaTask) -> None:
        """Forget a task."""
        self._schedule.drop(task)

    def serve(self, now: float) -> float:
        """Have those work that are due; when the next one is."""
        for task in self._schedule.take(now):  # until it tells of a change
            archive = archive_of(task)
            if archive is not None:
                archive.poke()
        return self._schedule.next

    def finish(self, tasks: Iterable[ReplicaTask]) -> None:
        """Seal what is finished and write the last snapshots, as far as there is time: the WAL segments hold it all."""
        course = self._course
        archives = [archive for task in tasks if task.phase is Phase.DONE and (archive := archive_of(task)) is not None]
        for archive in archives:
            archive.finish()
        busy = [archive for archive in archives if archive.busy]
        with course.changed:
            while course.bug is None and course.may_go_on() and busy:
                course.changed.wait(FINISH_LOOK_SECONDS)
                for archive in busy:
                    archive.poke()
                busy = [archive for archive in busy if archive.busy]

    def stop(self, tasks: Iterable[ReplicaTask]) -> bool:
        """Have them begin nothing more; whether one of them is still waiting for its store."""
        replicas = [task.replica for task in tasks if task.replica is not None]
        for replica in replicas:
            replica.stop()
        until = self._course.clock.monotonic() + STOP_SECONDS
        return not all(replica.wait(max(0.0, until - self._course.clock.monotonic())) for replica in replicas)


class SnapshotRequests:
    """Has snapshots written that other processes ask for. Called under the course's lock."""

    def __init__(self, course: Course, watcher: Watcher, state_dir: str) -> None:
        self._course = course
        self._watcher = watcher
        self._requests = Requests(state_dir)
        self._looked_at = 0.0

    def prepare(self) -> None:
        """Have the folder there; needs no lock."""
        self._requests.prepare()

    def serve(self, now: float, tasks: Iterable[ReplicaTask]) -> float:
        """Serve those that are there; when to look again."""
        if self._course.final:
            return now + NEVER_SECONDS
        watched = self._watcher.arm(self._requests.folder, self._look_again)
        if now >= self._looked_at + REQUEST_SPACING:
            self._looked_at = now
            for request in self._requests.take():
                self._serve(request, tasks)
        elif watched:
            return self._looked_at + REQUEST_SPACING
        return now + (NEVER_SECONDS if watched else REQUEST_SECONDS)

    def _look_again(self) -> None:
        with self._course.changed:
            self._course.call()

    def _serve(self, request: Request, tasks: Iterable[ReplicaTask]) -> None:
        task = next((task for task in tasks if task.state_folder == request.folder), None)
        archive = archive_of(task) if task is not None else None
        if archive is None or task is None or task.phase in OVER:
            reason = "it is not replicated here" if task is None else f"it is not shipped now ({task.phase.value})"
            self._requests.answer(request, Answer(None, reason))
            return
        requests = self._requests
        archive.ask(lambda status: requests.answer(request, Answer(status.snapshot, status.error)))
