"""One log, one replica of it, and the settings and threads that ship the log to the replica."""

from __future__ import annotations

import os
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from litelog.codec.frame_codecs import Compression
from litelog.dataclass import dataclass
from litelog.errors import SourceMissingError
from litelog.log.failed_syncs import FailedSyncs
from litelog.retention.policy import GRACE_SECONDS, RetentionPolicy
from litelog.shipping.events import IgnoredEvents

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from litelog.formats import LogFormat
    from litelog.log.watermark import Watermark
    from litelog.shipping.events import ReplicaEvents, ReplicaListener
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock


CHECKPOINT_SECONDS = 3600.0


class SnapshotPolicy(StrEnum):
    """How a snapshot treats log segments that the source has dropped."""

    KEEP = "keep"
    """The snapshot still names them, until retention drops them."""
    MIRROR = "mirror"
    """The snapshot drops them, too."""


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """How the owner of a replica writes signed checkpoints there."""

    sign_key: str
    """A PEM file with a private Ed25519 key, which is read for each checkpoint."""
    interval: float = CHECKPOINT_SECONDS
    """Seconds from one checkpoint to the next one, if anything was shipped. Each snapshot causes one as well."""
    next_key: str | None = None
    """A PEM file with the public key that will sign later checkpoints; None: no other key."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits, and times in seconds."""

    max_segment_bytes: int = 8 << 20
    """Bytes of the log in one WAL segment, unless a single commit is larger."""
    compression: Compression = Compression.LZ4
    """How sealed segments are compressed."""
    snapshot_interval: float = 3600.0
    """Seconds from one snapshot to the next one, if anything was sealed."""
    snapshot_segments: int = 100
    """How many sealed segments make a snapshot due earlier."""
    snapshot_policy: SnapshotPolicy = SnapshotPolicy.KEEP
    wal_retention: float = GRACE_SECONDS
    """Seconds that WAL segments are kept after a snapshot covers them."""
    retention: RetentionPolicy = RetentionPolicy()
    """How much of its past the replica keeps."""
    no_delete: bool = False
    """Whether another process deletes what the replica no longer needs, and this one nothing."""
    checkpoints: CheckpointPolicy | None = None
    """How checkpoints are written; None: none are."""


def keep_log_id(log_id: str) -> str:
    """The id of a log that has one replica: the proposed one."""
    return log_id


def unknown_first_sequence() -> int | None:
    """The first sequence of a log that carries its sequences, or that begins with its first record."""
    return None


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log to replicate, and how to read it."""

    folder: str
    format: LogFormat
    agree_on_id: Callable[[str], str] = keep_log_id
    """Takes a proposed log id. Returns the log's id in all its replicas: this one, or an id that was proposed
    earlier."""
    first_sequence: Callable[[], int | None] = unknown_first_sequence
    """Returns the log's first sequence, if its records carry no numbers and older ones were truncated."""
    watermark: Watermark | None = None
    """The log's watermark: commits after it are not shipped. None: all commits are."""
    failed_syncs: FailedSyncs = field(default_factory=FailedSyncs)
    """The failed syncs after which nothing of the log is read any more."""

    def folder_inode(self) -> int:
        """Return the inode of the log's folder. Raises SourceMissingError."""
        try:
            return os.stat(self.folder).st_ino
        except OSError as error:
            raise SourceMissingError(self.folder, f"cannot be opened: {error.strerror}") from error


def run_inline(work: Callable[[], None]) -> None:
    """Do background work at once, in the calling thread."""
    work()


@dataclass(frozen=True, slots=True)
class Executors:
    """Threads that all replicas share: for compression, for puts next to it, and for background work."""

    compressing: Executor
    putting: Executor
    background: Callable[[Callable[[], None]], Any] = run_inline
    """Runs work in a thread that no WAL segment waits for."""


@dataclass(frozen=True, slots=True)
class ReplicaContext:
    """A log, a replica of it, and what is needed to ship the one to the other. Objects that work for one generation
    take it together with that generation's claim."""

    source: LogSource
    client: ReplicaClient
    workers: Executors
    clock: Clock
    listener: ReplicaListener
    settings: Settings = Settings()
    events: ReplicaEvents = IgnoredEvents()
