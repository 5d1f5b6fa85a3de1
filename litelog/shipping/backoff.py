"""How long to wait after a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import ExistsError, LitelogError, NotFoundError, StoreError
from litelog.events import is_worth_saying as is_worth_saying  # noqa: PLC0414 - whoever backs off asks it here

if TYPE_CHECKING:
    from random import Random

FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 30.0
"""A store that comes back is noticed within this time, and one that is down gets few requests. A store that asks to be
left alone for longer (Retry-After) is asked again after this time as well: after a fault, shipping must catch up soon,
and a proxy in front of the store may ask for minutes or hours."""


class BackOff:
    """The failures in a row, and the delay behind the last one."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.failures = 0
        self.delay = FIRST_DELAY_SECONDS

    def fail(self, error: LitelogError) -> float:
        """Take note of a failure; how many seconds to wait: jittered, at least as long as the store asks, capped."""
        self.failures += 1
        self.delay = MAX_DELAY_SECONDS if needs_help(error) else next_delay(self.delay, self._random)
        return max(self.delay, asked_delay(error))

    def succeed(self) -> None:
        """Forget the failures before."""
        self.failures = 0
        self.delay = FIRST_DELAY_SECONDS

    @property
    def worth_saying(self) -> bool:
        """Whether the last failure is one that is told."""
        return is_worth_saying(self.failures)


def needs_help(error: LitelogError) -> bool:
    """Whether trying again soon is of no use: somebody has to give a right, make a bucket, set a clock."""
    return isinstance(error, StoreError) and not error.retryable and not isinstance(error, NotFoundError | ExistsError)


def asked_delay(error: LitelogError) -> float:
    """For how many seconds the store is left alone because it asked for that: at most MAX_DELAY_SECONDS."""
    return min(error.retry_after or 0.0, MAX_DELAY_SECONDS) if isinstance(error, StoreError) else 0.0


def describe_wait(error: LitelogError, seconds: float) -> str:
    """When the request is tried again, for a log line: in ``seconds``, and what the store asked for if it did."""
    asked = error.retry_after if isinstance(error, StoreError) else None
    return f"tried again in {seconds:.1f} s" + (f" (the store asked for {asked:g} s)" if asked else "")


def next_delay(delay: float, random: Random) -> float:
    """Decorrelated jitter: between the first delay and three times the last one, capped. Seconds."""
    return min(MAX_DELAY_SECONDS, random.uniform(FIRST_DELAY_SECONDS, 3 * delay))
