"""The options of a write in Spark, as one checked value. Its repr shows no secrets."""

from __future__ import annotations

import json
from dataclasses import field
from typing import TYPE_CHECKING, Final

from litelog.codec.decoding import MOST
from litelog.codec.frame_codecs import Compression
from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.spark.kafka_hints import kafka_hint
from litelog.spark.options import parse_size_option
from litelog.spark.store_options import NO_TABLE, read_store_options, replica_url

if TYPE_CHECKING:
    from collections.abc import Mapping

SEGMENT_BYTES = 64 << 20
"""Default size at which a log segment ends and the next one begins."""

MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES = 4 << 10, 1 << 30

MAX_APPLICATION_ID = 200
"""Characters of an application's id."""

OPTIONS: Final = ("path", "takeover", "segmentBytes", "partitionRecords", "txnAppId", "txnVersion", "compression")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A DataFrame to write. The repr leaves out the URL, which may hold a secret, and options of the store."""

    url: str = field(repr=False)
    store: Mapping[str, str] = field(repr=False)
    takeover: bool = False
    """Continue even if the newest claim is another owner's. That owner is then fenced."""
    segment_bytes: int = SEGMENT_BYTES
    """Uncompressed bytes of a log segment. Only a single larger commit exceeds this."""
    partition_records: tuple[int, ...] = ()
    """Number of records in each partition, if known beforehand. Then nothing is written twice."""
    transaction: tuple[str, int] | None = None
    """Id of the application and version of this write. Nothing is written if the log holds it or a newer one."""
    compression: Compression = Compression.LZ4
    """Of the sealed segments."""


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Parse the options of ``df.write``, whose names Spark passes in lower case. Raises ConfigError."""
    store, others = read_store_options(given)
    known = {name.lower() for name in OPTIONS}
    if unknown := sorted(set(others) - known):
        if (hint := kafka_hint(unknown[0])) is not None:
            raise ConfigError(f"the writer has no option {unknown[0]!r}, which is Kafka's: {hint}")
        raise ConfigError(
            f"the writer has no option {unknown[0]!r} (it has {', '.join(OPTIONS)}, and s3.*, store.*, fs.s3a.*)"
        )
    if not others.get("path", "").strip():
        raise ConfigError(f"no replica is given: use save(URL) or option path ({NO_TABLE})")
    takeover = others.get("takeover", "false").lower()
    if takeover not in ("true", "false"):
        raise ConfigError(f"takeover={others['takeover']!r} must be true or false")
    return WriteOptions(
        replica_url(others["path"]),
        store,
        takeover == "true",
        _segment_bytes(others.get("segmentbytes")),
        _counts(others.get("partitionrecords")),
        _transaction(others.get("txnappid"), others.get("txnversion")),
        _compression(others.get("compression")),
    )


def _segment_bytes(text: str | None) -> int:
    if text is None:
        return SEGMENT_BYTES
    size = parse_size_option("segmentBytes", text)
    if not MIN_SEGMENT_BYTES <= size <= MAX_SEGMENT_BYTES:
        raise ConfigError(f"segmentBytes={text!r} must be {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES} bytes")
    return size


def _compression(text: str | None) -> Compression:
    if text is None:
        return Compression.LZ4
    if text.lower() not in tuple(Compression):
        *first, last = Compression
        raise ConfigError(f"compression={text!r} must be {', '.join(first)} or {last}")
    chosen = Compression(text.lower())
    if (problem := chosen.problem()) is not None:
        raise ConfigError(problem)
    return chosen


def _counts(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(type(count) is int and count >= 0 for count in found):
        raise ConfigError("partitionRecords must be a JSON list of numbers, one for each partition")
    return tuple(found)


def _transaction(application: str | None, version: str | None) -> tuple[str, int] | None:
    if application is None and version is None:
        return None
    if not application or version is None or not version.isascii() or not version.isdigit():
        raise ConfigError("txnAppId and txnVersion belong together: an id, and a whole number that grows")
    if len(application) > MAX_APPLICATION_ID or int(version) >= MOST:
        raise ConfigError(f"txnAppId has up to {MAX_APPLICATION_ID} characters, and txnVersion is below 2^63")
    return application, int(version)
