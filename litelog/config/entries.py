"""The configuration of logs and their replicas, with their retention and truncation, and of folders in which the daemon
finds logs.

The name of a found log is its path relative to ``dir``, with ``/`` between the parts. In a replica's URL each part
consists of letters, digits and ``. _ -``. Every other byte of its UTF-8 is escaped as ``=`` and two hexadecimal digits.
The first byte of a part ``epochs`` or ``generations`` is escaped as well, since these are names within a replica. So
two names never share a URL, and no name leads out of the place that the URL names.
"""

from __future__ import annotations

import os
import re
from dataclasses import field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Literal

from litelog.config.access import AbsolutePath  # noqa: TC001 - the model looks for it
from litelog.config.checked_model import Model
from litelog.config.field_types import HIDDEN, After, AfterOthers, Before, BeforeAsWritten
from litelog.config.values import (
    SCRUB_RATE,
    CompressionMode,
    Count,
    FencingMode,
    Interval,
    OptionValue,
    ScrubInterval,
    ScrubRate,
    SegmentBytes,
    SnapshotInterval,
    SnapshotMode,
    Switch,
    Text,
    WalRetention,
    WatermarkMode,
    at_least_one,
    read_age,
    read_bytes,
)
from litelog.log.truncation import TruncationPolicy
from litelog.log.watermark import WatermarkUse
from litelog.objects.layout import CLAIMS, GENERATIONS, Fencing
from litelog.retention.policy import RetentionPolicy
from litelog.shipping.context import CHECKPOINT_SECONDS, CheckpointPolicy, Settings

if TYPE_CHECKING:
    from litelog.config.field_types import Source
    from litelog.encryption.recipients import Recipients

MAX_AGE = 100 * 365 * 86400.0
"""Seconds. A larger value is probably a mistake in the unit."""


def _age(seconds: float) -> float:
    if not 0 <= seconds <= MAX_AGE:
        raise ValueError("must be from 0s to 36500d")
    return seconds


def _at_least_zero(size: int) -> int:
    if size < 0:
        raise ValueError("must be 0 or more")
    return size


Age = Annotated[float, BeforeAsWritten(read_age), After(_age)]
Bytes = Annotated[int, Before(read_bytes), After(_at_least_zero)]


class RetentionConfig(Model):
    """How much of its past a replica keeps; without a limit, everything."""

    max_age: Age | None = None
    """Seconds. Every state of the log during this time stays restorable."""
    max_bytes: Bytes | None = None
    """Compressed bytes of the replica; the oldest objects are deleted first."""
    max_snapshots: Count | None = None
    min_snapshots: Count = 1
    """This many of the newest snapshots stay, with the objects that they name, regardless of the limits."""

    def _check_together(self, _source: Source) -> None:
        self.policy()

    def policy(self) -> RetentionPolicy:
        """As the library's type. Raises ValueError for limits that contradict each other."""
        return RetentionPolicy(self.max_age, self.max_bytes, self.max_snapshots, self.min_snapshots)


class TruncateConfig(Model):
    """How much a log keeps on its disk. Only data that every replica has is removed."""

    max_bytes: Bytes | None = None
    """Uncompressed bytes of the log's folder."""
    max_age: Age | None = None
    """Seconds since the last replica received the last bytes of a log segment."""
    wait_for_mirrors: Age | None = None
    """Seconds, counted as for ``max_age``: how old a log segment may become while a mirror lacks it. None: mirrors are
    not waited for."""
    wait_for_consumers: Age | None = None
    """As ``wait_for_mirrors``, while a consumer has not processed it whose position is in the state folder."""
    wait_for_replica_consumers: Age | None = None
    """As ``wait_for_mirrors``, for consumers whose positions are in the log's replicas: while one has not processed the
    log segment."""

    def _check_together(self, _source: Source) -> None:
        self.policy()

    def policy(self) -> TruncationPolicy:
        """As the library's type. Raises ValueError if it limits nothing."""
        waits = (self.wait_for_mirrors, self.wait_for_consumers, self.wait_for_replica_consumers)
        return TruncationPolicy(self.max_bytes, self.max_age, *waits)


PATTERN_FORMATS = ("lines", "raw")
"""The formats that need a pattern for the names of log segments."""

DEFAULTS = Settings()


class EncryptionConfig(Model):
    """Who can read what the daemon writes to a replica. Each recipient can read all of it."""

    recipients: tuple[Text, ...] = ()
    """Public keys of age, ``age1...``, or files with one in each line."""
    passphrase_file: AbsolutePath | None = None
    """File whose first line is a passphrase."""
    wrap_command: tuple[Text, ...] = ()
    """A command that reads a key from its standard input and writes it to its standard output, as a key service
    encrypted it: the program and its arguments."""

    def open_recipients(self) -> Recipients:
        """The recipients. Raises ConfigError."""
        from litelog.encryption.recipients import read_recipients  # noqa: PLC0415 - few replicas need it

        return read_recipients(self.recipients, self.passphrase_file, self.wrap_command)


class CheckpointsConfig(Model):
    """Signed checkpoints, which the daemon writes to the replica: each states what the replica holds."""

    sign_key: AbsolutePath
    """PEM file with a private Ed25519 key: ``litelog key new --signing`` makes one."""
    every: SnapshotInterval = CHECKPOINT_SECONDS
    """Seconds between two checkpoints, if anything was shipped. Each snapshot causes one as well."""
    next_key: AbsolutePath | None = None
    """PEM file with the public key that signs from some day on: the checkpoints say so."""

    def policy(self) -> CheckpointPolicy:
        """As the library's type."""
        return CheckpointPolicy(self.sign_key, self.every, self.next_key)

    def check_keys(self) -> None:
        """Raise ConfigError if one of the files cannot be used."""
        from litelog.checkpoints.signing import SigningKey, read_trusted_key  # noqa: PLC0415 - few replicas need it

        SigningKey(self.sign_key)
        if self.next_key is not None:
            read_trusted_key(self.next_key)


class ReplicaConfig(Model):
    """One replica of a log."""

    @classmethod
    def _rewritten(cls, value: Any) -> Any:
        """A replica may be written as its URL alone."""
        return {"url": value} if isinstance(value, str) else value

    url: Annotated[Text, HIDDEN]
    """Destination: ``file:///path``, a plain path, or another scheme for which a replica client is installed."""
    sync_interval: Interval = 1.0
    """Seconds between two PUTs of WAL segments under load."""
    max_segment_bytes: SegmentBytes = DEFAULTS.max_segment_bytes
    """The most uncompressed bytes of the log in one WAL segment."""
    compression: CompressionMode = DEFAULTS.compression
    """How sealed segments are compressed. WAL segments and snapshots are LZ4."""
    snapshot_interval: SnapshotInterval = DEFAULTS.snapshot_interval
    """Seconds between two snapshots, if anything was sealed."""
    snapshot_segments: Count = DEFAULTS.snapshot_segments
    """Number of sealed segments after which a snapshot is due before ``snapshot_interval`` has passed."""
    snapshot_policy: SnapshotMode = DEFAULTS.snapshot_policy
    """Whether a snapshot names log segments that the source has dropped (``keep``), or not (``mirror``)."""
    wal_retention: WalRetention = DEFAULTS.wal_retention
    """Seconds for which WAL segments stay after a snapshot covers them."""
    fencing: FencingMode = Fencing.REQUIRED
    """How two daemons are kept apart; ``isolated`` is for stores without create-only puts."""
    retention: RetentionConfig = RetentionConfig()
    """How much of its past the replica keeps."""
    no_delete: bool = False
    """Whether the daemon leaves every deletion to ``litelog prune``, which runs with other credentials."""
    scrub_interval: ScrubInterval | None = None
    """Seconds between two verifications of the whole replica in the background; 0: none, and no requests. None: once a
    day, the daemon compares names and sizes, and reads a thirtieth of the objects, different ones each day."""
    scrub_rate: ScrubRate = SCRUB_RATE
    """Bytes of objects per second that a verification reads."""
    encryption: EncryptionConfig | Literal["none"] | None = None
    """How the replica is encrypted; None: not, and an encrypted one is refused; ``none``: not, even after it was."""
    checkpoints: CheckpointsConfig | None = None
    """How signed checkpoints are written; None: none are."""
    options: Annotated[dict[str, OptionValue], HIDDEN] = field(default_factory=dict)
    """The backend's own settings (region, endpoint, credentials, ...). The backend checks them when it opens."""

    def above(self, depth: int) -> tuple[str, int]:
        """For the URL of found logs' replicas: the place above all of them, and how many levels below it they lie.

        ``depth``: the most parts of a log's name.
        """
        end = _path_end(self.url)
        before, found, after = self.url[:end].partition(NAME)
        if not found:
            return self.url, depth
        return before.rstrip("/") + self.url[end:], depth + after.count("/")

    def name_below(self, place: str) -> str | None:
        """The name of the log whose replica is at ``place`` below ``above``; None if no log has it there."""
        above, _ = self.above(0)
        end = _path_end(above)
        return find_name(self.url, f"{above[:end].rstrip('/')}/{place}{above[end:]}")


class EntryConfig(Model):
    """The settings common to all entries of ``logs``."""

    format: Text = "litelog"
    """Name of the log format."""
    takeover: Switch = False
    """Whether to take over a replica whose newest claim is another owner's."""
    poll_interval: Interval = 1.0
    """Seconds between two polls of the folder; WATCHED_INTERVALS times as many if file events wake the daemon."""
    watermark: WatermarkMode = WatermarkUse.CHECKPOINT
    """Whether only records that the log's writer takes no longer back are shipped, in a format whose writers state
    that."""
    truncate: TruncateConfig | None = None
    """When the daemon removes log segments from the log itself, after every replica has them; None: never, and the
    daemon never writes to the log's folder."""


def _check_segment_pattern(pattern: str | None, others: dict[str, Any]) -> str | None:
    chosen = others.get("format")
    if pattern is not None and chosen is not None and chosen not in PATTERN_FORMATS:
        raise ValueError("only the formats lines and raw have a pattern; others know the names of their files")
    return pattern


SegmentPattern = Annotated[Text | None, AfterOthers(_check_segment_pattern)]


class LogConfig(EntryConfig):
    """One log and its replicas."""

    path: Text
    """The folder of log segments."""
    pattern: SegmentPattern = None
    """Shell pattern for the names of log segments; for the formats ``lines`` and ``raw``."""
    replicas: Annotated[tuple[ReplicaConfig, ...], After(at_least_one)]


NAME = "{name}"
"""Placeholder in a URL for the log's name. A URL without it gets the name at its end."""

MAX_NAME_BYTES = 512
"""The most bytes of a name as URLs spell it: object stores accept keys of 1,024 bytes."""

_ESCAPED = re.compile(r"=([0-9A-F]{2})")
_TAKEN = frozenset(name.rstrip("/") for name in (CLAIMS, GENERATIONS))
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def format_name(name: str) -> str:
    """Spell the log name ``name`` for URLs. Raises ValueError if that is impossible."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError("is not a path below the folder")
    try:
        spelled = "/".join(map(_format_part, parts))
    except UnicodeEncodeError:
        raise ValueError("is not UTF-8, so it cannot be spelled in a URL") from None
    if len(spelled) > MAX_NAME_BYTES:
        raise ValueError(f"is longer than {MAX_NAME_BYTES} bytes as URLs spell it")
    return spelled


def _format_part(part: str) -> str:
    body = part.encode()
    taken = part.lower() in _TAKEN
    return "".join(
        chr(byte) if byte in _PLAIN and not (taken and at == 0) else f"={byte:02X}" for at, byte in enumerate(body)
    )


def name_url(url: str, name: str) -> str:
    """The URL of a found log's replica: ``name`` replaces ``{name}``, or follows the path of ``url``."""
    spelled = format_name(name)
    if NAME in url:
        return url.replace(NAME, spelled)
    end = _path_end(url)
    return f"{url[:end].rstrip('/')}/{spelled}{url[end:]}"


def find_name(url: str, named: str) -> str | None:
    """The inverse of ``name_url``: the name that turns ``url`` into ``named``; None if there is none."""
    end = _path_end(url)
    before, found, after = url.partition(NAME)
    if not found:
        before, after = f"{url[:end].rstrip('/')}/", url[end:]
    if len(named) <= len(before) + len(after) or not (named.startswith(before) and named.endswith(after)):
        return None
    spelled = named[len(before) : len(named) - len(after)]
    try:
        name = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), spelled).encode("latin-1").decode()
        return name if format_name(name) == spelled else None
    except (UnicodeError, ValueError):
        return None


def _path_end(url: str) -> int:
    return min((at for mark in "?#" if "://" in url and (at := url.find(mark)) >= 0), default=len(url))


def _check_url(replica: ReplicaConfig) -> ReplicaConfig:
    url = replica.url
    if NAME in url:
        _, _, path = (url.split("://", 1)[1] if "://" in url else f"/{url}").partition("/")
        path = re.split(r"[?#]", path, maxsplit=1)[0] if "://" in url else path
        if url.count(NAME) != 1 or path.count(NAME) != 1:
            raise ValueError("{name} may appear only once, in a URL's path")
        before, _, after = path.partition(NAME)
        if (before and not before.endswith("/")) or (after and not after.startswith("/")):
            raise ValueError("{name} must stand between slashes, since a log's name may contain some")
    return replica


def _check_urls(replicas: tuple[ReplicaConfig, ...]) -> tuple[ReplicaConfig, ...]:
    return tuple(map(_check_url, replicas))


def _check_folder_pattern(pattern: str) -> str:
    parts = pattern.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError("must be a relative path of patterns, such as * or app-*/*")
    if "**" in parts:
        raise ValueError("has no **: recursive: true looks at any depth")
    return pattern


class SearchedFolder(EntryConfig):
    """A folder in which every folder that matches ``pattern`` and holds log segments is a log."""

    dir: Text
    """The folder that contains the logs."""
    pattern: Annotated[Text, After(_check_folder_pattern)] = "*"
    """Folders below ``dir`` that may be logs: a shell pattern for each part of the path, such as ``*/*``."""
    recursive: Switch = False
    """Whether the pattern matches the last parts of a path at any depth."""
    watch: Switch = True
    """Whether to look for logs while the daemon runs, and not only at its start and when it reads its configuration."""
    segment_pattern: SegmentPattern = None
    """Shell pattern for the names of log segments; for the formats ``lines`` and ``raw``."""

    @property
    def depth(self) -> int:
        """How many parts of a path the pattern matches."""
        return self.pattern.count("/") + 1

    def means(self, name: str) -> bool:
        """Whether this entry takes the folder of that name as a log, if it holds log segments.

        Only a pattern that begins with a dot matches a hidden folder.
        """
        parts, patterns = name.split("/"), self.pattern.split("/")
        if len(parts) < len(patterns) or (len(parts) > len(patterns) and not self.recursive):
            return False
        above, last = parts[: -len(patterns)], parts[-len(patterns) :]
        hidden = any(part.startswith(".") for part in above)
        return not hidden and all(map(matches, last, patterns))

    def leads_to(self, name: str) -> bool:
        """Whether this entry may take the folder of that name, or a folder below it, as a log."""
        if self.means(name):
            return True
        parts, patterns = name.split("/"), self.pattern.split("/")
        if self.recursive:
            return not parts[-1].startswith(".") or any(pattern.startswith(".") for pattern in patterns)
        return len(parts) <= len(patterns) and all(map(matches, parts, patterns))


class FolderConfig(SearchedFolder):
    """A folder of logs, and where they are replicated."""

    replicas: Annotated[tuple[ReplicaConfig, ...], After(at_least_one), After(_check_urls)]

    def log_at(self, path: str) -> LogConfig | None:
        """The log in the folder ``path``, which may not exist; None if this entry does not match it."""
        name = os.path.relpath(os.path.abspath(path), os.path.abspath(self.dir))
        if name.startswith("../") or name in (".", "..") or not self.means(name):
            return None
        try:
            return self.named(name)
        except ValueError:
            return None

    def replica_at(self, url: str) -> ReplicaConfig | None:
        """The replica at ``url`` of a log that this entry matches, which may not exist."""
        for number, replica in enumerate(self.replicas):
            name = find_name(replica.url, url)
            if name is not None and self.means(name):
                return self.named(name).replicas[number]
        return None

    def named(self, name: str) -> LogConfig:
        """The log of that name. Raises ValueError if its replicas' URLs cannot be spelled."""
        replicas = tuple(replica.model_copy(update={"url": name_url(replica.url, name)}) for replica in self.replicas)
        return LogConfig.model_construct(
            path=os.path.join(self.dir, name),
            format=self.format,
            pattern=self.segment_pattern,
            takeover=self.takeover,
            poll_interval=self.poll_interval,
            watermark=self.watermark,
            truncate=self.truncate,
            replicas=replicas,
        )


def matches(part: str, pattern: str) -> bool:
    """Whether a pattern matches one part of a path."""
    return fnmatchcase(part, pattern) and (pattern.startswith(".") or not part.startswith("."))
