"""The types of the configuration's plain values: how each is read from YAML, and its limits."""

from __future__ import annotations

import re
from typing import Annotated, Any

from litelog.codec.frame_codecs import Compression
from litelog.config.field_types import FILLED, After, AtLeast, Before
from litelog.config.located_values import Expanded
from litelog.log.watermark import WatermarkUse
from litelog.objects.layout import Fencing
from litelog.objects.wal_segment import MAX_LENGTH_BYTES
from litelog.retention.policy import GRACE_SECONDS
from litelog.shipping.context import SnapshotPolicy
from litelog.units import parse_duration, parse_size


def read_seconds(value: Any) -> Any:
    """Convert a duration as people write it to seconds. A number is taken as seconds."""
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, bool):
        raise ValueError("must be a duration such as 10s, 1m30s or 500ms")
    return value


def read_age(value: Any, is_written: bool) -> Any:
    """As ``read_seconds``, but a unit is required in writing: older data is deleted, and few people mean seconds."""
    number = str(value).strip()
    if (is_written or isinstance(value, str)) and not isinstance(value, bool) and number.isascii() and number.isdigit():
        raise ValueError(f"has no unit: write {number}d or {number}h")
    return read_seconds(value)


def read_bytes(value: Any) -> Any:
    """Convert a size as people write it to bytes. Numbers stay as they are."""
    if isinstance(value, bool):
        raise ValueError("must be a size such as 16MiB, 64KiB or 512B")
    return parse_size(value) if isinstance(value, str) else value


MIN_INTERVAL = 0.001
"""Seconds. An interval below a millisecond is a busy loop."""

MAX_INTERVAL = 86400.0
"""Seconds. A longer interval is probably a mistake in the unit."""

MAX_SHUTDOWN_TIMEOUT = 3600.0
"""Seconds. A service manager would kill the daemon long before."""

MAX_SCRUB_INTERVAL = 366 * 86400.0
"""Seconds."""

SCRUB_RATE = 8 << 20
"""Bytes per second: a hundred GiB in four hours, a small part of the bandwidth of a disk or network."""

MIN_SEGMENT_BYTES = 4 << 10
"""Smaller WAL segments would be mostly headers."""

MIN_BUFFER_BYTES = 1 << 20
"""With less, one buffer at a time is in use, as with this."""

_COUNT = re.compile("[0-9]{1,18}")


def _switch(value: Any) -> Any:
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, Expanded) and value.lower() in words:
        return words[value.lower()]
    raise ValueError("must be true or false")


def _count(value: Any) -> Any:
    return int(value) if isinstance(value, Expanded) and _COUNT.fullmatch(value) else value


def _option(value: Any) -> Any:
    of_texts = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    if of_texts or isinstance(value, str | int | float):
        return value
    raise ValueError("must be text, a number, true or false, or a mapping of keys to texts")


def _interval(seconds: float) -> float:
    if not MIN_INTERVAL <= seconds <= MAX_INTERVAL:
        raise ValueError("must be from 1ms to 1d")
    return seconds


def _scrub_interval(seconds: float) -> float:
    if seconds and not 1 <= seconds <= MAX_SCRUB_INTERVAL:
        raise ValueError("must be 0s (off), or from 1s to 366d")
    return seconds


def _rate(size: int) -> int:
    if size < MIN_SEGMENT_BYTES:
        raise ValueError(f"must be at least {MIN_SEGMENT_BYTES >> 10}KiB")
    return size


def _timeout(seconds: float) -> float:
    if not 0 <= seconds <= MAX_SHUTDOWN_TIMEOUT:
        raise ValueError("must be from 0s to 1h")
    return seconds


def _watermark_use(value: Any) -> Any:
    if value in tuple(WatermarkUse):
        return WatermarkUse(value)
    raise ValueError(f"must be {' or '.join(WatermarkUse)}")


def _fencing(value: Any) -> Any:
    if value in tuple(Fencing):
        return Fencing(value)
    raise ValueError(f"must be {' or '.join(Fencing)}")


def _compression(value: Any) -> Any:
    if value not in tuple(Compression):
        *first, last = Compression
        raise ValueError(f"must be {', '.join(first)} or {last}")
    chosen = Compression(value)
    if (problem := chosen.problem()) is not None:
        raise ValueError(problem)
    return chosen


def _segment_bytes(size: int) -> int:
    if not MIN_SEGMENT_BYTES <= size <= MAX_LENGTH_BYTES:
        raise ValueError(f"must be from {MIN_SEGMENT_BYTES >> 10}KiB to {MAX_LENGTH_BYTES >> 20}MiB")
    return size


def _buffer_bytes(size: int) -> int:
    if size < MIN_BUFFER_BYTES:
        raise ValueError(f"must be at least {MIN_BUFFER_BYTES >> 20}MiB")
    return size


def _no_zero_byte(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a zero byte")
    return text


def at_least_one(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return ``entries``. Raises ValueError if there are none."""
    if not entries:
        raise ValueError("must have at least one entry")
    return entries


Text = Annotated[str, FILLED, After(_no_zero_byte)]
Interval = Annotated[float, Before(read_seconds), After(_interval)]
Timeout = Annotated[float, Before(read_seconds), After(_timeout)]
ScrubInterval = Annotated[float, Before(read_seconds), After(_scrub_interval)]
ScrubRate = Annotated[int, Before(read_bytes), After(_rate)]
SegmentBytes = Annotated[int, Before(read_bytes), After(_segment_bytes)]
BufferBytes = Annotated[int, Before(read_bytes), After(_buffer_bytes)]
Count = Annotated[int, AtLeast(1), Before(_count)]
OptionValue = Annotated[str | int | float | bool | dict[str, str], Before(_option)]
WatermarkMode = Annotated[WatermarkUse, Before(_watermark_use)]
CompressionMode = Annotated[Compression, Before(_compression)]
FencingMode = Annotated[Fencing, Before(_fencing)]
Switch = Annotated[bool, Before(_switch)]


MIN_SNAPSHOT_INTERVAL = 1.0
"""Seconds. Snapshots are costly, as each names every log segment again."""

MAX_DAYS = 36500
"""A larger value is probably a mistake in the unit."""


def _snapshot_interval(seconds: float) -> float:
    if not MIN_SNAPSHOT_INTERVAL <= seconds <= MAX_DAYS * 86400:
        raise ValueError(f"must be from 1s to {MAX_DAYS}d")
    return seconds


def _wal_retention(seconds: float) -> float:
    if not GRACE_SECONDS <= seconds <= MAX_DAYS * 86400:
        raise ValueError(f"must be from 1h to {MAX_DAYS}d: readers and owners that were suspended rely on the hour")
    return seconds


def _policy(value: Any) -> Any:
    if value in tuple(SnapshotPolicy):
        return SnapshotPolicy(value)
    raise ValueError(f"must be {' or '.join(SnapshotPolicy)}")


SnapshotInterval = Annotated[float, Before(read_seconds), After(_snapshot_interval)]
SnapshotMode = Annotated[SnapshotPolicy, Before(_policy)]
WalRetention = Annotated[float, Before(read_seconds), After(_wal_retention)]
