"""Sets up log lines: text for people and for the journal, JSON for collectors; one line for each event."""

from __future__ import annotations

import logging
import os
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from litelog.events import NAMED, fields
from litelog_cli.output import echo, escape, escape_json

if TYPE_CHECKING:
    from collections.abc import Mapping

_logger = logging.getLogger(__name__)

LEVELS = ("debug", "info", "warning", "error")

_RENAMED = {"levelname": "level", "name": "logger"}
_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (logging.NOTSET, 7))
"""The journal's levels, which are syslog's: err, warning, info, debug."""


class LogLineFormat(StrEnum):
    """The format of log lines."""

    AUTO = "auto"
    """JSON for a daemon whose standard error is a file or a pipe; otherwise text."""
    TEXT = "text"
    JSON = "json"


def set_up_logging(level: int, chosen: LogLineFormat = LogLineFormat.AUTO, *, daemon: bool = False) -> LogLineFormat:
    """Log to standard error from now on. Returns the format that was chosen.

    ``daemon``: whether this is a daemon, whose lines a program collects if there is no terminal.
    """
    journal = is_journal(os.environ)
    asked = chosen is LogLineFormat.JSON
    if chosen is LogLineFormat.AUTO:
        chosen = LogLineFormat.JSON if daemon and not journal and not _is_terminal() else LogLineFormat.TEXT
    handler = _Lines(chosen, asked=asked)
    handler.setFormatter(_json_lines() if chosen is LogLineFormat.JSON else _JournalLine() if journal else _TextLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    return chosen


def logs_json() -> bool:
    """Whether all output on standard error must be JSON."""
    return any(
        isinstance(handler, _Lines) and handler.chosen is LogLineFormat.JSON for handler in logging.root.handlers
    )


def asks_json() -> bool:
    """Whether the user asked for JSON lines. If so, errors before a daemon's start are JSON as well."""
    return any(isinstance(handler, _Lines) and handler.asked for handler in logging.root.handlers)


def say(
    text: str,
    event: str,
    *,
    level: int = logging.INFO,
    trace: bool = False,
    log: str | None = None,
    replica: str | None = None,
    position: object = None,
    **more: str | int | float | bool | None,
) -> None:
    """Report to people on standard error, or to collectors as an event with its fields (see ``fields``)."""
    if logs_json():
        extra = fields(event, log=log, replica=replica, position=position, **more)
        _logger.log(level, "%s", text.removeprefix("litelog: "), exc_info=trace, extra=extra)
    else:
        echo(text, err=True)


def is_journal(environment: Mapping[str, str]) -> bool:
    """Whether standard error goes directly to systemd's journal, which adds its own times."""
    device, _, inode = environment.get("JOURNAL_STREAM", "").partition(":")
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return bool(device) and (device, inode) == (str(status.st_dev), str(status.st_ino))


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _one_line(text: str) -> str:
    return escape(text.replace("\r", "").replace("\n", " | "))


def _utc(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


class _Lines(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard error."""

    def __init__(self, chosen: LogLineFormat, *, asked: bool) -> None:
        logging.Handler.__init__(self)
        self.chosen = chosen
        self.asked = asked

    @property
    def stream(self) -> Any:
        """Looked up each time: a progress bar replaces it while it is drawn."""
        return sys.stderr


class _TextLine(logging.Formatter):
    """Time in UTC, level and message; then in brackets the log and replica, unless the message names them."""

    def __init__(self, form: str = "%(asctime)s %(levelname)s %(message)s") -> None:
        super().__init__(form)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802, ARG002
        return _utc(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        where = ((name, getattr(record, name, None)) for name in NAMED)
        unsaid = [f"{name}={value}" for name, value in where if value is not None and str(value) not in record.message]
        return super().formatMessage(record) + (f" [{' '.join(unsaid)}]" if unsaid else "")

    def format(self, record: logging.LogRecord) -> str:
        return _one_line(super().format(record))


class _JournalLine(_TextLine):
    """A line that begins with its priority for the journal."""

    def __init__(self) -> None:
        super().__init__("%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        priority = next(number for level, number in _PRIORITIES if record.levelno >= level)
        return f"<{priority}>{super().format(record)}"


def _json_lines() -> logging.Formatter:
    """JSON lines: time, level, logger, message, and the event's fields."""
    from pythonjsonlogger.json import JsonFormatter

    class Lines(JsonFormatter):
        def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802, ARG002
            return _utc(record)

        def format(self, record: logging.LogRecord) -> str:
            return escape_json(super().format(record))

    names = "%(asctime)s %(levelname)s %(name)s %(message)s"
    return Lines(names, rename_fields={**_RENAMED, "asctime": "time"}, json_ensure_ascii=False)
