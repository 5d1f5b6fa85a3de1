"""Work in the background that is done one piece at a time, and tried again after a failure.

The archive and the checkpoints of a generation each have one.
"""

from __future__ import annotations

import logging
import threading
from random import Random
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import LitelogError, SourceError
from litelog.events import fields
from litelog.shipping.backoff import BackOff, describe_wait, needs_help
from litelog.system.memory import clear_error_frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.shipping.context import ReplicaContext

AT_ONCE = 0.0
"""The time of work that is due already."""


@dataclass(frozen=True, slots=True)
class FailureLog:
    """How a failure is logged: the logger, the log event, and what failed."""

    logger: logging.Logger
    event: str
    what: str


class RetriedWork:
    """Does what is due in one thread of the background. Any thread may call the methods.

    ``lock`` guards all that this object holds. Its owner guards its own state with the same lock.
    """

    def __init__(
        self,
        context: ReplicaContext,
        log: FailureLog,
        find_due: Callable[[], float | None],
        work: Callable[[], None],
        on_idle: Callable[[], None],
    ) -> None:
        """``find_due`` returns when work is due, in monotonic seconds; None while no work is expected. It is called
        with the lock held. ``work`` does all that is due. A LitelogError or an OSError that it raises is a failure.
        ``on_idle`` is called after each ``work``, in the same thread."""
        self._context = context
        self._log = log
        self._find_due = find_due
        self._work = work
        self._on_idle = on_idle
        self._back_off = BackOff()
        self._random = Random()  # noqa: S311  spreads load, keeps no secret
        self._retry_at = AT_ONCE
        self._error: LitelogError | None = None
        self.running = False
        self.stopped = False
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)

    def wake(self) -> None:
        """Start the work that is due, in the background."""
        with self.lock:
            due = self.due
            if due is None or due > self._context.clock.monotonic():
                return
            self.running = True
        self._context.workers.background(self._run)

    def stop(self) -> None:
        """Start nothing more."""
        with self.lock:
            self.stopped = True

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` until nothing is running; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.running, seconds)

    @property
    def due(self) -> float | None:
        """When ``wake`` must be called next, in monotonic seconds; None while no work is expected."""
        with self.lock:
            due = None if self.running or self.stopped else self._find_due()
            return None if due is None else max(due, self._retry_at)

    @property
    def failures(self) -> int:
        """How many times in a row the work failed."""
        return self._back_off.failures

    @property
    def error(self) -> str | None:
        """The last failure; None after a success."""
        error = self._error
        return None if error is None else str(error)

    def retry_now(self) -> None:
        """Do not wait after the last failure any more."""
        with self.lock:
            self._retry_at = AT_ONCE

    def succeed(self) -> None:
        """Record that a piece of the work is done: it does not fail now."""
        with self.lock:
            self._back_off.succeed()
            self._error = None

    def _run(self) -> None:
        try:
            self._work()
        except (LitelogError, OSError) as error:
            self._fail(error if isinstance(error, LitelogError) else SourceError(str(error)))
        finally:
            with self._changed:
                self.running = False
                self._changed.notify_all()
            self._on_idle()

    def _fail(self, error: LitelogError) -> None:
        clear_error_frames(error)
        with self.lock:
            delay = self._back_off.fail(error, self._random)
            self._retry_at = self._context.clock.monotonic() + delay
            self._error = error
            if not self._back_off.worth_logging:
                return
            level = logging.ERROR if needs_help(error) else logging.WARNING
            message = f"%s to %s: {self._log.what} failed %d times in a row, %s: %s"
            where = (self._context.source.folder, self._context.client.url)
            extra = fields(self._log.event, log=where[0], replica=where[1], consecutive_failures=self.failures)
            wait = describe_wait(error, delay)
            self._log.logger.log(level, message, *where, self.failures, wait, error, extra=extra)
