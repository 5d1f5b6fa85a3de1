"""The options of a stream: those of a batch that apply, where it starts, and how much a batch takes."""

from __future__ import annotations

import json
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.formats.log_format import MAX_SEQUENCE
from litelog.spark.kafka_hints import rename_options
from litelog.spark.log_bounds import LogBounds, match_names, split_by_log
from litelog.spark.options import (
    EARLIEST,
    LATEST,
    Range,
    parse_count,
    parse_options,
    parse_size_option,
)
from litelog.spark.scan.journal import is_journal
from litelog.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.spark.options import ReadOptions

STREAM_OPTIONS: Final = (
    *("maxBytesPerTrigger", "maxFilesPerTrigger", "maxRecordsPerTrigger", "pollInterval", "discoveryInterval"),
)
"""The options that only streams have."""

POLL_SECONDS = 1.0
LEAST_POLL_SECONDS = 0.01
MOST_POLL_SECONDS = 300.0

DISCOVERY_SECONDS = 60.0
"""How often patterns are matched again by default. Costs a listing."""

LEAST_DISCOVERY_SECONDS = 1.0
MOST_DISCOVERY_SECONDS = 86400.0

_STARTS = {"startingsequence": "startingSequence", "startingtimestamp": "startingTimestamp"}
_UNFIT = {
    "endingsequence": "endingSequence: a stream has no end (Trigger.AvailableNow ends at what exists now)",
    "endingtimestamp": "endingTimestamp: a stream has no end (Trigger.AvailableNow ends at what exists now)",
    "generation": "generation: a stream begins in the latest generation, and follows those that continue it",
}
_WORDS = (EARLIEST, LATEST)
_OWN = {name.lower(): name for name in STREAM_OPTIONS}


@dataclass(frozen=True, slots=True)
class StreamStart:
    """The start of a stream in a log that it meets for the first time."""

    is_latest: bool = False
    """At the current end. If all fields are unset: at the first record that exists."""
    sequence: int | None = None
    """At the first record with this sequence or a higher one."""
    time: int | None = None
    """At the first record with this timestamp or a later one, in microseconds since 1970. If the format has no
    timestamps, the time of shipping counts. If no such record exists: at the end."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """A stream to read."""

    read: ReadOptions
    """Options of a batch. The range has no bounds."""
    start: StreamStart
    max_bytes: int | None
    """Uncompressed bytes of the logs in a batch, approximately; None: no limit."""
    max_files: int | None
    """Objects in a batch; None: no limit."""
    max_records: int | None
    """Records in a batch, approximately; None: no limit."""
    poll_interval: float
    """Longest pause in seconds between two polls of a quiet log."""
    discovery_interval: float
    """Seconds between two looks for new logs that match a pattern."""
    starts: Mapping[str, StreamStart] = field(default_factory=dict)
    """The start of the stream in single logs, by the name that the user wrote."""

    def starts_of(self, logs: Sequence[str]) -> dict[str, StreamStart]:
        """The start of the stream in each of these logs, which are all that it knows at first.

        Raises ConfigError if the options name a log that is not among them.
        """
        named = match_names("startingSequence or startingTimestamp", self.starts, logs)
        return {log: self.starts[named[number]] if number in named else self.start for number, log in enumerate(logs)}


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Parse a stream's options. Raises ConfigError as ``parse_options`` does, and for options of batches only."""
    lowered = rename_options(given)
    for name, reason in _UNFIT.items():
        if name in lowered and not (name == "generation" and lowered[name].lower() == LATEST):
            raise ConfigError(f"a stream does not take {reason}")
    words, rest = _split_starts(lowered)
    read = parse_options(rest, _OWN)
    if read.format is not None and not is_journal(read):
        raise ConfigError("format is for logs in local folders: a stream reads replicas, which name their own format")
    if all(name in lowered for name in _STARTS) and len(read.by_log.values) < len(_STARTS):
        raise ConfigError("startingSequence and startingTimestamp cannot both be given: a stream starts at one of them")
    start = StreamStart(words.get("") == LATEST, read.range.first, read.range.since)
    starts = _starts_by_log(read.by_log, words)
    return StreamOptions(replace(read, range=Range(), by_log=LogBounds()), start, *_own_values(lowered), starts)


def _starts_by_log(bounds: LogBounds, words: Mapping[str, str]) -> dict[str, StreamStart]:
    sequences, times = (bounds.values.get(option, {}) for option in _STARTS.values())
    if both := sorted(sequences.keys() & times.keys()):
        raise ConfigError(f"startingSequence and startingTimestamp both name {both[0]!r}: give one of them")
    return {
        name: StreamStart(words.get(name) == LATEST, sequences.get(name), times.get(name))
        for name in (*sequences, *times)
    }


def parse_any_options(given: Mapping[str, str]) -> ReadOptions:
    """Parse the options that batches and streams share, for a caller that does not know yet which of them it serves.

    Also raises ConfigError for values that only a stream uses: Spark reports errors from start() less clearly.
    """
    lowered = rename_options(given)
    _, rest = _split_starts(lowered)
    _own_values(lowered)
    return parse_options(rest, _OWN)


def _split_starts(lowered: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(``earliest`` or ``latest`` by log, and of all other logs under an empty name; the options without these words).

    In the options, a log with such a word has no bound.
    """
    words: dict[str, str] = {}
    rest = dict(lowered)
    for name, option in _STARTS.items():
        text = lowered.get(name)
        texts = None if text is None else split_by_log(option, text)
        if texts is not None:
            spoken = {log: word for log, bound in texts.items() if (word := bound.strip().lower()) in _WORDS}
            words |= spoken
            rest[name] = json.dumps(texts | dict.fromkeys(spoken, EARLIEST))
        elif text is not None and (word := text.strip().lower()) in _WORDS:
            words[""] = word
            del rest[name]
    return words, rest


def _own_values(lowered: Mapping[str, str]) -> tuple[int | None, int | None, int | None, float, float]:
    """The values of STREAM_OPTIONS, in their order."""
    max_files = parse_count("maxFilesPerTrigger", lowered.get("maxfilespertrigger"), MAX_SEQUENCE)
    max_records = parse_count("maxRecordsPerTrigger", lowered.get("maxrecordspertrigger"), MAX_SEQUENCE)
    poll = _interval("pollInterval", lowered, POLL_SECONDS, (LEAST_POLL_SECONDS, MOST_POLL_SECONDS), "10ms to 5m")
    limits = (LEAST_DISCOVERY_SECONDS, MOST_DISCOVERY_SECONDS)
    discovery = _interval("discoveryInterval", lowered, DISCOVERY_SECONDS, limits, "1s to 24h")
    return _optional_size("maxBytesPerTrigger", lowered), max_files, max_records, poll, discovery


def _optional_size(name: str, lowered: Mapping[str, str]) -> int | None:
    text = lowered.get(name.lower())
    return None if text is None else parse_size_option(name, text)


def _interval(name: str, lowered: Mapping[str, str], default: float, limits: tuple[float, float], shown: str) -> float:
    text = lowered.get(name.lower())
    if text is None:
        return default
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"{name}={text!r} {error}") from None
    if not limits[0] <= seconds <= limits[1]:
        raise ConfigError(f"{name}={text!r} must be from {shown}")
    return seconds
