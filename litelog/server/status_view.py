"""The status of the daemon at one moment, and the thresholds by which it is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.replicator.status import NotReplicated, ReplicaStatus


@dataclass(frozen=True, slots=True)
class StatusView:
    """The status of the daemon at one moment. Times are monotonic seconds, except ``time``."""

    statuses: Sequence[ReplicaStatus]
    now: float
    """When it was requested."""
    time: int
    """When the daemon answered, in microseconds since 1970."""
    taken: float
    """When the daemon answered."""
    measured: float
    """When the logs' folders were last measured."""
    last_turn: float
    """When the main loop took its last turn."""
    opened: bool = True
    """Whether the daemon has tried to open everything that existed at its start."""
    not_replicated: Sequence[NotReplicated] = ()
    ready: bool = True
    """Whether the daemon has synced the logs that exist."""
    is_live: bool = True
    """False if no daemon was asked: the statuses are from its state folder, or from the replicas."""

    def time_of(self, age: float) -> int:
        """The time ``age`` seconds before ``now``, in microseconds since 1970."""
        return self.time + int((self.now - self.taken - age) * 1_000_000)


@dataclass(frozen=True, slots=True)
class HealthThresholds:
    """The limits within which the daemon is healthy."""

    max_lag: float
    """The largest lag of a replica, in seconds."""
    loop_seconds: float = 30.0
    """The largest age of the main loop's last turn, of the last measurement, and of the last status, in seconds."""
