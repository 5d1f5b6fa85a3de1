"""Planning the log in a local folder: by its log segments, where their names say what they hold."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, TruncatedError
from litelog.formats.litelog import LitelogFormat, sequence_of
from litelog.log.reader import LogReader
from litelog.log.source import SegmentNames
from litelog.spark.scan.packing import Item, LocalItem
from litelog.spark.scan.partitions import LocalPiece
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from litelog.formats import LogFormat
    from litelog.spark.scan.partitions import PlannedLog


def local_items(log: PlannedLog, folder: str, log_format: LogFormat) -> list[Item]:
    """The log segments that hold any of what is wanted, up to the log's end as it is now.

    One item for all of them where names do not tell their sequences: those are counted from the first one on.
    """
    if log.range.has_times and not log_format.has_timestamps:
        raise ConfigError(f"{folder}: the format {log_format.name} has no timestamps to start or end at")
    names = SegmentNames(folder, log_format, SystemClock(), reports=False).all()
    sizes = {name: _size(os.path.join(folder, name)) for name in names}
    wanted = log.range
    if not isinstance(log_format, LitelogFormat):
        return [LocalItem(log, LocalPiece(wanted.first, wanted.stop), sum(sizes.values()))] if names else []
    end = _find_end(folder, log_format)
    if end is None:
        return []
    firsts = [sequence_of(name) or 0 for name in names]
    items: list[Item] = []
    if wanted.start is not None and wanted.start < firsts[0] and log.fail_on_data_loss:
        raise TruncatedError(wanted.start, firsts[0])
    for name, first, behind in zip(names, firsts, [*firsts[1:], end], strict=True):
        piece = LocalPiece(max(first, wanted.first or 0), min(behind, end if wanted.stop is None else wanted.stop, end))
        if piece.first < piece.stop:  # type: ignore[operator]
            items.append(LocalItem(log, piece, sizes[name]))
    return items


def _find_end(folder: str, log_format: LogFormat) -> int | None:
    """The sequence behind the last record; None if there is none."""
    with LogReader(folder, log_format, start="end") as reader:
        while reader.read() is not None:
            pass  # appended since
        return reader.next_sequence


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
