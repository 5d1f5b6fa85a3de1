"""The scrubs of all replicas: each when it is due, one at a time for each destination, and what they find, said."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from litelog.events import fields
from litelog.replicator.task import OVER
from litelog.shipping.events import Scrubbed

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.replicator.task import ReplicaTask
    from litelog.replicator.thread_pools import DestinationThreads
    from litelog.shipping.events import Listener
    from litelog.verify.anomaly import Anomaly
    from litelog.verify.scrub import Scrub, Verified

_logger = logging.getLogger(__name__)

STOP_SECONDS = 1.0
"""How long a request of a scrub is waited for that is under way when all else has ended."""


class Scrubs:
    """All but ``wait`` is called under the replicator's lock; a scrub itself runs without it."""

    def __init__(
        self,
        threads: DestinationThreads,
        listener: Listener,
        stop: threading.Event,
        guard: Callable[[Callable[[], None]], None],
        wake: Callable[[], None],
    ) -> None:
        """``stop``: set once nothing more is to be read. ``wake``: has the replicator look when the next one is due."""
        self._threads = threads
        self._listener = listener
        self._stop = stop
        self._guard = guard
        self._wake = wake
        self._tasks: dict[ReplicaTask, Scrub] = {}
        self._stops: dict[ReplicaTask, threading.Event] = {}
        self._idle = threading.Condition()
        self._running = 0

    def add(self, task: ReplicaTask) -> None:
        """Take a task in, if its replica is to be scrubbed."""
        if task.scrub is not None:
            self._tasks[task] = task.scrub

    def remove(self, task: ReplicaTask) -> None:
        """Forget a task; what runs goes on until ``halt``."""
        self._tasks.pop(task, None)

    def halt(self, task: ReplicaTask) -> None:
        """Have a task's scrub end that is under way."""
        stop = self._stops.get(task)
        if stop is not None:
            stop.set()

    def halt_all(self) -> None:
        """Have all of them end."""
        for stop in self._stops.values():
            stop.set()

    def serve(self, now: float, next_due: float) -> float:
        """Begin those that are due; when the next one is, or ``next_due``."""
        for task, scrub in self._tasks.items():
            if scrub.running or task.phase in OVER or task.leaving or self._stop.is_set():
                continue
            if scrub.due > now:
                next_due = min(next_due, scrub.due)
                continue
            scrub.running = True
            self._count(1)
            stop = self._stops[task] = threading.Event()
            self._threads.scrubbing(task.url).submit(self._guard, partial(self._run, task, scrub, stop))
        return next_due

    def wait(self) -> bool:
        """Whether all have ended, within a second of having been told to."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._running, STOP_SECONDS)

    def _run(self, task: ReplicaTask, scrub: Scrub, stop: threading.Event) -> None:
        try:
            result = None if self._stop.is_set() or stop.is_set() else scrub.run(stop)
            if result is not None:
                self._tell(task, *result)
        finally:
            scrub.running = False
            self._count(-1)
            self._wake()

    def _tell(self, task: ReplicaTask, verified: Verified, new: list[Anomaly]) -> None:
        where = {"log": task.log, "replica": task.url}
        for anomaly in new:
            level = logging.ERROR if anomaly.harmful else logging.WARNING
            said = "%s to %s: the replica is not as it should be: %s"
            extra = fields("anomaly", **where, kind=str(anomaly.kind), key=anomaly.key)
            _logger.log(level, said, task.log, task.url, anomaly, extra=extra)
        if verified.error is not None:
            extra = fields("verify-failed", **where)
            _logger.warning("%s to %s: could not be verified: %s", task.log, task.url, verified.error, extra=extra)
        else:
            said = "%s to %s: verified %d objects: %d anomalies"
            extra = fields("verified", **where, objects=verified.objects, anomalies=verified.anomalies)
            _logger.info(said, task.log, task.url, verified.objects, verified.anomalies, extra=extra)
        self._listener.scrubbed(Scrubbed(task.log, task.url, verified, tuple(new)))

    def _count(self, change: int) -> None:
        with self._idle:
            self._running += change
            self._idle.notify_all()
