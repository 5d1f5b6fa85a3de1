"""The bounds of a read, as a caller gives them: a sequence, a word, or a time."""

from __future__ import annotations

import operator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, SupportsIndex

from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.formats.capabilities import has_indexed_times
from litelog.system.clock import SystemClock
from litelog.units import EPOCH, StartKind, parse_start, to_microseconds

if TYPE_CHECKING:
    from litelog.formats import LogFormat
    from litelog.units import Time

Start = Literal["earliest", "latest", "end"]


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """The beginning and the end of a read. Times are in microseconds since 1970."""

    start: int | Start = "earliest"
    start_time: int | None = None
    """Instead of ``start``."""
    end: int | None = None
    end_time: int | None = None

    @classmethod
    def of(
        cls,
        start: SupportsIndex | datetime | str,
        start_time: Time | None,
        end: SupportsIndex | datetime | str | None,
        end_time: Time | None,
    ) -> ReadBounds:
        """Check the bounds that a caller gives. A datetime as ``start`` or ``end`` is a time, and a text is what
        people write: a word for a place, a sequence, a time, or a duration back from now.

        Raises ConfigError for a bound of another type, two starts or two ends, and a datetime without a zone.
        """
        first: SupportsIndex | datetime | Start = _read_text("start", start) if isinstance(start, str) else start
        last: SupportsIndex | datetime | Start | None = _read_text("end", end) if isinstance(end, str) else end
        if isinstance(first, datetime):
            if start_time is not None:
                raise ConfigError("start at one time, not at two")
            start_time = first
            first = "earliest"
        if isinstance(last, datetime):
            if end_time is not None:
                raise ConfigError("end at one time, not at two")
            last, end_time = None, last
        if isinstance(last, str):
            raise ConfigError(f"end is a sequence or a time, not {last!r}")
        return cls(
            _check_start(first, start_time),
            _microseconds("start", start_time),
            None if last is None else _sequence(last, "end is a sequence or an aware datetime"),
            _microseconds("end", end_time),
        )

    def check(self, log_format: LogFormat) -> None:
        """Raise ConfigError if the reader begins or ends at a time, and nothing shows when records were written.

        Timestamps do, and for the beginning index files.
        """
        if log_format.has_timestamps or (has_indexed_times(log_format) and self.end_time is None):
            return
        if self.start_time is not None or self.end_time is not None:
            raise ConfigError(f"the format {log_format.name} has no timestamps to start or end at")


_STARTS: dict[StartKind, Start] = {
    StartKind.BEGINNING: "earliest",
    StartKind.LAST: "latest",
    StartKind.END: "end",
}


def _read_text(name: str, text: str) -> int | datetime | Start:
    """A bound as people write it: a word for a place, a sequence, a time, or a duration back from now."""
    now = EPOCH + timedelta(microseconds=SystemClock().now())
    try:
        point = parse_start("beginning" if text == "earliest" else text, now)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    if point.kind is StartKind.SEQUENCE:
        return point.value
    if point.kind is StartKind.TIME:
        return EPOCH + timedelta(microseconds=point.value)
    return _STARTS[point.kind]


def _check_start(start: SupportsIndex | Start, start_time: Time | None) -> int | Start:
    if not isinstance(start, str):
        start = _sequence(start, "start is a sequence, an aware datetime, earliest, latest or end")
    if (start_time is not None and start != "earliest") or (isinstance(start, int) and start < 0):
        raise ConfigError("start at a sequence from 0 on, or at a time, not both")
    return start


def _sequence(value: SupportsIndex, meant: str) -> int:
    """Convert a sequence to int. Accepts NumPy's integers, but not bool. Raises ConfigError."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise ConfigError(f"{meant}, not {value!r}")


def _microseconds(name: str, time: Time | None) -> int | None:
    if time is None:
        return None
    try:
        return to_microseconds(time)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
