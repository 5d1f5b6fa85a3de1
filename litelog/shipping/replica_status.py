"""Where a replica stands, as people and programs are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.shipping.replica_task import Phase

if TYPE_CHECKING:
    from litelog.shipping.replica_task import ReplicaTask


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """Where one replica of one log stands."""

    log: str
    replica: str
    fencing: str
    """How its owners are kept apart: with ``isolated``, what another owner writes may be read in this one's place."""
    phase: str
    position: str | None
    """Every byte before it is in the replica."""
    sequence: int | None
    """The sequence behind the last record there."""
    pending_bytes: int
    error: str | None
    failures: int
    sealed: int = 0
    """Sealed segments that were written in this run."""
    unsealed: int = 0
    """Log segments that are finished, and not sealed yet."""
    snapshot: str | None = None
    """The newest snapshot's key, if it is known."""
    archive_error: str | None = None
    """Why the last attempt to seal, to write a snapshot or to delete what it covers failed: shipping goes on."""
    archive_failures: int = 0
    last_verified: int | None = None
    """When all of it was verified last, microseconds since 1970; None where it never was."""
    anomalies: int = 0
    """What was found then."""
    verify_error: str | None = None
    """Why the last attempt to verify it failed."""


def status_of(task: ReplicaTask) -> ReplicaStatus:
    """The status of a task that no thread begins to use meanwhile."""
    replica = task.replica
    position = replica.position if replica is not None else None
    archive = replica.archive.status if replica is not None and replica.archive is not None else None
    verified = task.scrub.last if task.scrub is not None else None
    return ReplicaStatus(
        log=task.log,
        replica=task.url,
        fencing=task.fencing,
        phase=task.phase.value,
        position=str(position) if position is not None else None,
        sequence=replica.sequence if replica is not None else None,
        pending_bytes=replica.pending_bytes() if replica is not None and task.phase is not Phase.SYNCING else 0,
        error=str(task.error) if task.error is not None else None,
        failures=task.failures,
        sealed=archive.sealed if archive is not None else 0,
        unsealed=archive.unsealed if archive is not None else 0,
        snapshot=archive.snapshot if archive is not None else None,
        archive_error=archive.error if archive is not None else None,
        archive_failures=archive.failures if archive is not None else 0,
        last_verified=(verified.time or None) if verified is not None else None,
        anomalies=verified.anomalies if verified is not None else 0,
        verify_error=verified.error if verified is not None else None,
    )
