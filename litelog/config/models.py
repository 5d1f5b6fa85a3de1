"""The whole configuration: logs and folders of logs, their defaults, the HTTP service and the limits of health."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from litelog.config.access import AbsolutePath, LogNames, TlsConfig, TokenConfig
from litelog.config.checked_model import COMPUTED, Model, kebab
from litelog.config.entries import (
    DEFAULTS,
    CheckpointsConfig,
    EncryptionConfig,
    FolderConfig,
    LogConfig,
    ReplicaConfig,
    RetentionConfig,
    TruncateConfig,
)
from litelog.config.field_types import (
    FILLED,
    HIDDEN,
    After,
    AfterOthers,
    Before,
    IfNone,
    Tagged,
)
from litelog.config.values import (
    SCRUB_RATE,
    BufferBytes,
    CompressionMode,
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
    read_seconds,
)
from litelog.system.buffers import DEFAULT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.config.field_types import Location, Source


DEFAULT_ADDR = "127.0.0.1:9977"
"""The address of the HTTP service, unless the configuration names another one."""

OFF = "off"
"""The address of a daemon that does not listen."""

MAX_LAG = 60.0
"""Seconds: the default of ``max_lag``."""

MAX_LAG_LIMIT = 366 * 86400.0
"""Seconds. A larger value is probably a mistake in the unit."""

_HOST_AND_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})")


def check_addr(text: str) -> str:
    """Return ``text`` if a daemon can listen there. Raises ValueError."""
    if text == OFF:
        return text
    if text.startswith("unix:"):
        if not os.path.isabs(text.removeprefix("unix:")):
            raise ValueError("write unix:/an/absolute/path: other commands look for the socket from other folders")
        return text
    match = _HOST_AND_PORT.fullmatch(text)
    if re.fullmatch(":[0-9]{1,5}", text):
        raise ValueError(f"names no host: write 127.0.0.1{text}, or 0.0.0.0{text} with a token-file for other machines")
    if match is None or int(match[3]) > 65535:
        raise ValueError("must be HOST:PORT, [IPV6]:PORT, unix:/path or off")
    if match[1]:
        ipaddress.IPv6Address(match[1])
    return text


def _off_word(value: Any) -> Any:
    """Convert the bool that YAML makes of ``off`` back to text."""
    return OFF if value is False else value


def _max_lag(seconds: float) -> float:
    if not 1 <= seconds <= MAX_LAG_LIMIT:
        raise ValueError("must be from 1s to 366d")
    return seconds


def _heartbeat_interval(seconds: float) -> float:
    if not 1 <= seconds <= 86400:
        raise ValueError("must be from 1s to 1d")
    return seconds


def _http_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise ValueError("must be a URL that starts with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or password, which are not sent; a path or a query may hold a secret")
    return text


def _host_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+", text):
        raise ValueError("must be a host's name or IP address, without a port")
    return text


_Filled = Annotated[str, FILLED]
Addr = Annotated[_Filled, Before(_off_word), After(check_addr)]
MaxLag = Annotated[float, Before(read_seconds), After(_max_lag)]
HeartbeatUrl = Annotated[_Filled, After(_http_url)]
HeartbeatInterval = Annotated[float, Before(read_seconds), After(_heartbeat_interval)]
HostName = Annotated[_Filled, After(_host_name)]


REPLICA_DEFAULTS = (
    "sync_interval",
    "max_segment_bytes",
    "compression",
    "snapshot_interval",
    "snapshot_segments",
    "snapshot_policy",
    "wal_retention",
    "scrub_interval",
    "scrub_rate",
)
"""The keys that the configuration may set once for all replicas."""

_LOG, _FOLDER = "<log>", "<folder>"


def _kind_of(entry: Any) -> str:
    is_folder = "dir" in entry if isinstance(entry, dict) else isinstance(entry, FolderConfig)
    return _FOLDER if is_folder else _LOG


Entry = Annotated[LogConfig | FolderConfig, Tagged(_kind_of, {_LOG: LogConfig, _FOLDER: FolderConfig})]


def _fill_defaults(logs: tuple[LogConfig | FolderConfig, ...], others: dict[str, Any]) -> tuple[Entry, ...]:
    return tuple(_with_defaults(log, others) for log in logs)


def _default_max_lag(others: dict[str, Any]) -> float:
    intervals = [replica.sync_interval for log in others.get("logs", ()) for replica in log.replicas]
    return max(MAX_LAG, 2 * max(intervals, default=0.0))


class Config(Model):
    """Everything that one daemon does.

    ``poll_interval`` and the keys in REPLICA_DEFAULTS are defaults for logs and replicas that do not set them.
    """

    state_dir: Text | None = None
    """Where the daemon keeps its state; None: the command decides."""
    buffer_memory: BufferBytes = DEFAULT_BYTES
    """Bytes of memory for the parts of uploads, and for what is read ahead of them."""
    shutdown_timeout: Timeout = 10.0
    """Seconds that the stop of the daemon, with its final sync, may take if replicas do not answer."""
    sync_interval: Interval = 1.0
    max_segment_bytes: SegmentBytes = DEFAULTS.max_segment_bytes
    poll_interval: Interval = 1.0
    compression: CompressionMode = DEFAULTS.compression
    snapshot_interval: SnapshotInterval = DEFAULTS.snapshot_interval
    snapshot_segments: Count = DEFAULTS.snapshot_segments
    snapshot_policy: SnapshotMode = DEFAULTS.snapshot_policy
    wal_retention: WalRetention = DEFAULTS.wal_retention
    scrub_interval: ScrubInterval | None = None
    scrub_rate: ScrubRate = SCRUB_RATE
    addr: Addr | None = None
    """Address to listen on: ``HOST:PORT``, ``unix:/path`` or ``off``; None: DEFAULT_ADDR, if possible."""
    token_file: AbsolutePath | None = None
    """File whose first line is the token that clients on other machines need. It permits everything."""
    tokens: tuple[TokenConfig, ...] = ()
    """Further tokens, which permit only some requests."""
    tls: TlsConfig | None = None
    """With it, the daemon speaks HTTPS instead of HTTP."""
    allowed_hosts: tuple[HostName, ...] = ()
    """Names that a request's Host header may have, besides the loopback names of this machine: those of a proxy in
    front of the daemon."""
    serve: LogNames = ()
    """The logs that other processes may read over HTTP: the names of logs, or ``all``."""
    max_readers: Count = 256
    """The most concurrent readers of these logs."""
    max_reader_rate: ScrubRate | None = None
    """The most bytes in a second that one reader gets, on average; None: no limit."""
    max_reader_bytes: ScrubRate | None = None
    """The most bytes of one stream, which then ends; None: no limit."""
    heartbeat_url: Annotated[HeartbeatUrl | None, HIDDEN] = None
    """URL that the daemon calls while no replica lags more than ``max_lag``. May be secret."""
    heartbeat_interval: HeartbeatInterval = 60.0
    """Seconds between two heartbeats."""
    logs: Annotated[tuple[Entry, ...], After(at_least_one), AfterOthers(_fill_defaults)]
    """Logs, and folders of logs."""
    max_lag: Annotated[MaxLag, IfNone(_default_max_lag)] = COMPUTED
    """Seconds that a replica may lag before the daemon is unhealthy. By default a minute, or twice the longest
    ``sync_interval`` if that is longer."""

    def _check_together(self, source: Source) -> None:
        if source.is_document:
            return  # the loader has checked this, and knows the lines
        paths = [(("logs", n, "path"), log.path) for n, log in enumerate(self.logs) if isinstance(log, LogConfig)]
        urls = [
            (("logs", n, "replicas", m, "url"), replica.url)
            for n, log in enumerate(self.logs)
            for m, replica in enumerate(log.replicas)
        ]
        for location, first in [*same_places(paths), *same_places(urls)]:
            raise ValueError(f"{spell(location)} is the same as {spell(first)}; name every log and replica once")

    @property
    def own_logs(self) -> tuple[LogConfig, ...]:
        """The logs with their own entries."""
        return tuple(entry for entry in self.logs if isinstance(entry, LogConfig))

    @property
    def folders(self) -> tuple[FolderConfig, ...]:
        """The folders in which logs are found, in order. A log belongs to the first folder that matches it."""
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


MODELS: dict[tuple[str, ...], type[Model]] = {
    (): Config,
    ("tls",): TlsConfig,
    ("tokens",): TokenConfig,
    **{
        (*entry, *below): part
        for entry, model in ((("logs", _LOG), LogConfig), (("logs", _FOLDER), FolderConfig))
        for below, part in (
            ((), model),
            (("truncate",), TruncateConfig),
            (("replicas",), ReplicaConfig),
            (("replicas", "retention"), RetentionConfig),
            (("replicas", "encryption"), EncryptionConfig),
            (("replicas", "checkpoints"), CheckpointsConfig),
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
    """The locations whose path or URL names the same place as an earlier location, each with that location."""
    seen: dict[str, Location] = {}
    again = []
    for location, text in places:
        first = seen.setdefault(place_of(text), location)
        if first != location:
            again.append((location, first))
    return again


def place_of(text: str) -> str:
    """Normalise a path or URL: ``file:///a``, ``/a``, ``/a/`` and, in the root folder, ``a`` are the same place."""
    text = text.removeprefix("file://")
    if "://" in text:
        return text.rstrip("/")
    return "/" + os.path.abspath(text).lstrip("/")


def _with_defaults(log: Entry, defaults: dict[str, Any]) -> Entry:
    replicas = tuple(replica.model_copy(update=_unset(replica, defaults, REPLICA_DEFAULTS)) for replica in log.replicas)
    return log.model_copy(update={**_unset(log, defaults, ("poll_interval",)), "replicas": replicas})


def _unset(model: Model, defaults: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: defaults[name] for name in names if name in defaults and name not in model.model_fields_set}
