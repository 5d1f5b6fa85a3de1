"""What a stream is asked for: the options of a batch that fit it, where it starts, and how much it takes at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from litelog.errors import ConfigError
from litelog.spark.options import MAX_SEQUENCE, Range, parse_count, parse_options
from litelog.spark.spelling import parse_size_option
from litelog.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.spark.options import ReadOptions

EARLIEST, LATEST = "earliest", "latest"

STREAM_OPTIONS: Final = ("maxBytesPerTrigger", "maxFilesPerTrigger", "pollInterval")
"""The options that only a stream has."""

POLL_SECONDS = 1.0
LEAST_POLL_SECONDS = 0.01
MOST_POLL_SECONDS = 300.0

_STARTS = {"startingsequence": "startingSequence", "startingtimestamp": "startingTimestamp"}
_UNFIT = {
    "endingsequence": "endingSequence: a stream has no end (Trigger.AvailableNow ends at what is there)",
    "endingtimestamp": "endingTimestamp: a stream has no end (Trigger.AvailableNow ends at what is there)",
    "generation": "generation: a stream begins in the latest generation, and follows those that continue it",
}
_OWN = {name.lower(): name for name in STREAM_OPTIONS}


@dataclass(frozen=True, slots=True)
class StreamStart:
    """Where a stream begins in a log that it meets for the first time."""

    is_latest: bool = False
    """At the end, as it is then; if nothing below is said either: at the first record that is there."""
    sequence: int | None = None
    """At the first record with it or a higher one."""
    time: int | None = None
    """At the first record stamped then or later, microseconds since 1970 (shipped then, where a format has no
    timestamps); where there is none, at the end."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """A stream to read."""

    read: ReadOptions
    """Its range has no bounds."""
    start: StreamStart
    max_bytes: int | None
    """Bytes of the logs, uncompressed, that a batch takes, about; None: no limit."""
    max_files: int | None
    """Objects that a batch takes."""
    poll_interval: float
    """Seconds between two looks at a log that is quiet, at most."""


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """The options of a stream. ConfigError as ``parse_options``, and for one that fits batches alone."""
    lowered = {name.lower(): value for name, value in given.items()}
    for name, reason in _UNFIT.items():
        if name in lowered and not (name == "generation" and lowered[name].lower() == LATEST):
            raise ConfigError(f"a stream does not take {reason}")
    if all(name in lowered for name in _STARTS):
        raise ConfigError("startingSequence and startingTimestamp are both given: a stream starts at one of them")
    word, rest = _split_start(lowered)
    read = parse_options(rest, _OWN)
    if read.format is not None:
        raise ConfigError("format is for logs in local folders: a stream reads replicas, which say their own")
    start = StreamStart(word == LATEST, read.range.first, read.range.since)
    max_bytes, max_files, poll_interval = _own_values(lowered)
    return StreamOptions(replace(read, range=Range()), start, max_bytes, max_files, poll_interval)


def parse_any_options(given: Mapping[str, str]) -> ReadOptions:
    """What batches and streams have in common: for who does not know yet which one it will be.

    ConfigError also for a value that only a stream would look at: Spark tells of what start() finds less well.
    """
    lowered = {name.lower(): value for name, value in given.items()}
    _, rest = _split_start(lowered)
    _own_values(lowered)
    return parse_options(rest, _OWN)


def _split_start(lowered: Mapping[str, str]) -> tuple[str | None, dict[str, str]]:
    """(``earliest`` or ``latest``, if one is said; the options without it)."""
    words = {name: lowered[name].strip().lower() for name in _STARTS if name in lowered}
    spoken = {name: word for name, word in words.items() if word in (EARLIEST, LATEST)}
    return next(iter(spoken.values()), None), {name: value for name, value in lowered.items() if name not in spoken}


def _own_values(lowered: Mapping[str, str]) -> tuple[int | None, int | None, float]:
    """What STREAM_OPTIONS say, in their order."""
    max_files = parse_count("maxFilesPerTrigger", lowered.get("maxfilespertrigger"), MAX_SEQUENCE)
    return _optional_size("maxBytesPerTrigger", lowered), max_files, _interval(lowered.get("pollinterval"))


def _optional_size(name: str, lowered: Mapping[str, str]) -> int | None:
    text = lowered.get(name.lower())
    return None if text is None else parse_size_option(name, text)


def _interval(text: str | None) -> float:
    if text is None:
        return POLL_SECONDS
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"pollInterval={text!r} {error}") from None
    if not LEAST_POLL_SECONDS <= seconds <= MOST_POLL_SECONDS:
        raise ConfigError(f"pollInterval={text!r} must be from 10ms to 5m")
    return seconds
