"""The log format of what is read."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from litelog.formats.litelog import LitelogFormat
from litelog.stores.registry import open_stored_format

if TYPE_CHECKING:
    from litelog.formats import Expectation, LogFormat, Scan
    from litelog.formats.columns import Columns


@cache
def open_log_format(name: str, pattern: str | None) -> LogFormat:
    """As ``open_stored_format``; the same one each time: which formats are installed is looked up once in a worker."""
    return open_stored_format(name, pattern)


def scan_columns(
    log_format: LogFormat, name: str, data: memoryview, offset: int, expect: Expectation
) -> tuple[Scan, Columns]:
    """The scan of a run of commits and its records; our own format tells both by one look at the bytes."""
    if isinstance(log_format, LitelogFormat):
        return log_format.scan_columns(name, data, offset, expect)
    return log_format.scan(name, data, offset, expect), log_format.decode(name, data, offset, expect)
