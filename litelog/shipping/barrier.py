"""What a wait for durability came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unreached:
    """A replica that did not have, in time, what its log held when the wait began."""

    log: str
    replica: str
    phase: str
    error: str | None
    """Why its last sync failed, if it did."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Which replicas were waited for, and which of them were not reached in time."""

    replicas: int
    """How many were waited for."""
    unreached: tuple[Unreached, ...]

    @property
    def reached(self) -> bool:
        """Whether all that the logs held at the call is durable in all of the replicas."""
        return not self.unreached
