"""What a writer in Spark is asked for: its options as one checked value, with secrets kept out of sight."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from litelog.errors import ConfigError
from litelog.spark.spelling import parse_size_option
from litelog.spark.store_options import NO_TABLE, read_store_options, replica_url

if TYPE_CHECKING:
    from collections.abc import Mapping

SEGMENT_BYTES = 64 << 20
"""What a log segment holds before the next one begins, unless it is said otherwise."""

MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES = 4 << 10, 1 << 30

OPTIONS: Final = ("path", "takeover", "segmentBytes", "partitionRecords")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A DataFrame to write. Its repr shows no place, whose URL may hold a secret, and no option of the store."""

    url: str = field(repr=False)
    store: Mapping[str, str] = field(repr=False)
    takeover: bool = False
    """Go on also where the newest claim is another owner's, who is fenced then."""
    segment_bytes: int = SEGMENT_BYTES
    """Bytes of a log segment, uncompressed: more only where one commit is larger."""
    partition_records: tuple[int, ...] = ()
    """How many records each partition holds, where that is known beforehand: then nothing is written twice."""


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of ``df.write``, whose names Spark gives in lower case. ConfigError for what does not fit."""
    store, others = read_store_options(given)
    known = {name.lower() for name in OPTIONS}
    if unknown := sorted(set(others) - known):
        raise ConfigError(
            f"writing litelog has no option {unknown[0]!r} (it has {', '.join(OPTIONS)}, and s3.*, store.*, fs.s3a.*)"
        )
    if not others.get("path", "").strip():
        raise ConfigError(f"no replica is named: save(URL), or option path ({NO_TABLE})")
    takeover = others.get("takeover", "false").lower()
    if takeover not in ("true", "false"):
        raise ConfigError(f"takeover={others['takeover']!r} must be true or false")
    return WriteOptions(
        replica_url(others["path"]),
        store,
        takeover == "true",
        _segment_bytes(others.get("segmentbytes")),
        _counts(others.get("partitionrecords")),
    )


def _segment_bytes(text: str | None) -> int:
    if text is None:
        return SEGMENT_BYTES
    size = parse_size_option("segmentBytes", text)
    if not MIN_SEGMENT_BYTES <= size <= MAX_SEGMENT_BYTES:
        raise ConfigError(f"segmentBytes={text!r} must be {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES} bytes")
    return size


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
