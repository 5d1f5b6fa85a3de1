"""The configuration's shape: every key, its type, its default and its limits."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from litelog.config.archiving import SnapshotInterval, SnapshotMode, SnapshotSegments, WalRetention  # noqa: TC001
from litelog.config.document import Expanded
from litelog.config.fields import FROM_DOCUMENT, MODEL, kebab, read_bytes, read_seconds
from litelog.config.limits import RetentionConfig, TruncateConfig
from litelog.config.serving import MAX_LAG, Addr, HeartbeatInterval, HeartbeatUrl, MaxLag, TokenFile
from litelog.layout import Fencing
from litelog.shipping.settings import Settings
from litelog.wal_segment import MAX_LENGTH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

MIN_INTERVAL = 0.001
"""Seconds. Below a millisecond an interval is a busy loop."""

MAX_INTERVAL = 86400.0
"""Seconds. A replica that is synced less than once a day is a mistake in the unit."""

MAX_SHUTDOWN_TIMEOUT = 3600.0
"""Seconds. Whoever stops the daemon has killed it long before."""

MAX_SCRUB_INTERVAL = 366 * 86400.0
"""Seconds."""

SCRUB_RATE = 8 << 20
"""Bytes a second: a hundred GiB in four hours, a small part of what a disk or a network gives."""

MIN_SEGMENT_BYTES = 4 << 10
"""Smaller WAL segments are mostly headers."""

PATTERN_FORMATS = ("lines", "raw")
"""The formats that have no names of their own, so that a pattern says which files are log segments."""

REPLICA_DEFAULTS = (
    "sync_interval",
    "max_segment_bytes",
    "snapshot_interval",
    "snapshot_segments",
    "snapshot_policy",
    "wal_retention",
    "scrub_interval",
    "scrub_rate",
)
"""What the configuration may say once for all replicas."""

DEFAULTS = Settings()

Location = tuple[str | int, ...]


def _switch(value: Any) -> Any:
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, Expanded) and value.lower() in words:
        return words[value.lower()]
    raise ValueError("must be true or false")


def _interval(seconds: float) -> float:
    if not MIN_INTERVAL <= seconds <= MAX_INTERVAL:
        raise ValueError("must be from 1ms to 1d")
    return seconds


def _scrub_interval(seconds: float) -> float:
    if seconds and not 1 <= seconds <= MAX_SCRUB_INTERVAL:
        raise ValueError("must be 0s (off), or from 1s to 366d")
    return seconds


def _rate(size: int) -> int:
    if size < MIN_SEGMENT_BYTES:
        raise ValueError(f"must be at least {MIN_SEGMENT_BYTES >> 10}KiB (a second)")
    return size


def _timeout(seconds: float) -> float:
    if not 0 <= seconds <= MAX_SHUTDOWN_TIMEOUT:
        raise ValueError("must be from 0s to 1h")
    return seconds


def _fencing(value: Any) -> Any:
    if value in tuple(Fencing):
        return Fencing(value)
    raise ValueError(f"must be {' or '.join(Fencing)}")


def _segment_bytes(size: int) -> int:
    if not MIN_SEGMENT_BYTES <= size <= MAX_LENGTH_BYTES:
        raise ValueError(f"must be from {MIN_SEGMENT_BYTES >> 10}KiB to {MAX_LENGTH_BYTES >> 20}MiB")
    return size


def _no_zero_byte(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a zero byte")
    return text


def _at_least_one(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    if not entries:
        raise ValueError("must have at least one entry")
    return entries


Text = Annotated[str, StringConstraints(strict=True, min_length=1), AfterValidator(_no_zero_byte)]
Interval = Annotated[float, BeforeValidator(read_seconds), AfterValidator(_interval)]
Timeout = Annotated[float, BeforeValidator(read_seconds), AfterValidator(_timeout)]
ScrubInterval = Annotated[float, BeforeValidator(read_seconds), AfterValidator(_scrub_interval)]
ScrubRate = Annotated[int, BeforeValidator(read_bytes), AfterValidator(_rate)]
SegmentBytes = Annotated[int, BeforeValidator(read_bytes), AfterValidator(_segment_bytes)]
OptionValue = str | int | float | bool | dict[str, str]
FencingMode = Annotated[Fencing, BeforeValidator(_fencing)]
Switch = Annotated[bool, BeforeValidator(_switch)]


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
    snapshot_segments: SnapshotSegments = DEFAULTS.snapshot_segments
    """How many sealed segments make a snapshot due earlier."""
    snapshot_policy: SnapshotMode = DEFAULTS.snapshot_policy
    """What becomes of log segments that the source has dropped: ``keep`` them, or ``mirror`` that."""
    wal_retention: WalRetention = DEFAULTS.wal_retention
    """Seconds that WAL segments stay from when a snapshot covers them."""
    fencing: FencingMode = Fencing.REQUIRED
    """How two daemons are kept apart; ``isolated`` takes a store that cannot."""
    retention: RetentionConfig = RetentionConfig()
    """How much of its past it keeps."""
    scrub_interval: ScrubInterval = 0.0
    """Seconds between two verifications of the whole replica in the background; 0: none, and no request for it."""
    scrub_rate: ScrubRate = SCRUB_RATE
    """Bytes of objects that a verification reads a second."""
    options: dict[str, OptionValue] = Field(default_factory=dict, repr=False)
    """The replica client's own settings (region, endpoint, credentials, ...): checked by it when it is opened."""


class LogConfig(BaseModel):
    """One log and its replicas."""

    model_config = MODEL

    path: Text
    """The folder of log segments."""
    format: Text = "litelog"
    """The log format's name."""
    pattern: Text | None = None
    """Which file names are log segments, as a shell pattern; for the formats ``lines`` and ``raw``."""
    takeover: Switch = False
    """Whether to take over a replica whose newest claim is another owner's."""
    poll_interval: Interval = 1.0
    """Seconds between two looks at the folder; twice that where file-system events wake the daemon."""
    truncate: TruncateConfig | None = None
    """What the log itself may lose once every replica has it; None: nothing, and nothing is ever written there."""
    replicas: Annotated[tuple[ReplicaConfig, ...], AfterValidator(_at_least_one)]

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        chosen = info.data.get("format")
        if pattern is not None and chosen is not None and chosen not in PATTERN_FORMATS:
            raise ValueError("only the formats lines and raw have a pattern; others know their names")
        return pattern


class Config(BaseModel):
    """All that one daemon does. ``poll_interval`` and what is in REPLICA_DEFAULTS are the defaults of the logs and
    replicas that do not say their own."""

    model_config = MODEL

    state_dir: Text | None = None
    """Where the daemon keeps its identity and positions; None leaves it to the command."""
    shutdown_timeout: Timeout = 10.0
    """Seconds that the final sync may take."""
    sync_interval: Interval = 1.0
    max_segment_bytes: SegmentBytes = MAX_LENGTH_BYTES
    poll_interval: Interval = 1.0
    snapshot_interval: SnapshotInterval = DEFAULTS.snapshot_interval
    snapshot_segments: SnapshotSegments = DEFAULTS.snapshot_segments
    snapshot_policy: SnapshotMode = DEFAULTS.snapshot_policy
    wal_retention: WalRetention = DEFAULTS.wal_retention
    scrub_interval: ScrubInterval = 0.0
    scrub_rate: ScrubRate = SCRUB_RATE
    addr: Addr | None = None
    """Where the daemon listens: ``HOST:PORT``, ``unix:/path`` or ``off``; None: DEFAULT_ADDR, if it can listen."""
    token_file: TokenFile | None = None
    """The file whose first line whoever asks from elsewhere must bring."""
    heartbeat_url: HeartbeatUrl | None = Field(default=None, repr=False)
    """What is asked for as long as no replica lags more than ``max_lag``. May be secret."""
    heartbeat_interval: HeartbeatInterval = 60.0
    """Seconds between two heartbeats."""
    logs: Annotated[tuple[LogConfig, ...], AfterValidator(_at_least_one)]
    max_lag: MaxLag = Field(default=None, validate_default=True)
    """Seconds that a replica may lag before the daemon is not healthy; unsaid, a minute, or twice the longest
    ``sync_interval`` if that is longer."""

    @field_validator("max_lag", mode="wrap")
    @classmethod
    def _fill_max_lag(cls, value: Any, read: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        if value is not None:
            return read(value)
        intervals = [replica.sync_interval for log in info.data.get("logs", ()) for replica in log.replicas]
        return max(MAX_LAG, 2 * max(intervals, default=0.0))

    @field_validator("logs")
    @classmethod
    def _fill_defaults(cls, logs: tuple[LogConfig, ...], info: ValidationInfo) -> tuple[LogConfig, ...]:
        return tuple(_with_defaults(log, info.data) for log in logs)

    @model_validator(mode="after")
    def _check_places(self, info: ValidationInfo) -> Config:
        if info.context and info.context.get(FROM_DOCUMENT):
            return self  # the loader has looked, and knows the lines
        paths = [(("logs", n, "path"), log.path) for n, log in enumerate(self.logs)]
        urls = [
            (("logs", n, "replicas", m, "url"), replica.url)
            for n, log in enumerate(self.logs)
            for m, replica in enumerate(log.replicas)
        ]
        for location, first in [*same_places(paths), *same_places(urls)]:
            raise ValueError(f"{spell(location)} is the same as {spell(first)}; every log and replica stands once")
        return self


MODELS: dict[tuple[str, ...], type[BaseModel]] = {
    (): Config,
    ("logs",): LogConfig,
    ("logs", "truncate"): TruncateConfig,
    ("logs", "replicas"): ReplicaConfig,
    ("logs", "replicas", "retention"): RetentionConfig,
}
"""The model of the mapping at a location, numbers left out."""


def known_keys(location: Location) -> list[str]:
    """The keys that a mapping at ``location`` may have, as they are written in YAML."""
    model = MODELS.get(tuple(part for part in location if isinstance(part, str)))
    return [kebab(name) for name in model.model_fields] if model else []


def spell(location: Location) -> str:
    """A key's path as people write it: ``logs[0].replicas[1].url``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def same_places(places: Iterable[tuple[Location, str]]) -> list[tuple[Location, Location]]:
    """The locations whose path or URL names a place that an earlier one names, each with that one."""
    seen: dict[str, Location] = {}
    again = []
    for location, text in places:
        first = seen.setdefault(_place(text), location)
        if first != location:
            again.append((location, first))
    return again


def _place(text: str) -> str:
    """One spelling of a path or URL: ``file:///a``, ``/a`` and ``/a/`` are one place."""
    text = text.removeprefix("file://")
    if "://" in text:
        return text.rstrip("/")
    path = posixpath.normpath(text)
    return "/" + path.lstrip("/") if path.startswith("/") else path


def _with_defaults(log: LogConfig, defaults: dict[str, Any]) -> LogConfig:
    replicas = tuple(
        replica.model_copy(update=_unsaid(replica, defaults, REPLICA_DEFAULTS)) for replica in log.replicas
    )
    return log.model_copy(update={**_unsaid(log, defaults, ("poll_interval",)), "replicas": replicas})


def _unsaid(model: BaseModel, defaults: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: defaults[name] for name in names if name in defaults and name not in model.model_fields_set}
