"""The clock. Whatever decides by the time takes a clock as an argument, so that tests can set the time."""

from __future__ import annotations

import time
from typing import Protocol

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Gives the time."""

    def now(self) -> int:
        """Microseconds since 1970. May jump."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary point. Never goes back, and counts while the machine is suspended, if it can."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.clock_gettime(_STEADY)


def read_boot_id() -> str:
    """The id of the machine's current boot; empty if it is unknown. Processes can compare monotonic times of one boot,
    even if they run one after the other."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
