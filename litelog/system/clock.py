"""Time, as an argument: nothing in the library asks the machine for it."""

from __future__ import annotations

import time
from typing import Protocol

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """What time it is."""

    def now(self) -> int:
        """Microseconds since 1970. May jump."""

    def monotonic(self) -> float:
        """Seconds from some point; never goes back, and counts while the machine is suspended where it can."""


class SystemClock:
    """The machine's own."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.clock_gettime(_STEADY)


def read_boot_id() -> str:
    """Which run of the machine's steady clock this is: times of one run can be compared by several processes, one after
    the other. Empty where that cannot be known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
