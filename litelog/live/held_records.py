"""HeldRecords: the first and the last record that a log's folder holds: their sequences and times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import LitelogError
from litelog.formats.capabilities import is_divisible
from litelog.log.reader import LogReader
from litelog.units import format_iso

if TYPE_CHECKING:
    from litelog.formats.columns import Columns
    from litelog.live.served_log import ServedLog
    from litelog.log.read_bounds import Start


@dataclass(frozen=True, slots=True)
class HeldRecords:
    """All are None if the folder holds no record, or cannot be read."""

    first: int | None = None
    """The sequence of the first record."""
    first_time: str | None = None
    """Its timestamp, ISO 8601 in UTC; None if the format has none."""
    last_time: str | None = None
    """The timestamp of the last record."""
    next: int | None = None
    """The sequence after the last record."""


def find_held(served: ServedLog) -> HeldRecords:
    """Return what a log's folder holds. Reads its first and its last records."""
    try:
        first, last = _read(served, "earliest"), _read(served, "latest")
    except LitelogError:  # a log that is damaged has other facts, too
        return HeldRecords()
    if first is None or last is None:
        return HeldRecords()
    length = int(last.value_lengths[-1]) if is_divisible(served.log.source.format) else 1
    following = int(last.sequences[-1]) + length
    return HeldRecords(int(first.sequences[0]), _time_of(first, 0), _time_of(last, -1), following)


def _read(served: ServedLog, start: Start) -> Columns | None:
    """The records at a place; None if there are none."""
    log = served.log
    with LogReader(log.source.folder, log.source.format, start=start, state_dir=log.state_dir) as reader:
        columns = reader.read()
    return columns if columns is not None and len(columns) else None


def _time_of(columns: Columns, number: int) -> str | None:
    return None if columns.timestamps is None else format_iso(int(columns.timestamps[number]))
