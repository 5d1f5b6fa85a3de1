"""The status of replicas, for people and programs."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import SourceMissingError
from litelog.replicator.task import Phase

MOST_BYTES_COUNTED = 64 << 20
"""How many bytes of all logs are read at most in a second to count the records that replicas lack."""

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.position import Position
    from litelog.replicator.task import ReplicaTask
    from litelog.shipping.counters import ReplicaCounters
    from litelog.shipping.divergence import Divergence
    from litelog.shipping.lag import LagMeter
    from litelog.system.clock import Clock


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """The status of one replica of one log."""

    log: str
    replica: str
    fencing: str
    """How its owners are kept apart. With ``isolated``, readers may get another owner's data instead of this one's."""
    phase: str
    position: Position | None
    """Every byte before it is in the replica."""
    sequence: int | None
    """The sequence after the last record there."""
    error: str | None
    failures: int
    sealed: int = 0
    """How many sealed segments this run wrote."""
    unsealed: int = 0
    """How many log segments are finished but not sealed."""
    snapshot: str | None = None
    """The newest snapshot's key, if it is known."""
    archive_error: str | None = None
    """Why the last attempt to seal, to write a snapshot or to delete covered objects failed. Shipping continues."""
    archive_failures: int = 0
    checkpoint: int | None = None
    """The number of the newest signed checkpoint; None if there is none, or none are written."""
    checkpoint_time: int | None = None
    """When it was made, in microseconds since 1970."""
    checkpoint_error: str | None = None
    """Why the last attempt to write a checkpoint failed. Shipping continues."""
    checkpoint_failures: int = 0
    last_verified: int | None = None
    """When all of it was last verified, in microseconds since 1970; None if it never was."""
    anomalies: int = 0
    """How many anomalies that verification found."""
    lost: str | None = None
    """A description of what the replica lost for good: the log no longer holds it, and a default restore begins
    after it. It stays until the replica is forgotten."""
    verify_error: str | None = None
    """Why the last verification failed."""
    lag_bytes: int = 0
    """Bytes of the log, in whole commits or not, that its folder held when last examined, but not the replica."""
    lag_records: int | None = 0
    """How many sequences of whole commits lie in these bytes; None if that is not known."""
    lag_seconds: float = 0.0
    """How long ago the oldest of these bytes was first seen; 0 if there are none (``shipping.lag``)."""
    synced: bool = False
    """Whether it held, at some time since the daemon started, all that the log held then."""
    queued: int = 0
    """How many WAL segments are encoded but not acknowledged."""
    failing_seconds: float = 0.0
    """How long every sync has failed, in seconds; 0 if the last one did not."""
    source_error: str | None = None
    """Why the lag could not be measured: the error of the log's folder."""
    opened_seconds: float = 0.0
    """How long ago the daemon opened it, in seconds."""
    source_missing: bool = False
    """Whether the last sync failed because the log's folder is missing, or holds no log segment."""
    damaged: tuple[str, ...] = ()
    """The keys of objects that the last verification found lost or damaged."""
    damaged_since: int | None = None
    """When a verification first found damage that is still there, in microseconds since 1970."""
    stored_bytes: int | None = None
    """Bytes of all objects in the replica, when they were last counted."""
    diverged: Divergence | None = None
    """The newest divergence, which shows that the log was rewound or rewritten, unless a person dismissed it."""
    lock_error: str | None = None
    """Why locks of objects could not be extended at the last try."""
    locks_extended: int | None = None
    """When all locks that were due were last extended, in microseconds since 1970."""
    no_delete: bool = False
    """Whether the daemon leaves every deletion to a pruner."""
    withheld_by: str | None = None
    """The file that states the log's watermark, if records after it are not shipped."""
    counters: ReplicaCounters | None = field(default=None, repr=False, compare=False)
    meter: LagMeter | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class NotReplicated:
    """A log, or a folder of logs, that the configuration names but that is not replicated."""

    log: str
    """Its folder."""
    reason: str
    since: float
    """Monotonic seconds of the daemon's clock."""
    replica: str | None = None
    """The replica's URL without credentials, if only that one cannot be opened."""


def status_of(task: ReplicaTask, now: float) -> ReplicaStatus:
    """Return the status of a task that no thread starts to use meanwhile. ``now``: monotonic seconds. Reads no disk."""
    replica = task.replica
    archive = replica.archive.status if replica is not None and replica.archive is not None else None
    checkpointer = replica.archive.checkpointer if replica is not None and replica.archive is not None else None
    checkpoint = checkpointer.status if checkpointer is not None else None
    verified = task.scrub.last if task.scrub is not None else None
    locks = task.lock_extension.last if task.lock_extension is not None else None
    lag = task.lag.read(now, task.caught_up_at) if task.lag is not None else None
    return ReplicaStatus(
        log=task.log,
        replica=task.url,
        fencing=task.fencing,
        phase=task.phase.value,
        position=replica.position if replica is not None else None,
        sequence=replica.sequence if replica is not None else None,
        error=str(task.error) if task.error is not None else None,
        failures=task.failures,
        sealed=archive.sealed if archive is not None else 0,
        unsealed=archive.unsealed if archive is not None else 0,
        snapshot=archive.snapshot if archive is not None else None,
        archive_error=archive.error if archive is not None else None,
        archive_failures=archive.failures if archive is not None else 0,
        checkpoint=checkpoint.number if checkpoint is not None else None,
        checkpoint_time=checkpoint.time if checkpoint is not None else None,
        checkpoint_error=checkpoint.error if checkpoint is not None else None,
        checkpoint_failures=checkpoint.failures if checkpoint is not None else 0,
        last_verified=(verified.time or None) if verified is not None else None,
        anomalies=verified.anomalies if verified is not None else 0,
        lost=(replica.lost or None) if replica is not None else None,
        verify_error=verified.error if verified is not None else None,
        lag_bytes=lag.bytes if lag is not None else 0,
        lag_records=task.lag.records if task.lag is not None and lag is not None and lag.bytes else 0,
        lag_seconds=lag.seconds if lag is not None else 0.0,
        synced=task.is_synced,
        queued=replica.queued if replica is not None else 0,
        failing_seconds=0.0 if task.failing_since is None else max(0.0, now - task.failing_since),
        source_error=task.lag.source.error if task.lag is not None else None,
        opened_seconds=max(0.0, now - task.opened_at),
        source_missing=isinstance(task.error, SourceMissingError),
        damaged=verified.damaged if verified is not None else (),
        damaged_since=(verified.damaged_since or None) if verified is not None else None,
        stored_bytes=verified.bytes or None if verified is not None else None,
        diverged=replica.divergence.open if replica is not None else None,
        lock_error=locks.error if locks is not None else None,
        locks_extended=(locks.time or None) if locks is not None else None,
        no_delete=task.no_delete,
        withheld_by=replica.withheld_by if replica is not None else None,
        counters=task.counters,
        meter=task.lag,
    )


def measure(tasks: Sequence[ReplicaTask], clock: Clock) -> None:
    """Examine the folders of the tasks' logs, take samples of their lag, and read which warnings were dismissed. Call
    it about once a second. It hangs if a file system hangs, so it needs a separate thread."""
    now, left = clock.monotonic(), MOST_BYTES_COUNTED
    for task in tasks:
        meter, busy = task.lag, task.phase is not Phase.IDLE
        if meter is not None and (busy or now >= meter.due):
            left -= meter.measure_if_due(now, task.caught_up_at, busy=busy, most_bytes=max(0, left))
        if task.replica is not None:
            task.replica.divergence.look()
