"""The server's view of the daemon. Separate threads ask the daemon, so that neither side waits for the other."""

from __future__ import annotations

import logging
import math
import threading
from typing import TYPE_CHECKING, Protocol

from litelog.errors import LitelogError
from litelog.events import fields
from litelog.server.status_view import StatusView
from litelog.server.verdict import judge
from litelog.server.verdict_history import VerdictHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from litelog.replicator.barrier import Barrier
    from litelog.replicator.live_log import LiveLog
    from litelog.replicator.status import NotReplicated, ReplicaStatus
    from litelog.server.status_view import HealthThresholds
    from litelog.server.verdict import Judgement
    from litelog.system.change_signal import ChangeSignal
    from litelog.system.clock import Clock

MEASURE_SECONDS = 1.0
RETRY_SECONDS = 1.0
"""Seconds before a retry after an unexpected error."""
FRESH_SECONDS = 0.25
"""Seconds for which a status is reused. The server asks the daemon at most four times a second, for any number of
clients."""
RECORD_SECONDS = 30.0
"""Seconds between two records of the verdicts on all replicas, for the page."""
PATIENCE_SECONDS = 2.0
"""Seconds to wait for a new status. After that, the last one is returned, with its age."""

_logger = logging.getLogger(__name__)


class StatusCache:
    """Keeps the daemon's latest status. ``read`` works from any thread, and does not hang if the daemon does."""

    def __init__(
        self,
        daemon: Daemon,
        rules: HealthThresholds,
        clock: Clock,
        *,
        host: str | None = None,
        config: str | None = None,
        state_dir: str | None = None,
    ) -> None:
        """``host``: this machine's name, and ``config``: the configuration file, both for people. ``state_dir``: the
        state folder, by which commands recognise the daemon, and which keeps the verdicts of the last day."""
        self.rules = rules
        self.host = host
        self.config = config
        self.state_dir = state_dir
        self.clock = clock
        self.started = clock.now()
        self.verdicts = VerdictHistory(state_dir)
        self._daemon = daemon
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._wanted = False
        self._statuses: Sequence[ReplicaStatus] = ()
        self._opened = self._ready = False
        self._not_replicated: Sequence[NotReplicated] = ()
        self._time = clock.now()
        self._taken = self._measured = clock.monotonic()
        self._oldest = math.inf  # older statuses are not returned; there is none yet
        self._failed = False
        self._threads = [
            threading.Thread(target=self._repeat, args=(work, name), name=name, daemon=True)
            for work, name in ((self._measure, "measure"), (self._take, "status"), (self._record, "verdicts"))
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads. A thread that hangs in the daemon, or in a file system, is abandoned."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    def read(self, fresh: float = FRESH_SECONDS, patience: float = PATIENCE_SECONDS) -> StatusView:
        """The current status of the daemon, or the last one if the daemon does not answer.

        ``fresh``: reuse a status that is at most this many seconds old. ``patience``: wait at most this many seconds.
        """
        with self._changed:
            asked = self.clock.monotonic()
            if self._taken < self._oldest or asked - self._taken > fresh:
                self._wanted = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._taken >= asked or self._stopped.is_set(), patience)
            return StatusView(
                self._statuses,
                self.clock.monotonic(),
                self._time,
                self._taken,
                self._measured,
                self._daemon.last_turn,
                self._opened,
                self._not_replicated,
                self._ready,
            )

    def judge(self) -> Judgement:
        """The verdict on the current status."""
        return judge(self.read(), self.rules)

    def expire(self) -> None:
        """Make the next read return a newer status, so that a caller who waited for a change sees it."""
        with self._changed:
            self._oldest = self.clock.monotonic()

    def _repeat(self, work: Callable[[], None], name: str) -> None:
        """Repeat ``work``. An unexpected error does not end the thread.

        The error is logged once, and the work is retried. Meanwhile the known values grow old, which /healthz reports.
        """
        failed = False
        while not self._stopped.is_set():
            try:
                work()
            except Exception as error:
                if not failed:
                    failed = True
                    message = "the daemon's %s cannot be read: %s; trying again every %g s"
                    extra = fields("status-failed", part=name)
                    _logger.exception(message, name, error, RETRY_SECONDS, extra=extra)
                self._stopped.wait(RETRY_SECONDS)
            else:
                failed = False

    def _measure(self) -> None:
        try:
            self._daemon.measure()
        except (LitelogError, OSError) as error:
            self._report(error)
        else:
            self._measured = self.clock.monotonic()
        self._stopped.wait(MEASURE_SECONDS)

    def _record(self) -> None:
        view = self.read()
        self.verdicts.record(view, judge(view, self.rules).replicas)
        self._stopped.wait(RECORD_SECONDS)

    def _take(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._wanted or self._stopped.is_set())
            if self._stopped.is_set():
                return
            self._wanted = False
        taken, time = self.clock.monotonic(), self.clock.now()
        opened, statuses, lacking = self._daemon.opened, self._daemon.status(), self._daemon.not_replicated()
        ready = self._daemon.is_ready()
        with self._changed:
            self._statuses, self._taken, self._time = statuses, taken, time
            self._opened, self._not_replicated, self._ready = opened, lacking, ready
            self._oldest = taken if self._oldest == math.inf else self._oldest
            self._changed.notify_all()

    def _report(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            _logger.error("the logs' folders cannot be read: %s", error, extra=fields("measuring-failed"))


class Daemon(Protocol):
    """The methods of a replicator that the server needs. Any thread may call them."""

    @property
    def last_turn(self) -> float:
        """When the main loop took its last turn, in the clock's monotonic seconds. It takes at least one a second."""

    @property
    def opened(self) -> bool:
        """Whether it has tried to open everything that existed at its start."""

    @property
    def log_changes(self) -> ChangeSignal:
        """Reports that ``live_logs`` or ``opened`` may have changed."""

    def live_logs(self) -> Mapping[str, LiveLog]:
        """The logs that have an open replica, by their folders."""

    def is_ready(self) -> bool:
        """Whether it has synced the logs that exist. Once True, it stays True."""

    def status(self) -> list[ReplicaStatus]:
        """The state of every replica."""

    def not_replicated(self) -> tuple[NotReplicated, ...]:
        """Configured logs and replicas that cannot be opened. ``status`` does not have them."""

    def measure(self) -> None:
        """Measure the logs' folders, for the lag in ``status``. May hang with their file systems."""

    def barrier(self, log: str | None, replica: str | None, timeout: float) -> Barrier:
        """Wait until the current data of the logs is durable, at most ``timeout`` seconds.

        Raises ConfigError if ``log`` and ``replica`` match none.
        """
