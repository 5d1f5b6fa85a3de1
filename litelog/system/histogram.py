"""Histograms of durations, for latencies."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass

BOUNDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)
"""Seconds: from a local disk's fsync to a store that is almost unusable."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Observations so far. ``counts`` has one more entry than BOUNDS, for durations above the last bound."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    total: float = 0.0
    """The sum in seconds."""

    @property
    def observed(self) -> int:
        """The number of observations."""
        return sum(self.counts)

    def __add__(self, other: Durations) -> Durations:
        return Durations(tuple(map(sum, zip(self.counts, other.counts, strict=True))), self.total + other.total)


class Histogram:
    """Observes durations, in constant memory. Safe from any thread."""

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
        """All observations so far."""
        with self._lock:
            return Durations(tuple(self._counts), self._total)
