"""Jobs that a replicator runs for each replica from time to time, in a thread that no caller waits for: scrubs, and the
extension of locks."""

from __future__ import annotations

import logging
import math
import threading
from functools import partial
from typing import TYPE_CHECKING, Protocol

from litelog.events import fields
from litelog.replicator.run_state import DueTimes
from litelog.replicator.task import FINISHED, ReplicaTask, TaskDuty
from litelog.shipping.events import ScrubFinished
from litelog.units import format_count

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import ThreadPoolExecutor

    from litelog.replicator.run_state import RunState
    from litelog.replicator.thread_pools import DestinationThreads
    from litelog.shipping.events import ReplicaListener

STOP_SECONDS = 1.0
"""How long the end of the run waits for jobs that are still running, in seconds."""

_logger = logging.getLogger(__name__)


class PeriodicJob(Protocol):
    """A job of one replica."""

    due: float
    """When it is to run next, in monotonic seconds."""
    running: bool


class PeriodicJobs(TaskDuty):
    """Runs one job of each replica whenever it is due. Needs no lock."""

    def __init__(self, run_state: RunState, pool: Callable[[str], ThreadPoolExecutor]) -> None:
        """``pool`` returns the threads for the replica at a URL."""
        self._run_state = run_state
        self._pool = pool
        self._schedule: DueTimes[ReplicaTask] = DueTimes()
        self._stops: dict[ReplicaTask, threading.Event] = {}
        self._idle = threading.Condition()
        self._running = 0

    def job_of(self, task: ReplicaTask) -> PeriodicJob | None:
        """The job of a task; None if it has none."""
        raise NotImplementedError

    def run_job(self, task: ReplicaTask, stop: threading.Event) -> None:
        """Run the job of a task in a thread, and report the result. It ends early once ``stop`` is set."""
        raise NotImplementedError

    def add(self, task: ReplicaTask) -> None:
        """As in ``TaskDuty``, if the task has such a job."""
        job = self.job_of(task)
        if job is not None:
            self._schedule.set(task, job.due)
            self._run_state.wake_by(job.due)

    def finish(self, task: ReplicaTask) -> bool:
        """As in ``TaskDuty``: ends a running job."""
        stop = self._stops.get(task)
        if stop is not None:
            stop.set()
        job = self.job_of(task)
        return job is None or not job.running

    def remove(self, task: ReplicaTask) -> None:
        """As in ``TaskDuty``."""
        self._schedule.drop(task)
        self._stops.pop(task, None)

    def serve(self, now: float) -> float:
        """As in ``Duty``. Ends all jobs once the run is ending."""
        if self._run_state.is_ending():
            self._halt()
            return math.inf
        for task in self._schedule.take(now):  # it is scheduled again after its job
            job = self.job_of(task)
            if job is None or task.phase in FINISHED or task.leaving:
                continue
            job.running = True
            self._count(1)
            stop = self._stops[task] = threading.Event()
            self._pool(task.url).submit(self._run_state.guard, partial(self._run, task, job, stop))
        return self._schedule.next

    def stop(self, *, wait: bool) -> bool:
        """As in ``Duty``."""
        with self._run_state.changed:
            self._halt()
        with self._idle:
            return self._idle.wait_for(lambda: not self._running, STOP_SECONDS if wait else 0.0)

    def _halt(self) -> None:
        for stop in self._stops.values():
            stop.set()

    def _run(self, task: ReplicaTask, job: PeriodicJob, stop: threading.Event) -> None:
        try:
            if not (self._run_state.stop_requested.is_set() or stop.is_set()):
                self.run_job(task, stop)
        finally:
            self._count(-1)
            with self._run_state.changed:
                job.running = False
                if not task.leaving:
                    self._schedule.set(task, job.due)
                self._run_state.wake()

    def _count(self, change: int) -> None:
        with self._idle:
            self._running += change
            self._idle.notify_all()


class Scrubs(PeriodicJobs):
    """Runs the scrubs of replicas."""

    def __init__(self, run_state: RunState, threads: DestinationThreads, listener: ReplicaListener) -> None:
        super().__init__(run_state, threads.scrubbing)
        self._listener = listener

    def job_of(self, task: ReplicaTask) -> PeriodicJob | None:
        """The task's scrub."""
        return task.scrub

    def run_job(self, task: ReplicaTask, stop: threading.Event) -> None:
        """As in ``PeriodicJobs``. Reports new anomalies."""
        result = None if task.scrub is None else task.scrub.run(stop)
        if result is None:
            return
        verified, new = result
        where = {"log": task.log, "replica": task.url}
        for anomaly in new:
            level = logging.ERROR if anomaly.harmful else logging.WARNING
            message = "%s to %s: the replica has an anomaly: %s"
            extra = fields("anomaly", **where, kind=str(anomaly.kind), object=anomaly.key)
            _logger.log(level, message, task.log, task.url, anomaly, extra=extra)
        if verified.error is not None:
            extra = fields("verify-failed", **where)
            _logger.warning("%s to %s: could not be verified: %s", task.log, task.url, verified.error, extra=extra)
        else:
            objects = format_count(verified.objects, "object")
            anomalies = format_count(verified.anomalies, "anomaly", "anomalies")
            extra = fields("verified", **where, objects=verified.objects, anomaly_count=verified.anomalies)
            _logger.info("%s to %s: verified %s: %s", task.log, task.url, objects, anomalies, extra=extra)
        self._listener.on_scrub_finished(ScrubFinished(task.log, task.url, verified, tuple(new)))


class LockExtensions(PeriodicJobs):
    """Extends the locks of replicas' objects."""

    def __init__(self, run_state: RunState, threads: DestinationThreads) -> None:
        super().__init__(run_state, threads.locking)

    def job_of(self, task: ReplicaTask) -> PeriodicJob | None:
        """The task's extension of locks."""
        return task.lock_extension

    def run_job(self, task: ReplicaTask, stop: threading.Event) -> None:
        """As in ``PeriodicJobs``. Logs what was extended, and what could not be."""
        extension = task.lock_extension
        if extension is None:
            return
        before = extension.last
        result = extension.run(stop)
        if result is not None:
            extension.report(task.log, task.url, before)
