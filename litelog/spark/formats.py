"""The log format of what is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import ConfigError, UnknownFormatError
from litelog.registry import open_format

if TYPE_CHECKING:
    from litelog.formats import LogFormat


def open_log_format(name: str, pattern: str | None) -> LogFormat:
    """The log format of that name. One that needs a pattern and has none takes every name. ConfigError."""
    try:
        return open_format(name, pattern)
    except UnknownFormatError:
        raise
    except ConfigError:
        if pattern is not None:
            raise
        return open_format(name, "*")
