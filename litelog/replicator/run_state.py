"""Where the run of a replicator stands, and the lock that guards all that its threads share."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.system.clock import Clock


class Course:
    """From replicating to the last sync and the end. All but ``guard`` is called under the lock of ``changed``."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        """Told when the main loop has something to do."""
        self.progress = threading.Condition(lock)
        """Told when a replica has come further, or will come no further: for whoever waits for that."""
        self.stopping = False
        self.stop_requested = threading.Event()
        """The same, for waits that do not hold the lock."""
        self.final = False
        """Whether what begins now is the last sync."""
        self.deadline: float | None = None
        self.bug: BaseException | None = None
        self.wake_at = -math.inf
        """When the main loop will look again, if nobody calls it before."""

    def guard(self, work: Callable[[], None]) -> None:
        """Do ``work``; a bug in it ends the process rather than one log in silence."""
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            with self.changed:
                self.bug = error
                self.call()
                self.progress.notify_all()

    def call(self) -> None:
        """Have the main loop look at once."""
        self.wake_at = -math.inf
        self.changed.notify_all()

    def call_by(self, due: float) -> None:
        """Have the main loop look by then."""
        if due < self.wake_at:
            self.call()

    def may_go_on(self) -> bool:
        """Whether a sync that is under way may put more. Needs no lock."""
        if self.final:
            return self.deadline is None or self.clock.monotonic() < self.deadline
        return not self.stopping

    def is_ending(self) -> bool:
        """Whether no log is taken in any more. Needs no lock."""
        return self.stopping or self.final

    def is_late(self, due: float) -> bool:
        """Whether that is behind the deadline of the last sync."""
        return self.deadline is not None and due >= self.deadline
