"""What a daemon takes from round to round of a soak, and how much of a leak shows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

GUESTS = 4
"""Found logs that come in each round, and go in the next one."""

LEAK_BYTES = 100 << 10
"""What a log that appears and disappears, or is opened again, may leave behind at most."""

MAX_THREADS = 110 + (os.cpu_count() or 1)
"""Of two destinations with 43 each at most, one that compresses for each processor, and some twenty for all else."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """What one moment of a daemon takes."""

    resident_bytes: int
    """Private memory, without the pages of files."""
    files: int
    """Descriptors of all but sockets."""
    sockets: int
    threads: int


@dataclass(frozen=True, slots=True)
class Limit:
    """By how much a daemon may grow."""

    each_round: float
    noise: float
    """What it may take more at some time, and never again, whatever the number of rounds."""


LIMITS = {
    "files": Limit(0.5, 2),
    # Pools keep some connections, and more only if more is done at a time.
    "sockets": Limit(1.5, 2),
    # 3 to 5 MB more, of 90, were seen after a few minutes, as allocators keep what was freed, and logs that stay are
    # longer. With a leak of LEAK_BYTES for each log that was closed it was 3 MB a round.
    "resident_bytes": Limit(GUESTS * LEAK_BYTES / 2, 4 << 20),
}
"""A descriptor that each guest leaves open is GUESTS a round, so three rounds find it. LEAK_BYTES for each guest need
sixty rounds, as many as a night has."""


def growth(gauges: Sequence[Gauge], field: str) -> float:
    """How much more is taken each round: the lesser of the growths from the first third of the rounds to the second,
    and from that to the last. A leak grows in both of them. A pool or an allocator that has reached its size does not.
    """
    return _least_step(gauges, field) / _rounds_of_a_step(gauges)


def _least_step(gauges: Sequence[Gauge], field: str) -> float:
    third = len(gauges) // 3
    values = [getattr(gauge, field) for gauge in gauges]
    first, second, last = median(values[:third]), median(values[third:-third]), median(values[-third:])
    return min(second - first, last - second)


def _rounds_of_a_step(gauges: Sequence[Gauge]) -> float:
    """How many rounds are between the middles of two neighbouring thirds."""
    return (len(gauges) - len(gauges) // 3) / 2


def assert_flat(gauges: Sequence[Gauge]) -> None:
    """A leak of one descriptor, or of LEAK_BYTES, in each log that comes and goes, or in each reload, shows: the sooner
    the more rounds there are. Three are the fewest that can be judged."""
    assert len(gauges) >= 3
    for field, limit in LIMITS.items():
        allowed = limit.each_round * _rounds_of_a_step(gauges) + limit.noise
        assert _least_step(gauges, field) <= allowed, (field, [getattr(gauge, field) for gauge in gauges])
    assert max(gauge.threads for gauge in gauges) <= MAX_THREADS, [gauge.threads for gauge in gauges]
