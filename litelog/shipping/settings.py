"""How one log is shipped to one replica: what the configuration says of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from litelog.objects.wal_segment import MAX_LENGTH_BYTES
from litelog.retention.policy import RetentionPolicy
from litelog.shipping.claiming import GRACE_SECONDS


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
