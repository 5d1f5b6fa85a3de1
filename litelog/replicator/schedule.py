"""Who is due when. Many that are due at one time cost little: they are kept together."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

T = TypeVar("T", bound="Hashable")


class Schedule(Generic[T]):
    """Each entry is due at one time; not safe for threads. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._due: dict[T, float] = {}
        self._at: dict[float, list[T]] = {}
        self._times: list[float] = []

    def set(self, entry: T, due: float) -> None:
        """Have it due then, and no more when it was before."""
        self._due[entry] = due
        together = self._at.get(due)
        if together is None:
            self._at[due] = [entry]
            heappush(self._times, due)
        else:
            together.append(entry)

    def drop(self, entry: T) -> None:
        """Have it due never."""
        self._due.pop(entry, None)

    def take(self, now: float) -> list[T]:
        """Those that are due, in the order of their times; they are in it no more."""
        taken: list[T] = []
        while self._times and self._times[0] <= now:
            time = heappop(self._times)
            for entry in self._at.pop(time):
                if self._due.get(entry) == time:
                    del self._due[entry]
                    taken.append(entry)
        return taken

    @property
    def next(self) -> float:
        """When somebody may be due next; infinity where nobody is."""
        return self._times[0] if self._times else math.inf
