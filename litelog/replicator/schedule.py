"""Who is due when. Many that are due at one time cost little: they are kept together."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

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
