"""The server's view of the daemon: what it asks, and the answers, which threads of its own fetch.

So neither waits for the other.
"""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from litelog.errors import LitelogError
from litelog.events import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.replicator.barrier import Barrier
    from litelog.replicator.status import NotReplicated, ReplicaStatus
    from litelog.system.clock import Clock

MEASURE_SECONDS = 1.0
RETRY_SECONDS = 1.0
"""How soon it is tried again after a bug."""
FRESH_SECONDS = 0.25
"""A status younger than this is given again: however many ask, the daemon is asked four times a second."""
PATIENCE_SECONDS = 2.0
"""How long a new status is waited for; then the last one is given, with its age."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The daemon at one moment. Times are monotonic seconds, but for ``time``."""

    statuses: Sequence[ReplicaStatus]
    now: float
    """When this was asked for."""
    time: int
    """When it was taken, microseconds since 1970."""
    taken: float
    measured: float
    """When the logs' folders were looked at last."""
    last_turn: float
    opened: bool = True
    """Whether it has opened all that was there when it began, as far as it could."""
    not_replicated: Sequence[NotReplicated] = ()


class Board:
    """Keeps what the daemon says of itself. ``read`` from any thread; nothing hangs where the daemon does."""

    def __init__(self, daemon: Daemon, rules: Rules, clock: Clock) -> None:
        self.rules = rules
        self.clock = clock
        self.started = clock.now()
        self._daemon = daemon
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._wanted = False
        self._statuses: Sequence[ReplicaStatus] = ()
        self._opened = False
        self._not_replicated: Sequence[NotReplicated] = ()
        self._time = clock.now()
        self._taken = self._measured = clock.monotonic()
        self._oldest = math.inf  # what was taken before is not given; there is nothing yet
        self._failed = False
        self._threads = [
            threading.Thread(target=self._go_on, args=(work, name), name=name, daemon=True)
            for work, name in ((self._measure, "measure"), (self._take, "status"))
        ]

    def start(self) -> None:
        """Begin to look."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Look no more. A thread that hangs in the daemon, or in a file system, is left."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    def read(self, fresh: float = FRESH_SECONDS, patience: float = PATIENCE_SECONDS) -> Snapshot:
        """The daemon now, or as it was when it answered last."""
        with self._changed:
            asked = self.clock.monotonic()
            if self._taken < self._oldest or asked - self._taken > fresh:
                self._wanted = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._taken >= asked or self._stopped.is_set(), patience)
            return Snapshot(
                self._statuses,
                self.clock.monotonic(),
                self._time,
                self._taken,
                self._measured,
                self._daemon.last_turn,
                self._opened,
                self._not_replicated,
            )

    def expire(self) -> None:
        """What is read next is newer than now: whoever waited for something sees it."""
        with self._changed:
            self._oldest = self.clock.monotonic()

    def _go_on(self, work: Callable[[], None], name: str) -> None:
        """Do ``work`` again and again. What is a bug in it ends no thread: it is logged once, what is known grows old,
        which health reports, and the work is tried again."""
        failed = False
        while not self._stopped.is_set():
            try:
                work()
            except Exception as error:
                if not failed:
                    failed = True
                    said = "the daemon's %s cannot be had: %s; it is tried again each %g s"
                    extra = fields("status-failed", part=name)
                    _logger.exception(said, name, error, RETRY_SECONDS, extra=extra)
                self._stopped.wait(RETRY_SECONDS)
            else:
                failed = False

    def _measure(self) -> None:
        try:
            self._daemon.measure()
        except (LitelogError, OSError) as error:
            self._tell(error)
        else:
            self._measured = self.clock.monotonic()
        self._stopped.wait(MEASURE_SECONDS)

    def _take(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._wanted or self._stopped.is_set())
            if self._stopped.is_set():
                return
            self._wanted = False
        taken, time = self.clock.monotonic(), self.clock.now()
        opened, statuses, lacking = self._daemon.opened, self._daemon.status(), self._daemon.not_replicated()
        with self._changed:
            self._statuses, self._taken, self._time = statuses, taken, time
            self._opened, self._not_replicated = opened, lacking
            self._oldest = taken if self._oldest == math.inf else self._oldest
            self._changed.notify_all()

    def _tell(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            _logger.error("the logs' folders cannot be looked at: %s", error, extra=fields("measuring-failed"))


class Daemon(Protocol):
    """A replicator, as far as others need it. From any thread."""

    @property
    def last_turn(self) -> float:
        """When its main loop took its last turn, in the clock's monotonic seconds: one a second at least."""

    @property
    def opened(self) -> bool:
        """Whether all that was there when it began has been opened, as far as it could be."""

    def status(self) -> list[ReplicaStatus]:
        """Where every replica stands."""

    def not_replicated(self) -> tuple[NotReplicated, ...]:
        """What the configuration means and ``status`` does not tell of, as it cannot be opened."""

    def measure(self) -> None:
        """Look at the logs' folders for the lag that ``status`` tells. It may hang as file systems do."""

    def barrier(self, log: str | None, replica: str | None, timeout: float) -> Barrier:
        """Wait until what the logs hold now is durable. ConfigError where ``log`` and ``replica`` name none."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When a daemon is to be believed."""

    max_lag: float
    """Seconds."""
    loop_seconds: float = 30.0
    """How old its main loop's last turn may be, and so the last look at the logs, and the last status."""
