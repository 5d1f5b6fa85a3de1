"""The types of the configuration's plain values, and their limits."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from litelog.config.document import Expanded
from litelog.config.fields import read_bytes, read_seconds
from litelog.objects.layout import Fencing
from litelog.objects.wal_segment import MAX_LENGTH_BYTES

MIN_INTERVAL = 0.001
"""Seconds. Below a millisecond an interval is a busy loop."""

MAX_INTERVAL = 86400.0
"""Seconds. A replica that is synced less than once a day is a mistake in the unit."""

MAX_SHUTDOWN_TIMEOUT = 3600.0
"""Seconds. Whoever stops the daemon has killed it long before."""

MAX_SCRUB_INTERVAL = 366 * 86400.0
"""Seconds."""

SCRUB_RATE = 8 << 20
"""Bytes a second: a hundred GiB in four hours, a small part of what a disk or a network gives."""

MIN_SEGMENT_BYTES = 4 << 10
"""Smaller WAL segments are mostly headers."""

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
        raise ValueError(f"must be at least {MIN_SEGMENT_BYTES >> 10}KiB (a second)")
    return size


def _timeout(seconds: float) -> float:
    if not 0 <= seconds <= MAX_SHUTDOWN_TIMEOUT:
        raise ValueError("must be from 0s to 1h")
    return seconds


def _fencing(value: Any) -> Any:
    if value in tuple(Fencing):
        return Fencing(value)
    raise ValueError(f"must be {' or '.join(Fencing)}")


def _segment_bytes(size: int) -> int:
    if not MIN_SEGMENT_BYTES <= size <= MAX_LENGTH_BYTES:
        raise ValueError(f"must be from {MIN_SEGMENT_BYTES >> 10}KiB to {MAX_LENGTH_BYTES >> 20}MiB")
    return size


def _no_zero_byte(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a zero byte")
    return text


def at_least_one(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    """``entries``; ValueError where there are none."""
    if not entries:
        raise ValueError("must have at least one entry")
    return entries


Text = Annotated[str, StringConstraints(strict=True, min_length=1), AfterValidator(_no_zero_byte)]
Interval = Annotated[float, BeforeValidator(read_seconds), AfterValidator(_interval)]
Timeout = Annotated[float, BeforeValidator(read_seconds), AfterValidator(_timeout)]
ScrubInterval = Annotated[float, BeforeValidator(read_seconds), AfterValidator(_scrub_interval)]
ScrubRate = Annotated[int, BeforeValidator(read_bytes), AfterValidator(_rate)]
SegmentBytes = Annotated[int, BeforeValidator(read_bytes), AfterValidator(_segment_bytes)]
Count = Annotated[int, BeforeValidator(_count), Field(strict=True, ge=1)]
OptionValue = Annotated[str | int | float | bool | dict[str, str], BeforeValidator(_option)]
FencingMode = Annotated[Fencing, BeforeValidator(_fencing)]
Switch = Annotated[bool, BeforeValidator(_switch)]
