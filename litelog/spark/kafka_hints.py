"""Hints for names of options that Spark's Kafka source and sink have, and litelog has not."""

from __future__ import annotations

_HINTS = {
    "assign": "load(URL) names the log",
    "subscribe": "load(URL) names the log",
    "subscribepattern": "load(URL) names several logs if the URL has wildcards, such as s3://bucket/*",
    "topic": "save(URL) names the log",
    "startingoffsetsbytimestamp": "use startingTimestamp",
    "startingoffsetsbytimestampstrategy": "a stream that starts after the last timestamp starts at the end",
    "endingoffsetsbytimestamp": "use endingTimestamp",
    "minoffsetspertrigger": "a batch takes what there is: set the time between batches with Trigger.ProcessingTime",
    "maxtriggerdelay": "a batch takes what there is: set the time between batches with Trigger.ProcessingTime",
    "includeheaders": "records have no headers; includeMetadata adds columns that say where they lie",
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
    """What to use instead of the Kafka option ``name`` (in lower case); None if Kafka has no such option."""
    if name in _HINTS:
        return _HINTS[name]
    return next((hint for prefixes, hint in _PREFIXES.items() if name.startswith(prefixes)), None)
