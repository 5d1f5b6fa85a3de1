"""What a wait for durability came to."""

from __future__ import annotations

from dataclasses import dataclass

OPENING = "opening"
"""In the place of a phase: logs were still being opened, or opened again, when the time was over."""

NOT_REPLICATED = "not replicated"
"""In the place of a phase: it cannot be opened."""


@dataclass(frozen=True, slots=True)
class Unreached:
    """A replica that did not have, in time, what its log held when the wait began."""

    log: str
    """Its folder; empty where all are meant."""
    replica: str
    """Its URL; empty where all of the log's are meant."""
    phase: str
    error: str | None
    """Why its last sync failed, if it did; why it is not open."""


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
