"""The configuration of logs and their replicas."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo, field_validator

from litelog.config.archiving import SnapshotInterval, SnapshotMode, WalRetention  # noqa: TC001
from litelog.config.fields import MODEL
from litelog.config.limits import RetentionConfig, TruncateConfig
from litelog.config.values import (
    SCRUB_RATE,
    Count,
    FencingMode,
    Interval,
    OptionValue,
    ScrubInterval,
    ScrubRate,
    SegmentBytes,
    Switch,
    Text,
    at_least_one,
)
from litelog.objects.layout import Fencing
from litelog.objects.wal_segment import MAX_LENGTH_BYTES
from litelog.shipping.settings import Settings

PATTERN_FORMATS = ("lines", "raw")
"""The formats that have no names of their own, so that a pattern says which files are log segments."""

DEFAULTS = Settings()


class ReplicaConfig(BaseModel):
    """One replica of a log."""

    model_config = MODEL

    url: Text = Field(repr=False)
    """Where to: ``file:///path``, a plain path, or another scheme that a replica client is installed for."""
    sync_interval: Interval = 1.0
    """Seconds between two PUTs under load."""
    max_segment_bytes: SegmentBytes = MAX_LENGTH_BYTES
    """How many bytes of the log, uncompressed, one WAL segment carries at most."""
    snapshot_interval: SnapshotInterval = DEFAULTS.snapshot_interval
    """Seconds from one snapshot to the next one, if anything was sealed."""
    snapshot_segments: Count = DEFAULTS.snapshot_segments
    """How many sealed segments make a snapshot due earlier."""
    snapshot_policy: SnapshotMode = DEFAULTS.snapshot_policy
    """What becomes of log segments that the source has dropped: ``keep`` them, or ``mirror`` that."""
    wal_retention: WalRetention = DEFAULTS.wal_retention
    """Seconds that WAL segments stay from when a snapshot covers them."""
    fencing: FencingMode = Fencing.REQUIRED
    """How two daemons are kept apart; ``isolated`` takes a store that cannot."""
    retention: RetentionConfig = RetentionConfig()
    """How much of its past it keeps."""
    scrub_interval: ScrubInterval | None = None
    """Seconds between two verifications of the whole replica in the background; 0: none, and no request for it. None:
    once a day names and sizes are compared, and a thirtieth of the objects is read, other ones each day."""
    scrub_rate: ScrubRate = SCRUB_RATE
    """Bytes of objects that a verification reads a second."""
    options: dict[str, OptionValue] = Field(default_factory=dict, repr=False)
    """The replica client's own settings (region, endpoint, credentials, ...): checked by it when it is opened."""


class EntryConfig(BaseModel):
    """What all entries of ``logs`` have in common."""

    model_config = MODEL

    format: Text = "litelog"
    """The log format's name."""
    takeover: Switch = False
    """Whether to take over a replica whose newest claim is another owner's."""
    poll_interval: Interval = 1.0
    """Seconds between two looks at the folder; WATCHED_INTERVALS times that where events wake the daemon."""
    truncate: TruncateConfig | None = None
    """What the log itself may lose once every replica has it; None: nothing, and nothing is ever written there."""


class LogConfig(EntryConfig):
    """One log and its replicas."""

    path: Text
    """The folder of log segments."""
    pattern: Text | None = None
    """Which file names are log segments, as a shell pattern; for the formats ``lines`` and ``raw``."""
    replicas: Annotated[tuple[ReplicaConfig, ...], AfterValidator(at_least_one)]

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        return check_segment_pattern(pattern, info)


def check_segment_pattern(pattern: str | None, info: ValidationInfo) -> str | None:
    """``pattern``, unless the entry's format takes none."""
    chosen = info.data.get("format")
    if pattern is not None and chosen is not None and chosen not in PATTERN_FORMATS:
        raise ValueError("only the formats lines and raw have a pattern; others know their names")
    return pattern
