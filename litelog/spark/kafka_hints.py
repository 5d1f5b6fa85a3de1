"""Options of Spark's Kafka source and sink: other names of litelog's options, and hints where litelog has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from litelog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

KAFKA_NAMES: Final = {
    "startingOffsets": "startingSequence",
    "endingOffsets": "endingSequence",
    "startingOffsetsByTimestamp": "startingTimestamp",
    "endingOffsetsByTimestamp": "endingTimestamp",
    "maxOffsetsPerTrigger": "maxRecordsPerTrigger",
}
"""Names of the Kafka source that are accepted as well, and the options that they mean."""

_HINTS = {
    "assign": "load(URL) names the log",
    "subscribe": "load(URL) names the log",
    "subscribepattern": "load(URL) names several logs if the URL has wildcards, such as s3://bucket/*",
    "topic": "save(URL) names the log",
    "startingoffsetsbytimestampstrategy": "a stream that starts after the last timestamp starts at the end",
    "minoffsetspertrigger": "a batch takes what there is: set the time between batches with Trigger.ProcessingTime",
    "maxtriggerdelay": "a batch takes what there is: set the time between batches with Trigger.ProcessingTime",
    "maxrecordsperpartition": "maxPartitionBytes limits what a task reads",
    "groupidprefix": "no group exists: a stream keeps its place in its checkpoint",
    "kafka.group.id": "no group exists: a stream keeps its place in its checkpoint",
}
_PREFIXES = {
    (
        "kafka.",
        "kafkaconsumer.",
    ): "no broker exists: load(URL) names the log, and options s3.* and store.* set its store",
    ("fetchoffset.",): "requests to a store are repeated for 20 s",
}


def kafka_hint(name: str) -> str | None:
    """Advise what to use instead of the Kafka option ``name`` (in lower case); None if Kafka has no such option."""
    if name in _HINTS:
        return _HINTS[name]
    return next((hint for prefixes, hint in _PREFIXES.items() if name.startswith(prefixes)), None)


def rename_options(given: Mapping[str, str]) -> dict[str, str]:
    """The options in lower case, with litelog's names for those of Kafka. Raises ConfigError if both are given."""
    lowered = {name.lower(): value for name, value in given.items()}
    for other, name in KAFKA_NAMES.items():
        if other.lower() not in lowered:
            continue
        if name.lower() in lowered:
            raise ConfigError(f"{other} and {name} mean the same: give only {name}")
        lowered[name.lower()] = lowered.pop(other.lower())
    return lowered
