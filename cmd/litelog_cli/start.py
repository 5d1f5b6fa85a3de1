"""Start strings: where in a log to begin, as people say it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from litelog.errors import ConfigError

MAX_SEQUENCE = (1 << 64) - 1


class Kind(Enum):
    """What a start is told by."""

    BEGINNING = "beginning"
    LAST = "last"
    """The last record that is there."""
    END = "end"
    """Behind the last record that is there."""
    SEQUENCE = "sequence"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """A place in a log. ``value`` is a sequence, or microseconds since 1970."""

    kind: Kind
    value: int = 0


_WORDS = {
    **dict.fromkeys(("beginning", "first", "oldest", "start"), Kind.BEGINNING),
    **dict.fromkeys(("last", "latest"), Kind.LAST),
    **dict.fromkeys(("end", "now"), Kind.END),
}
_UNITS = {
    **dict.fromkeys(("y", "year", "years"), "years"),
    **dict.fromkeys(("mon", "month", "months"), "months"),
    **dict.fromkeys(("w", "week", "weeks"), "weeks"),
    **dict.fromkeys(("d", "day", "days"), "days"),
    **dict.fromkeys(("h", "hour", "hours"), "hours"),
    **dict.fromkeys(("m", "min", "minute", "minutes"), "minutes"),
    **dict.fromkeys(("s", "sec", "second", "seconds"), "seconds"),
}
_PART = re.compile(r"([0-9]{1,9}) ?([a-z]+) ?")
_EXPECTED = (
    "expected beginning, latest, end, a sequence, a duration back from now (10s, 1day, 2month3days) "
    "or an ISO time (2026-11-21T10:00:00Z)"
)


def parse_start(text: str, now: datetime) -> Start:
    """Where ``text`` says to start; ``now`` is what durations go back from. ConfigError if it says nothing.

    A time without a zone is in UTC.
    """
    word = text.strip().lower()
    if word in _WORDS:
        return Start(_WORDS[word])
    if word.isascii() and word.isdigit():
        if len(word) > 20 or int(word) > MAX_SEQUENCE:
            raise ConfigError(f"{text}: larger than any sequence")
        return Start(Kind.SEQUENCE, int(word))
    moment = _back_from(word, now) or _iso_time(text.strip())
    if moment is None:
        raise ConfigError(f"{text!r} is no place in a log: {_EXPECTED}")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return Start(Kind.TIME, (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds)


def _back_from(word: str, now: datetime) -> datetime | None:
    """``now`` less a duration, by the calendar: a month back from 31 March is the last day of February."""
    from dateutil.relativedelta import relativedelta

    amounts: dict[str, int] = {}
    at = 0
    while at < len(word):
        part = _PART.match(word, at)
        unit = _UNITS.get(part[2]) if part else None
        if part is None or unit is None:
            return None
        amounts[unit] = amounts.get(unit, 0) + int(part[1])
        at = part.end()
    if not amounts:
        return None
    try:
        return now - relativedelta(**amounts)  # type: ignore[arg-type]
    except (OverflowError, ValueError):
        raise ConfigError(f"{word!r} goes back before the year 1") from None


def _iso_time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
