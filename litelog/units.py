"""Sizes, durations and times: how people write them, and how they are written for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import Enum

from litelog.dataclass import dataclass

Time = int | datetime
"""A point in time as callers give it: microseconds since 1970, or an aware datetime."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

MICROSECONDS = 1_000_000
"""Microseconds in a second."""

_SIZE_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
    "K": 1 << 10,
    "M": 1 << 20,
    "G": 1 << 30,
    "T": 1 << 40,
}
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

# The number of digits is limited, so that each number can be represented exactly.
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"
_SIZE = re.compile(rf"({_NUMBER}) ?([KMGT]i?B|[KMGT]|B)", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]{1,18}")
_PLAIN = re.compile(_NUMBER)
_DURATION = re.compile(rf"(?:{_NUMBER}(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(rf"({_NUMBER})(ms|s|m|h|d)")


def parse_size(text: str) -> int:
    """Parse a size, in bytes: ``64MiB``, ``64M`` (the same), ``1.5 GiB``, ``10kB``, ``512``. Raises ValueError."""
    if _DIGITS.fullmatch(text.strip()):
        return int(text)
    match = _SIZE.fullmatch(text.strip())
    unit = _SIZE_UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise ValueError("must be a size such as 16MiB, 64KiB or 512B")
    size = float(match[1]) * unit
    if not size.is_integer():
        raise ValueError("must be a whole number of bytes")
    return int(size)


def parse_duration(text: str) -> float:
    """Parse a duration, in seconds: ``10s``, ``1m30s``, ``500ms``, ``10``. Raises ValueError; its message does not
    repeat ``text``."""
    if _PLAIN.fullmatch(text.strip()):
        return float(text)
    if not _DURATION.fullmatch(text.strip()):
        raise ValueError("must be a duration such as 10s, 1m30s or 500ms")
    parts = _DURATION_PART.findall(text)
    return sum(float(number) * _DURATION_UNITS[unit] for number, unit in parts)


def format_size(size: int) -> str:
    """``size`` bytes for people: ``17 B``, ``1.5 MiB``."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def format_count(number: int, noun: str, plural: str = "") -> str:
    """``number`` things for people: ``1 file``, ``12,345 records``. ``plural``: if it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def format_duration(seconds: float) -> str:
    """``seconds`` for people: ``12ms``, ``1.5s``, ``2m05s``, ``3h20m``, ``4d06h``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02}m"
    return f"{hours // 24}d{hours % 24:02}h"


def to_microseconds(time: Time) -> int:
    """Microseconds since 1970. Raises ValueError for a datetime without a zone, which means another time on each
    machine."""
    if not isinstance(time, datetime):
        return time
    if time.utcoffset() is None:
        raise ValueError(f"{time!r} has no time zone: write datetime.now(UTC), or time.astimezone() for local time")
    return (time - EPOCH) // timedelta(microseconds=1)


def format_iso(microseconds: int) -> str:
    """Microseconds since 1970 as ISO 8601 in UTC; the number of microseconds if no calendar holds the time."""
    try:
        moment = EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds}us"
    return moment.isoformat(timespec="microseconds" if microseconds % 1_000_000 else "seconds").replace("+00:00", "Z")


def format_second(microseconds: int) -> str:
    """Microseconds since 1970 for people: as ``format_iso``, to the second, with a space."""
    return format_iso(microseconds // 1_000_000 * 1_000_000).replace("T", " ")


MAX_WRITTEN_SEQUENCE = (1 << 64) - 1
"""The highest sequence that people may write."""


class StartKind(Enum):
    """How a start is given."""

    BEGINNING = "beginning"
    LAST = "last"
    """The last existing record."""
    END = "end"
    """After the last existing record."""
    SEQUENCE = "sequence"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class StartPoint:
    """A place in a log. ``value`` is a sequence, or microseconds since 1970."""

    kind: StartKind
    value: int = 0


_START_WORDS = {
    **dict.fromkeys(("beginning", "first", "oldest", "start"), StartKind.BEGINNING),
    **dict.fromkeys(("last", "latest"), StartKind.LAST),
    **dict.fromkeys(("end", "now"), StartKind.END),
}
_CALENDAR_UNITS = {
    **dict.fromkeys(("y", "year", "years"), "years"),
    **dict.fromkeys(("mon", "month", "months"), "months"),
    **dict.fromkeys(("w", "week", "weeks"), "weeks"),
    **dict.fromkeys(("d", "day", "days"), "days"),
    **dict.fromkeys(("h", "hour", "hours"), "hours"),
    **dict.fromkeys(("m", "min", "minute", "minutes"), "minutes"),
    **dict.fromkeys(("s", "sec", "second", "seconds"), "seconds"),
}
_CALENDAR_PART = re.compile(r"([0-9]{1,9}) ?([a-z]+) ?")
_START_EXPECTED = (
    "expected beginning, latest, end, a sequence, a duration back from now (10s, 1day, 2month3days) "
    "or an ISO time (2026-11-21T10:00:00Z)"
)


def parse_start(text: str, now: datetime) -> StartPoint:
    """Parse a start: a word, a sequence, a time, or a duration back from ``now``. Raises ValueError.

    A time without a zone is in UTC.
    """
    word = text.strip().lower()
    if word in _START_WORDS:
        return StartPoint(_START_WORDS[word])
    if word.isascii() and word.isdigit():
        if len(word) > 20 or int(word) > MAX_WRITTEN_SEQUENCE:
            raise ValueError(f"{text}: larger than any sequence")
        return StartPoint(StartKind.SEQUENCE, int(word))
    moment = _back_from(word, now) or _iso_time(text.strip())
    if moment is None:
        raise ValueError(f"{text!r} is not a place in a log: {_START_EXPECTED}")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return StartPoint(StartKind.TIME, to_microseconds(moment))


def _back_from(word: str, now: datetime) -> datetime | None:
    """``now`` minus a duration, by the calendar: a month before 31 March is the last day of February."""
    amounts: dict[str, int] = {}
    at = 0
    while at < len(word):
        part = _CALENDAR_PART.match(word, at)
        unit = _CALENDAR_UNITS.get(part[2]) if part else None
        if part is None or unit is None:
            return None
        amounts[unit] = amounts.get(unit, 0) + int(part[1])
        at = part.end()
    if not amounts:
        return None
    try:
        months = 12 * amounts.pop("years", 0) + amounts.pop("months", 0)
        return _months_before(now, months) - timedelta(**amounts)
    except (OverflowError, ValueError):
        raise ValueError(f"{word!r} reaches back before the year 1") from None


def _months_before(now: datetime, months: int) -> datetime:
    from calendar import monthrange  # noqa: PLC0415 - few commands are given such a time

    year, month = divmod(12 * now.year + now.month - 1 - months, 12)
    return now.replace(year=year, month=month + 1, day=min(now.day, monthrange(year, month + 1)[1]))


def _iso_time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
