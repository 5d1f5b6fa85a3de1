"""The log format of what is read."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, UnknownFormatError
from litelog.formats.litelog import LitelogFormat
from litelog.registry import open_format

if TYPE_CHECKING:
    from litelog.formats import Expectation, LogFormat, Scan
    from litelog.formats.columns import Columns


@cache
def open_log_format(name: str, pattern: str | None) -> LogFormat:
    """The log format of that name. One that needs a pattern and has none takes every name. ConfigError.

    The same one each time: which formats are installed is looked up once in a worker.
    """
    try:
        return open_format(name, pattern)
    except UnknownFormatError:
        raise
    except ConfigError:
        if pattern is not None:
            raise
        return open_format(name, "*")


def scan_columns(
    log_format: LogFormat, name: str, data: memoryview, offset: int, expect: Expectation
) -> tuple[Scan, Columns]:
    """The scan of a run of commits and its records; our own format tells both by one look at the bytes."""
    if isinstance(log_format, LitelogFormat):
        return log_format.scan_columns(name, data, offset, expect)
    return log_format.scan(name, data, offset, expect), log_format.decode(name, data, offset, expect)
