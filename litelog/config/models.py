"""The shape of the configuration: every key, with its type, default and limits."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from litelog.config.entries import DEFAULTS, FolderConfig, LogConfig, ReplicaConfig
from litelog.config.limits import RetentionConfig, TruncateConfig
from litelog.config.serving import MAX_LAG, Addr, HeartbeatInterval, HeartbeatUrl, HostName, MaxLag, TokenFile
from litelog.config.values import (
    FROM_DOCUMENT,
    MODEL,
    SCRUB_RATE,
    Count,
    Interval,
    ScrubInterval,
    ScrubRate,
    SegmentBytes,
    SnapshotInterval,
    SnapshotMode,
    Text,
    Timeout,
    WalRetention,
    at_least_one,
    kebab,
)
from litelog.objects.wal_segment import MAX_LENGTH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

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
"""The keys that the configuration may set once for all replicas."""

Location = tuple[str | int, ...]


_LOG, _FOLDER = "<log>", "<folder>"


def _kind_of(entry: Any) -> str:
    is_folder = "dir" in entry if isinstance(entry, dict) else isinstance(entry, FolderConfig)
    return _FOLDER if is_folder else _LOG


Entry = Annotated[
    Annotated[LogConfig, Tag(_LOG)] | Annotated[FolderConfig, Tag(_FOLDER)],
    Discriminator(_kind_of),
]


class Config(BaseModel):
    """Everything that one daemon does.

    ``poll_interval`` and the keys in REPLICA_DEFAULTS are defaults for logs and replicas that do not set them.
    """

    model_config = MODEL

    state_dir: Text | None = None
    """Where the daemon keeps its identity and positions; None: the command decides."""
    shutdown_timeout: Timeout = 10.0
    """Seconds that stopping, including the final sync, may take if replicas do not answer."""
    sync_interval: Interval = 1.0
    max_segment_bytes: SegmentBytes = MAX_LENGTH_BYTES
    poll_interval: Interval = 1.0
    snapshot_interval: SnapshotInterval = DEFAULTS.snapshot_interval
    snapshot_segments: Count = DEFAULTS.snapshot_segments
    snapshot_policy: SnapshotMode = DEFAULTS.snapshot_policy
    wal_retention: WalRetention = DEFAULTS.wal_retention
    scrub_interval: ScrubInterval | None = None
    scrub_rate: ScrubRate = SCRUB_RATE
    addr: Addr | None = None
    """Address to listen on: ``HOST:PORT``, ``unix:/path`` or ``off``; None: DEFAULT_ADDR, if possible."""
    token_file: TokenFile | None = None
    """File whose first line is the token that clients on other machines need."""
    allowed_hosts: tuple[HostName, ...] = ()
    """Allowed names in a request's Host header, besides this machine's loopback ones: the names of a proxy in front of
    the daemon."""
    heartbeat_url: HeartbeatUrl | None = Field(default=None, repr=False)
    """URL that is called as long as no replica lags more than ``max_lag``. May be secret."""
    heartbeat_interval: HeartbeatInterval = 60.0
    """Seconds between two heartbeats."""
    logs: Annotated[tuple[Entry, ...], AfterValidator(at_least_one)]
    """Logs, and folders of logs."""
    max_lag: MaxLag = Field(default=None, validate_default=True)
    """Seconds that a replica may lag before the daemon is unhealthy. By default a minute, or twice the longest
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
    def _fill_defaults(cls, logs: tuple[Entry, ...], info: ValidationInfo) -> tuple[Entry, ...]:
        return tuple(_with_defaults(log, info.data) for log in logs)

    @model_validator(mode="after")
    def _check_places(self, info: ValidationInfo) -> Config:
        if info.context and info.context.get(FROM_DOCUMENT):
            return self  # the loader has checked this, and knows the lines
        paths = [(("logs", n, "path"), log.path) for n, log in enumerate(self.logs) if isinstance(log, LogConfig)]
        urls = [
            (("logs", n, "replicas", m, "url"), replica.url)
            for n, log in enumerate(self.logs)
            for m, replica in enumerate(log.replicas)
        ]
        for location, first in [*same_places(paths), *same_places(urls)]:
            raise ValueError(f"{spell(location)} is the same as {spell(first)}; every log and replica stands once")
        return self

    @property
    def own_logs(self) -> tuple[LogConfig, ...]:
        """The logs with their own entries."""
        return tuple(entry for entry in self.logs if isinstance(entry, LogConfig))

    @property
    def folders(self) -> tuple[FolderConfig, ...]:
        """The folders in which logs are found, in order. A log belongs to the first one that matches it."""
        return tuple(entry for entry in self.logs if isinstance(entry, FolderConfig))

    def find_log(self, path: str) -> LogConfig | None:
        """The log in the folder ``path``, which may not exist: from its own entry, or as it would be found."""
        path = os.path.abspath(path)
        own = (log for log in self.own_logs if os.path.abspath(log.path) == path)
        return next(own, None) or next(filter(None, (folder.log_at(path) for folder in self.folders)), None)

    def find_replica(self, url: str) -> ReplicaConfig | None:
        """The replica at ``url``, spelled as in its entry: of a log with its own entry, or of a found one."""
        own = (replica for log in self.own_logs for replica in log.replicas if replica.url == url)
        return next(own, None) or next(filter(None, (folder.replica_at(url) for folder in self.folders)), None)


MODELS: dict[tuple[str, ...], type[BaseModel]] = {
    (): Config,
    **{
        (*entry, *below): part
        for entry, model in ((("logs", _LOG), LogConfig), (("logs", _FOLDER), FolderConfig))
        for below, part in (
            ((), model),
            (("truncate",), TruncateConfig),
            (("replicas",), ReplicaConfig),
            (("replicas", "retention"), RetentionConfig),
        )
    },
}
"""The model of the mapping at a location, without list positions."""


def known_keys(location: Location) -> list[str]:
    """The keys that a mapping at ``location`` may have, as YAML spells them."""
    model = MODELS.get(tuple(part for part in location if isinstance(part, str)))
    return [kebab(name) for name in model.model_fields] if model else []


def written(location: Location) -> Location:
    """Convert a validation error's location to one in the document."""
    return tuple(part for part in location if part not in (_LOG, _FOLDER))


def spell(location: Location) -> str:
    """A key's path in the form that people write: ``logs[0].replicas[1].url``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in written(location))
    return text.removeprefix(".")


def same_places(places: Iterable[tuple[Location, str]]) -> list[tuple[Location, Location]]:
    """The locations whose path or URL names the same place as an earlier one, each with that earlier one."""
    seen: dict[str, Location] = {}
    again = []
    for location, text in places:
        first = seen.setdefault(place_of(text), location)
        if first != location:
            again.append((location, first))
    return again


def place_of(text: str) -> str:
    """One spelling of a path or URL: ``file:///a``, ``/a``, ``/a/`` and, from the root, ``a`` are the same place."""
    text = text.removeprefix("file://")
    if "://" in text:
        return text.rstrip("/")
    return "/" + os.path.abspath(text).lstrip("/")


def _with_defaults(log: Entry, defaults: dict[str, Any]) -> Entry:
    replicas = tuple(
        replica.model_copy(update=_unsaid(replica, defaults, REPLICA_DEFAULTS)) for replica in log.replicas
    )
    return log.model_copy(update={**_unsaid(log, defaults, ("poll_interval",)), "replicas": replicas})


def _unsaid(model: BaseModel, defaults: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: defaults[name] for name in names if name in defaults and name not in model.model_fields_set}
