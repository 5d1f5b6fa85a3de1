"""When logs are truncated though no replica has come further: as soon as what they hold is old enough."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from litelog.replicator.schedule import Schedule

if TYPE_CHECKING:
    from litelog.replicator.run_state import Course
    from litelog.replicator.task import ReplicaTask
    from litelog.shipping.source_truncation import LogTruncator


class Truncations:
    """Called under the course's lock, but for ``shutdown``. One log is truncated at a time: it takes no network."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._schedule: Schedule[LogTruncator] = Schedule()
        self._of: dict[ReplicaTask, LogTruncator] = {}
        self._pool = ThreadPoolExecutor(1, "truncate")

    def add(self, task: ReplicaTask) -> None:
        """Take in the log of a task."""
        truncator = task.truncator
        if truncator is not None and truncator.has_age:
            self._of[task] = truncator
            truncator.on_due = partial(self._changed, truncator)
            self._note(truncator)

    def remove(self, task: ReplicaTask) -> None:
        """Forget the log of a task, if no other task is of it."""
        truncator = self._of.pop(task, None)
        if truncator is not None and truncator not in self._of.values():
            self._schedule.drop(truncator)

    def serve(self, now: float) -> float:
        """Have those looked at that are due; when the next one is."""
        for truncator in self._schedule.take(now):  # until it tells of a change
            self._pool.submit(self._course.guard, truncator.run)
        return self._schedule.next

    def shutdown(self, *, wait: bool) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=wait, cancel_futures=True)

    def _changed(self, truncator: LogTruncator) -> None:
        with self._course.changed:
            if truncator in self._of.values():
                self._note(truncator)

    def _note(self, truncator: LogTruncator) -> None:
        if truncator.due is None:
            self._schedule.drop(truncator)
        else:
            self._schedule.set(truncator, truncator.due)
            self._course.call_by(truncator.due)
