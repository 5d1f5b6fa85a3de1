"""The state of a replicator's run, the lock that guards the state its threads share, and the schedule of due work."""

from __future__ import annotations

import math
import threading
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from litelog.system.clock import Clock


class RunState:
    """The state of a run, from replicating to the last sync and the end. Everything except ``guard`` is called under
    the lock of ``changed``."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        """Notified when the main loop has something to do."""
        self.progress = threading.Condition(lock)
        """Notified when a replica has made progress, or can no longer make any."""
        self.stopping = False
        self.stop_requested = threading.Event()
        """``stopping`` as an event, for waits that do not hold the lock."""
        self.final = False
        """Whether a sync that starts now is the last one."""
        self.deadline: float | None = None
        """When the last sync must end, in monotonic seconds; None while it has no limit."""
        self.has_one_replica = False
        """Whether there is one replica in all, and no other can be added: the run ends with its error."""
        self.bug: BaseException | None = None
        self.wake_at = -math.inf
        """When the main loop wakes, unless a call wakes it earlier. Monotonic seconds."""

    @property
    def ends_by(self) -> float:
        """``deadline``; infinity without one."""
        return math.inf if self.deadline is None else self.deadline

    def guard(self, work: Callable[[], None]) -> None:
        """Run ``work``. A bug in it ends the process, instead of silently ending one log."""
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            with self.changed:
                self.bug = error
                self.wake()
                self.progress.notify_all()

    def wake(self) -> None:
        """Wake the main loop now."""
        self.wake_at = -math.inf
        self.changed.notify_all()

    def wake_by(self, due: float) -> None:
        """Make the main loop wake no later than ``due``."""
        if due < self.wake_at:
            self.wake()

    def should_continue(self) -> bool:
        """Whether a running sync may put more. Needs no lock."""
        if self.final:
            return self.deadline is None or self.clock.monotonic() < self.deadline
        return not self.stopping

    def is_ending(self) -> bool:
        """Whether no more logs are opened. Needs no lock."""
        return self.stopping or self.final

    def is_late(self, due: float) -> bool:
        """Whether ``due`` is after the deadline of the last sync."""
        return self.deadline is not None and due >= self.deadline


T = TypeVar("T", bound="Hashable")

MAX_STALE = 64
"""How many stale times the heap may hold, in addition to one for each time at which an entry is due."""


class DueTimes(Generic[T]):
    """A time for each entry at which it is due, in monotonic seconds. Not thread-safe."""

    def __init__(self) -> None:
        self._due: dict[T, float] = {}
        self._at: dict[float, dict[T, None]] = {}
        self._times: list[float] = []
        """A heap of all times of ``_at``, and of some times that were removed from it."""

    def set(self, entry: T, due: float) -> None:
        """Make an entry due at that time only."""
        self.drop(entry)
        self._due[entry] = due
        together = self._at.get(due)
        if together is None:
            self._at[due] = {entry: None}
            heappush(self._times, due)
        else:
            together[entry] = None

    def drop(self, entry: T) -> None:
        """Remove an entry."""
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
        """Remove the entries that are due. Return them in the order of their times."""
        taken: list[T] = []
        while self._times and self._times[0] <= now:
            for entry in self._at.pop(heappop(self._times), ()):
                del self._due[entry]
                taken.append(entry)
        return taken

    @property
    def next(self) -> float:
        """When the next entry may be due; infinity if there is none."""
        return self._times[0] if self._times else math.inf
