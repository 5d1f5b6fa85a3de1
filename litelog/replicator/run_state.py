"""The state of a replicator's run, the lock that guards what its threads share, and the schedule of what is due."""

from __future__ import annotations

import math
import threading
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

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


T = TypeVar("T", bound="Hashable")

MAX_STALE = 64
"""Times that may be kept though nobody is due then, beside as many as there are others."""


class Schedule(Generic[T]):
    """Each entry is due at one time; not safe for threads. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._due: dict[T, float] = {}
        self._at: dict[float, dict[T, None]] = {}
        self._times: list[float] = []
        """A heap of all times of ``_at``, and of some that are there no more."""

    def set(self, entry: T, due: float) -> None:
        """Have it due then, and no more when it was before."""
        self.drop(entry)
        self._due[entry] = due
        together = self._at.get(due)
        if together is None:
            self._at[due] = {entry: None}
            heappush(self._times, due)
        else:
            together[entry] = None

    def drop(self, entry: T) -> None:
        """Have it due never; nothing of it is kept."""
        due = self._due.pop(entry, None)
        if due is None:
            return
        together = self._at[due]
        del together[entry]
        if not together:
            del self._at[due]
            if len(self._times) > 2 * len(self._at) + MAX_STALE:
                self._times = sorted(self._at)

    def take(self, now: float) -> list[T]:
        """Those that are due, in the order of their times; they are in it no more."""
        taken: list[T] = []
        while self._times and self._times[0] <= now:
            for entry in self._at.pop(heappop(self._times), ()):
                del self._due[entry]
                taken.append(entry)
        return taken

    @property
    def next(self) -> float:
        """When somebody may be due next; infinity where nobody is."""
        return self._times[0] if self._times else math.inf
