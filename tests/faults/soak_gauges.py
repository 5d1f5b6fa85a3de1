"""Measures what a daemon takes from round to round of a soak, and judges whether it leaks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

GUESTS = 4
"""The number of found logs that appear in each round, and disappear in the next one."""

LEAK_BYTES = 100 << 10
"""The most memory that may stay after a log disappears or is opened again."""

MAX_THREADS = 110 + (os.cpu_count() or 1)
"""Two destinations with 43 threads each at most, a compressing thread for each processor, and about twenty others."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """The resources of a daemon at one moment."""

    resident_bytes: int
    """Private memory, without the pages of files."""
    files: int
    """Descriptors that are not sockets."""
    sockets: int
    threads: int


@dataclass(frozen=True, slots=True)
class Limit:
    """The growth that a daemon may have."""

    each_round: float
    noise: float
    """The growth that may happen once, for any number of rounds."""


LIMITS = {
    "files": Limit(0.5, 2),
    # A pool keeps some connections. It keeps more after more requests at a time.
    "sockets": Limit(1.5, 2),
    # Of 90 MB, 3 to 5 MB more were seen after a few minutes, as allocators keep freed memory and the logs that stay get
    # longer. A leak of LEAK_BYTES for each closed log took 3 MB a round.
    "resident_bytes": Limit(GUESTS * LEAK_BYTES / 2, 4 << 20),
}
"""If each guest leaves a descriptor open, there are GUESTS more each round, and three rounds find it. To find
LEAK_BYTES for each guest takes sixty rounds, as many as a night has."""


def growth(gauges: Sequence[Gauge], field: str) -> float:
    """The growth for each round: the lesser of the growths from the first third of the rounds to the second, and from
    the second to the last.

    A leak grows in both steps. A pool or an allocator that has reached its size does not.
    """
    return _least_step(gauges, field) / _rounds_of_a_step(gauges)


def _least_step(gauges: Sequence[Gauge], field: str) -> float:
    third = len(gauges) // 3
    values = [getattr(gauge, field) for gauge in gauges]
    first, second, last = median(values[:third]), median(values[third:-third]), median(values[-third:])
    return min(second - first, last - second)


def _rounds_of_a_step(gauges: Sequence[Gauge]) -> float:
    """The number of rounds between the middles of two neighbouring thirds."""
    return (len(gauges) - len(gauges) // 3) / 2


def assert_flat(gauges: Sequence[Gauge]) -> None:
    """Assert that a daemon does not leak.

    It finds a leak of one descriptor, or of LEAK_BYTES, for each log that appears and disappears, or for each reload.
    More rounds find smaller leaks; three are the fewest that can be judged."""
    assert len(gauges) >= 3
    for field, limit in LIMITS.items():
        allowed = limit.each_round * _rounds_of_a_step(gauges) + limit.noise
        assert _least_step(gauges, field) <= allowed, (field, [getattr(gauge, field) for gauge in gauges])
    assert max(gauge.threads for gauge in gauges) <= MAX_THREADS, [gauge.threads for gauge in gauges]
