"""Counts of durations by size: what a latency is told as."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass

BOUNDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)
"""Seconds: from a local disk's fsync to a store that is nearly lost."""


@dataclass(frozen=True, slots=True)
class Durations:
    """What was observed so far. ``counts`` has one more than BOUNDS: what took longer than the last of them."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    total: float = 0.0
    """Seconds, all of them together."""

    @property
    def observed(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def __add__(self, other: Durations) -> Durations:
        return Durations(tuple(map(sum, zip(self.counts, other.counts, strict=True))), self.total + other.total)


class Histogram:
    """Observes durations, in constant memory. From any thread."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0.0
        self._lock = threading.Lock()

    def observe(self, seconds: float) -> None:
        """One more."""
        with self._lock:
            self._counts[bisect_left(BOUNDS, seconds)] += 1
            self._total += seconds

    def read(self) -> Durations:
        """All so far."""
        with self._lock:
            return Durations(tuple(self._counts), self._total)
