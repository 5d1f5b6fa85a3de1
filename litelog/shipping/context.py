"""One log, one replica of it, and the settings and tools to ship the one to the other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from litelog.objects.wal_segment import MAX_LENGTH_BYTES
from litelog.retention.policy import RetentionPolicy
from litelog.shipping.claiming import GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from litelog.formats import LogFormat
    from litelog.shipping.events import Listener
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock


class SnapshotPolicy(StrEnum):
    """What a snapshot does with log segments that the source has dropped."""

    KEEP = "keep"
    """It goes on naming them, until retention drops them."""
    MIRROR = "mirror"
    """It drops them, too."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and times; seconds are floats."""

    max_segment_bytes: int = MAX_LENGTH_BYTES
    """Bytes of the log in one WAL segment, but for a single commit that is larger."""
    snapshot_interval: float = 3600.0
    """Seconds from one snapshot to the next one, if anything was sealed."""
    snapshot_segments: int = 100
    """How many sealed segments make a snapshot due earlier."""
    snapshot_policy: SnapshotPolicy = SnapshotPolicy.KEEP
    wal_retention: float = GRACE_SECONDS
    """Seconds that WAL segments are kept from when a snapshot covers them."""
    retention: RetentionPolicy = RetentionPolicy()  # noqa: RUF009 - frozen
    """How much of its past the replica keeps."""


def as_proposed(log_id: str) -> str:
    """The id of a log that has one replica."""
    return log_id


def as_it_says() -> int | None:
    """The first sequence of a log that tells it, or that begins with its first record."""
    return None


@dataclass(frozen=True, slots=True)
class Source:
    """A log to replicate, and how to read it."""

    folder: str
    format: LogFormat
    agree_on_id: Callable[[str], str] = as_proposed
    """The log's id in all of its replicas, where its files hold none: the one that is proposed, or an earlier one."""
    first_sequence: Callable[[], int | None] = as_it_says
    """The log's first sequence, where its records do not carry theirs, and what came before was truncated."""


def do_at_once(work: Callable[[], None]) -> None:
    """Do background work in the thread that asks for it."""
    work()


@dataclass(frozen=True, slots=True)
class Workers:
    """Threads that all replicas share: for compression, for puts beside it, and for what need not be done at once."""

    compressing: Executor
    putting: Executor
    background: Callable[[Callable[[], None]], Any] = do_at_once
    """Has work done, in a thread that no WAL segment waits for."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A log, a replica of it, and the tools to ship with."""

    source: Source
    client: ReplicaClient
    workers: Workers
    clock: Clock
    listener: Listener
    settings: Settings
