"""When a reader tries again: which errors a further attempt may cure, and how long it waits before each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import PrunedError, StoreError

if TYPE_CHECKING:
    from threading import Event

BACK_OFF_SECONDS = (0.0, 0.05, 0.1, 1.0, 5.0)
"""How many seconds pass before each further attempt after a failed request; the last one repeats."""


def back_off(failures: int) -> float:
    """How many seconds to wait after that many failures in a row."""
    return BACK_OFF_SECONDS[min(failures, len(BACK_OFF_SECONDS)) - 1]


def may_pass(error: BaseException) -> bool:
    """Whether a further attempt may succeed without a person's help. Answers are final: that there is nothing yet, or
    no longer, that a position is gone, and that data is damaged."""
    return isinstance(error, PrunedError) or (isinstance(error, StoreError) and error.retryable)


class ReadRetries:
    """Counts failures in a row, and waits between attempts."""

    def __init__(self, closed: Event, attempts: int | None) -> None:
        """``closed``: ends a wait. ``attempts``: how often in a row requests may fail; None: any number of times."""
        self._closed = closed
        self._attempts = attempts
        self._failures = 0

    def succeed(self) -> None:
        """An attempt succeeded."""
        self._failures = 0

    def is_last(self, error: BaseException) -> bool:
        """Count a failure. Returns whether it was the last attempt."""
        self._failures += 1
        return not may_pass(error) or (self._attempts is not None and self._failures >= self._attempts)

    def wait(self, longest: float | None = None) -> None:
        """Wait before the next attempt, ``longest`` seconds at most."""
        seconds = back_off(self._failures)
        self._closed.wait(seconds if longest is None else min(seconds, longest))
