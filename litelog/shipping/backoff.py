"""Back-off: how long to wait after a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import ExistsError, LitelogError, NotFoundError, StoreError
from litelog.events import is_worth_logging as is_worth_logging  # noqa: PLC0414 - callers that back off use it from here

if TYPE_CHECKING:
    from random import Random

FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 30.0
"""The longest delay. With it, a store that comes back is noticed soon, and a store that is down gets few requests. The
limit also applies if the store asks for a longer pause (Retry-After): after a fault, shipping must catch up soon, and a
proxy in front of the store may ask for minutes or hours."""


class BackOff:
    """The number of failures in a row, and the delay after the last one."""

    def __init__(self) -> None:
        self.failures = 0
        self.delay = FIRST_DELAY_SECONDS

    def fail(self, error: LitelogError, random: Random) -> float:
        """Count a failure. Return the seconds to wait: jittered, at least what the store asks for, capped."""
        self.failures += 1
        self.delay = MAX_DELAY_SECONDS if needs_help(error) else next_delay(self.delay, random)
        return max(self.delay, requested_delay(error))

    def succeed(self) -> None:
        """Reset the count and the delay."""
        self.failures = 0
        self.delay = FIRST_DELAY_SECONDS

    @property
    def worth_logging(self) -> bool:
        """Whether the last failure is to be logged."""
        return is_worth_logging(self.failures)


def needs_help(error: LitelogError) -> bool:
    """Whether a quick retry is useless because a person must act: grant a right, create a bucket, set a clock."""
    return isinstance(error, StoreError) and not error.retryable and not isinstance(error, NotFoundError | ExistsError)


def requested_delay(error: LitelogError) -> float:
    """Return how many seconds the store asked to wait, at most MAX_DELAY_SECONDS; 0 if it did not ask."""
    return min(error.retry_after or 0.0, MAX_DELAY_SECONDS) if isinstance(error, StoreError) else 0.0


def describe_wait(error: LitelogError, seconds: float) -> str:
    """Say, for a log line, that the request is repeated in ``seconds``, and how long the store asked to wait."""
    asked = error.retry_after if isinstance(error, StoreError) else None
    return f"trying again in {seconds:.1f} s" + (f" (the store asked for {asked:g} s)" if asked else "")


def next_delay(delay: float, random: Random) -> float:
    """Decorrelated jitter: between the first delay and three times the last one, capped. Seconds."""
    return min(MAX_DELAY_SECONDS, random.uniform(FIRST_DELAY_SECONDS, 3 * delay))
