"""What the server asks of the daemon that it tells of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from litelog.replicator.barrier import Barrier
    from litelog.replicator.status import NotReplicated, ReplicaStatus


class Daemon(Protocol):
    """A replicator, as far as others need it. From any thread."""

    @property
    def last_turn(self) -> float:
        """When its main loop took its last turn, in the clock's monotonic seconds: one a second at least."""

    @property
    def opened(self) -> bool:
        """Whether all that was there when it began has been opened, as far as it could be."""

    def status(self) -> list[ReplicaStatus]:
        """Where every replica stands."""

    def not_replicated(self) -> tuple[NotReplicated, ...]:
        """What the configuration means and ``status`` does not tell of, as it cannot be opened."""

    def measure(self) -> None:
        """Look at the logs' folders for the lag that ``status`` tells. It may hang as file systems do."""

    def barrier(self, log: str | None, replica: str | None, timeout: float) -> Barrier:
        """Wait until what the logs hold now is durable. ConfigError where ``log`` and ``replica`` name none."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When a daemon is to be believed."""

    max_lag: float
    """Seconds."""
    loop_seconds: float = 30.0
    """How old its main loop's last turn may be, and so the last look at the logs, and the last status."""
