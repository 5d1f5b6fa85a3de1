"""A clock that stands still until a test moves it."""

from __future__ import annotations

import time


class ManualClock:
    """Starts at the machine's time, as code compares it with the time stamps of files."""

    def __init__(self, now: int | None = None) -> None:
        self._now = time.time_ns() // 1000 if now is None else now
        self._monotonic = 1000.0

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._monotonic += seconds
        self._now += int(seconds * 1_000_000)

    def jump(self, seconds: float) -> None:
        """Move the wall clock, as an administrator does. Monotonic time does not change."""
        self._now += int(seconds * 1_000_000)
