"""Writes signed checkpoints of one generation to its replica, in the background: after each snapshot, and at intervals.

A failure never delays a WAL segment, a sealed segment or a snapshot. It is retried, and reported.

Specified in litelog/shipping/README.md#checkpoints.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from litelog.errors import FencedError, LitelogError, SourceError
from litelog.events import fields
from litelog.shipping.backoff import BackOff, describe_wait, needs_help
from litelog.shipping.checkpoint_writer import CheckpointWriter
from litelog.system.memory import clear_error_frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.log.source_position import SourcePosition
    from litelog.objects.claim import Claim
    from litelog.shipping.archive_state import ArchiveState
    from litelog.shipping.context import CheckpointPolicy, ReplicaContext
    from litelog.shipping.state import Running

_logger = logging.getLogger(__name__)

Known: TypeAlias = "tuple[Running, ArchiveState | None]"
"""What is shipped, and what is sealed: None once another generation begins."""

LAST_FAILURES = 3
"""After how many failures in a row a stopping daemon gives up the last checkpoint."""


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """The state of checkpoints."""

    written: int
    """How many this run wrote."""
    number: int | None
    """The number of the newest one; None if there is none yet."""
    time: int | None
    """When it was made, in microseconds since 1970."""
    failures: int
    """How many times in a row the work failed."""
    error: str | None


class Checkpointer:
    """Writes the checkpoints of one generation. Any thread may call the public methods. One thread at a time runs
    ``_work`` in the background."""

    def __init__(
        self, context: ReplicaContext, policy: CheckpointPolicy, claim: Claim, folder: str, known: Callable[[], Known]
    ) -> None:
        """``folder``: the replica's state folder. ``known`` returns what is shipped and sealed now; any thread may call
        it."""
        self._context = context
        self._policy = policy
        self._known = known
        self._writer = CheckpointWriter(context, policy, claim, folder)
        self._stated: SourcePosition | None = None
        """The end that the newest checkpoint states."""
        self._snapshot: int | None = None
        """The newest snapshot's index at that time."""
        self._next_at = 0.0
        self._back_off = BackOff()
        self._random = Random()  # noqa: S311  spreads load, keeps no secret
        self._retry_at = 0.0
        self._error: LitelogError | None = None
        self._last = False
        self._running = False
        self._stopped = False
        self._changed = threading.Condition()

    def wake(self) -> None:
        """Start the work that is due, in the background."""
        with self._changed:
            due = self._due()
            if due is None or due > self._context.clock.monotonic():
                return
            self._running = True
        self._context.workers.background(self._work)

    def stop(self) -> None:
        """Start nothing more."""
        with self._changed:
            self._stopped = True

    def finish(self) -> None:
        """State the acknowledged end, whenever the last checkpoint was. ``busy`` is true while that takes."""
        with self._changed:
            self._last = True
        self.wake()

    @property
    def due(self) -> float | None:
        """When ``wake`` must be called next, in monotonic seconds; None while no work is expected."""
        with self._changed:
            return self._due()

    @property
    def busy(self) -> bool:
        """Whether a last checkpoint is being made, or due and not given up."""
        with self._changed:
            given_up = self._back_off.failures >= LAST_FAILURES
            return self._running or (self._last and not given_up and self._due() is not None)

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` until nothing is running; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, seconds)

    @property
    def status(self) -> CheckpointStatus:
        """The state of checkpoints."""
        with self._changed:
            head = self._writer.newest
            return CheckpointStatus(
                self._writer.written,
                None if head is None else head.number,
                None if head is None else head.checkpoint.time,
                self._back_off.failures,
                None if self._error is None else str(self._error),
            )

    def _due(self) -> float | None:
        state, archive = self._known()
        if self._running or self._stopped or archive is None or state.place == self._stated:
            return None
        at_once = self._last or self._stated is None or archive.snapshot != self._snapshot
        return self._retry_at if at_once else max(self._retry_at, self._next_at)

    def _work(self) -> None:
        try:
            while not self._stopped:
                state, archive = self._known()
                if archive is None:
                    return
                if self._writer.write_next(state, archive):
                    continue
                with self._changed:
                    self._stated, self._snapshot = state.place, archive.snapshot
                    self._next_at = self._find_next()
                    self._back_off.succeed()
                    self._error = None
                return
        except FencedError:
            self.stop()  # the thread that ships finds it out by itself
        except (LitelogError, OSError) as error:
            self._failed(error if isinstance(error, LitelogError) else SourceError(str(error)))
        finally:
            with self._changed:
                self._running = False
                self._changed.notify_all()
            self._context.events.on_archive_changed()

    def _find_next(self) -> float:
        """When the next checkpoint is due, in monotonic seconds: after an interval from the newest one."""
        every = self._policy.interval
        clock, head = self._context.clock, self._writer.newest
        ago = 0.0 if head is None else (clock.now() - head.checkpoint.time) / 1e6
        return clock.monotonic() + min(every, max(0.0, every - ago))

    def _failed(self, error: LitelogError) -> None:
        clear_error_frames(error)
        with self._changed:
            delay = self._back_off.fail(error, self._random)
            self._retry_at = self._context.clock.monotonic() + delay
            self._error = error
            if self._back_off.worth_logging:
                level = logging.ERROR if needs_help(error) else logging.WARNING
                message = "%s to %s: writing a checkpoint failed %d times in a row, %s: %s"
                where = (self._context.source.folder, self._context.client.url)
                failures = self._back_off.failures
                extra = fields("checkpoint-failed", log=where[0], replica=where[1], consecutive_failures=failures)
                _logger.log(level, message, *where, failures, describe_wait(error, delay), error, extra=extra)
