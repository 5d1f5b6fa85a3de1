"""What a reader in Spark is asked for: its options as one checked value, with secrets kept out of sight.

Spark gives option names in lower case, whatever the user wrote, and every value as text.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from litelog.errors import ConfigError
from litelog.objects.position import Generation
from litelog.objects.position import generation as parse_generation
from litelog.spark.spelling import parse_size_option
from litelog.spark.store_options import NO_TABLE, read_store_options, replica_url

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_PARTITION_BYTES = 512 << 20
"""What a partition holds of the log at most, uncompressed, unless it is said otherwise: stored it is about what Spark
reads of a file (``spark.sql.files.maxPartitionBytes``)."""

CORRUPT_COLUMN = "_corrupt_record"
MAX_SEQUENCE = (1 << 63) - 1
MAX_PARTITIONS = 1_000_000

READ_OPTIONS: Final = (
    *("path", "paths", "generation", "startingSequence", "endingSequence", "startingTimestamp", "endingTimestamp"),
    *("mode", "columnNameOfCorruptRecord", "failOnDataLoss", "maxPartitionBytes", "numPartitions"),
    *("includeMetadata", "format", "pattern"),
)
"""The options of a batch, as they are written; those of stores are ``store_options``'."""

_USE_A_VIEW = f"{NO_TABLE}: CREATE TEMPORARY VIEW v USING litelog OPTIONS (path 'URL')"
_SPELLED = {name.lower(): name for name in READ_OPTIONS}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WILDCARDS = re.compile(r"[*?\[]")


class Mode(StrEnum):
    """What becomes of bytes that fail a check."""

    FAILFAST = "FAILFAST"
    """An error that names the object. The default: a log with holes is a loss of data."""
    DROPMALFORMED = "DROPMALFORMED"
    """They are left out, counted and named in the worker's log."""
    PERMISSIVE = "PERMISSIVE"
    """A row for each, with nulls, and what is wrong in the column for it."""


@dataclass(frozen=True, slots=True)
class Range:
    """Which records are wanted; None: no bound. Times in microseconds since 1970."""

    first: int | None = None
    """Sequences from here on."""
    stop: int | None = None
    """Sequences before this one."""
    since: int | None = None
    """Records stamped then or later; shipped then or later, where the format has no timestamps."""
    until: int | None = None
    """Records stamped, or shipped, before."""
    narrowed: bool = False
    """Whether a filter narrowed it."""
    given: int | None = None
    """If so: its ``first`` before that."""

    @property
    def start(self) -> int | None:
        """The sequence that was asked to start at: an error, where it is gone. What a filter leaves out is none."""
        return self.given if self.narrowed else self.first

    def narrow(self, first: int | None, stop: int | None) -> Range:
        """It, with the sequences that a filter over them may want. It may be empty."""
        firsts = [bound for bound in (self.first, first) if bound is not None]
        stops = [bound for bound in (self.stop, stop) if bound is not None]
        low, high = max(firsts, default=None), min(stops, default=None)
        if low is not None and high is not None:
            high = max(low, high)
        return replace(self, first=low, stop=high, narrowed=True, given=self.start)

    def overlaps(self, first: int | None, stop: int | None) -> bool:
        """Whether it may want any of the sequences [first, stop); None: not known."""
        if self.first is not None and stop is not None and stop <= self.first:
            return False
        return self.stop is None or first is None or first < self.stop

    def overlaps_times(self, lowest: int | None, highest: int | None) -> bool:
        """Whether it may want any record of that range of times, both included; None: not known."""
        if self.since is not None and highest is not None and highest < self.since:
            return False
        return self.until is None or lowest is None or lowest < self.until

    def within_times(self, other: Range) -> Range:
        """It, with the times that both want."""
        since = [time for time in (self.since, other.since) if time is not None]
        until = [time for time in (self.until, other.until) if time is not None]
        return replace(self, since=max(since, default=None), until=min(until, default=None))

    def holds(self, first: int | None, stop: int | None) -> bool:
        """Whether it wants all of the sequences [first, stop); None: not known."""
        if self.first is not None and (first is None or first < self.first):
            return False
        return self.stop is None or (stop is not None and stop <= self.stop)

    def holds_times(self, lowest: int | None, highest: int | None) -> bool:
        """Whether it wants all records of that range of times, both included; None: not known."""
        if self.since is not None and (lowest is None or lowest < self.since):
            return False
        return self.until is None or (highest is not None and highest < self.until)

    @property
    def has_bounds(self) -> bool:
        """Whether sequences are bounded."""
        return self.first is not None or self.stop is not None

    @property
    def has_times(self) -> bool:
        """Whether times are."""
        return self.since is not None or self.until is not None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A batch to read. Its repr shows no place, whose URL may hold a secret, and no option of a store."""

    paths: tuple[str, ...] = field(repr=False)
    """URLs, paths, or patterns of them: replicas and folders of logs."""
    store: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The stores' own options, as ``open_store`` takes them."""
    generation: Generation | None = None
    """None: the latest one."""
    range: Range = field(default_factory=Range)
    mode: Mode = Mode.FAILFAST
    corrupt_column: str = CORRUPT_COLUMN
    fail_on_data_loss: bool = True
    max_partition_bytes: int = MAX_PARTITION_BYTES
    """Bytes of the log, uncompressed."""
    num_partitions: int | None = None
    include_metadata: bool = False
    format: str | None = None
    """Of the log in a local folder; a replica says its own. None: ``litelog``."""
    pattern: str | None = None
    """The names of the log segments, where the format asks for it."""

    @property
    def has_several(self) -> bool:
        """Whether there may be more than one log, so that rows say which one they are of."""
        return len(self.paths) > 1 or any(is_pattern(path) for path in self.paths)


def is_pattern(path: str) -> bool:
    """Whether ``path`` holds wildcards (``*``, ``?``, ``[...]``), before a URL's query."""
    head = path.partition("?")[0] if "://" in path else path
    return _WILDCARDS.search(head) is not None


def parse_options(given: Mapping[str, str], own: Mapping[str, str] | None = None) -> ReadOptions:
    """The options of a batch. ConfigError for one that is not known, with the nearest, or does not fit.

    ``own``: further options that the caller knows, lower case to spelled, and reads itself.
    """
    store, others = read_store_options(given)
    known = _SPELLED | dict(own or {})
    if "provider" in others:
        raise ConfigError(_USE_A_VIEW)
    for name in others:
        if name not in known:
            raise ConfigError(_unknown(name, [*known.values()]))
    paths = _paths(others)
    return ReadOptions(
        paths=paths,
        store=store,
        generation=_generation(others.get("generation")),
        range=_range(others),
        mode=_mode(others.get("mode", Mode.FAILFAST)),
        corrupt_column=_name("columnNameOfCorruptRecord", others.get("columnnameofcorruptrecord", CORRUPT_COLUMN)),
        fail_on_data_loss=_switch("failOnDataLoss", others.get("failondataloss", "true")),
        max_partition_bytes=parse_size_option(
            "maxPartitionBytes", others.get("maxpartitionbytes", str(MAX_PARTITION_BYTES))
        ),
        num_partitions=parse_count("numPartitions", others.get("numpartitions"), MAX_PARTITIONS),
        include_metadata=_switch("includeMetadata", others.get("includemetadata", "false")),
        format=others.get("format"),
        pattern=others.get("pattern"),
    )


def parse_time(name: str, text: str) -> int:
    """Microseconds since 1970 that an ISO time says; one without a zone is in UTC. ConfigError."""
    if text.strip().isdigit():
        raise ConfigError(f"{name}={text!r} is a number: write an ISO time, such as 2026-11-21T10:00:00Z")
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(f"{name}={text!r} is no ISO time, such as 2026-11-21T10:00:00Z or 2026-11-21") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _unknown(name: str, known: list[str]) -> str:
    spelled = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name, spelled, 1, 0.5)
    advice = f"; did you mean {spelled[near[0]]}?" if near else ""
    listed = ", ".join(sorted(known, key=str.lower))
    return f"litelog has no option {name!r}{advice} (it has {listed}, and s3.*, store.* and fs.s3a.* for stores)"


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    """The places; ConfigError if there are none."""
    found: list[str] = []
    if "paths" in options:
        try:
            listed = json.loads(options["paths"])
        except ValueError:
            listed = None
        if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
            raise ConfigError('paths must be a JSON list of texts, such as ["s3://bucket/a", "s3://bucket/b"]')
        found += listed
    if "path" in options:
        found.append(options["path"])
    if not found or not all(path.strip() for path in found):
        raise ConfigError(
            f"no log is named: load(URL), or option path: a replica's URL, or the folder of a log ({_USE_A_VIEW})"
        )
    return tuple(dict.fromkeys(replica_url(path) for path in found))


def _range(options: Mapping[str, str]) -> Range:
    bounds = Range(
        first=parse_count("startingSequence", options.get("startingsequence"), MAX_SEQUENCE, lowest=0),
        stop=parse_count("endingSequence", options.get("endingsequence"), MAX_SEQUENCE, lowest=0),
        since=_time("startingTimestamp", options.get("startingtimestamp")),
        until=_time("endingTimestamp", options.get("endingtimestamp")),
    )
    if bounds.first is not None and bounds.stop is not None and bounds.stop < bounds.first:
        raise ConfigError(f"endingSequence={bounds.stop} lies before startingSequence={bounds.first}")
    if bounds.since is not None and bounds.until is not None and bounds.until < bounds.since:
        raise ConfigError("endingTimestamp lies before startingTimestamp")
    return bounds


def _time(name: str, text: str | None) -> int | None:
    return None if text is None else parse_time(name, text)


def _generation(text: str | None) -> Generation | None:
    if text is None or text.lower() == "latest":
        return None
    try:
        return parse_generation(text)
    except ValueError as error:
        raise ConfigError(f"generation: {error}") from None


def _mode(text: str) -> Mode:
    try:
        return Mode(text.upper())
    except ValueError:
        raise ConfigError(f"mode={text!r} must be one of {', '.join(Mode)}") from None


def _name(option: str, text: str) -> str:
    if not text.strip():
        raise ConfigError(f"{option} is empty")
    return text


def _switch(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{name}={text!r} must be true or false")
    return text.lower() == "true"


def parse_count(name: str, text: str | None, limit: int, *, lowest: int = 1) -> int | None:
    """The number in ``text``, None if there is none; ConfigError, by the option's name, for what is out of range."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and lowest <= int(text) <= limit):
        raise ConfigError(f"{name}={text!r} must be a number from {lowest} to {limit}")
    return int(text)
