"""What a daemon takes from round to round of a soak, and how much of a leak shows."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from tests.faults.soak_course import GUESTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.soak_processes import Gauge

LEAKED_FILES, LEAKED_SOCKETS = 0.5, 1.5
"""How many files, and how many connections, a round may leave open on average. Pools keep some connections, and more
only if more is done at a time. A leak in each round shows as 1 at least."""

LEAK_BYTES = 100 << 10
"""What a log that appears and disappears, or is opened again, may leave behind at most."""

NOISE_BYTES = 8 << 20
"""What a process takes more after a few minutes, and never again: 3 to 5 MB were seen, of 90, as allocators keep what
was freed, and logs that stay are longer. With a leak of LEAK_BYTES for each log that was closed it was 3 MB a round."""

MAX_THREADS = 110
"""Of two destinations with 43 each at most, and some twenty for all else."""


def growth(gauges: Sequence[Gauge], field: str) -> float:
    """How much more the last third of a life takes a round than the first one, by their medians."""
    third = len(gauges) // 3
    values = [getattr(gauge, field) for gauge in gauges]
    return (median(values[-third:]) - median(values[:third])) / (len(gauges) - third)


def assert_flat(gauges: Sequence[Gauge]) -> None:
    """A leak of one descriptor, or of LEAK_BYTES, in each log that comes and goes, or in each reload, shows."""
    assert growth(gauges, "files") <= LEAKED_FILES, [gauge.files for gauge in gauges]
    assert growth(gauges, "sockets") <= LEAKED_SOCKETS, [gauge.sockets for gauge in gauges]
    noise = NOISE_BYTES / len(gauges)
    assert growth(gauges, "resident_bytes") <= GUESTS * LEAK_BYTES / 2 + noise, [
        gauge.resident_bytes >> 10 for gauge in gauges
    ]
    assert max(gauge.threads for gauge in gauges) <= MAX_THREADS, [gauge.threads for gauge in gauges]
