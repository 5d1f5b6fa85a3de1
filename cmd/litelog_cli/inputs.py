"""Reads batches of records between two places of a log or a replica."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.units import StartKind, StartPoint
from litelog_cli.arguments import opened_replica
from litelog_cli.logging_setup import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack

    from litelog.config import LogConfig
    from litelog.errors import LitelogError
    from litelog.formats.columns import Columns
    from litelog_cli.configured import ConfiguredReplica

DEFAULT_FORMAT = "litelog"
DEFAULT_ISOLATION = "read_uncommitted"

_LOG_WORDS = {StartKind.BEGINNING: "earliest", StartKind.LAST: "latest", StartKind.END: "end"}


@dataclass(frozen=True, slots=True)
class LogFolder:
    """A log's folder, and how to read it."""

    folder: str
    format: str
    pattern: str | None
    state_dir: str | None
    """The state folder of its daemon; None: the default one."""


@dataclass(frozen=True, slots=True)
class GenerationSource:
    """A generation of a replica, and how to read it."""

    replica: ConfiguredReplica
    name: str | None
    """The first digits of its name; None: the latest one."""
    pattern: str | None


def report_gaps(read: Callable[[], Columns | None], gap: type[LitelogError], event: str) -> Iterator[Columns]:
    """Yield what ``read`` returns, until that is None. Report an error of the type ``gap`` as ``event``, and read on:
    the next call of ``read`` continues after the gap."""
    while True:
        try:
            columns = read()
        except gap as error:
            say(f"litelog: {error}", event, level=logging.WARNING)
            continue
        if columns is None:
            return
        yield columns


def choose_format(log: LogConfig | None, format_name: str | None, pattern: str | None) -> tuple[str, str | None]:
    """A log's format and pattern: from the options, else from its configuration."""
    if log is not None:
        format_name, pattern = format_name or log.format, pattern or log.pattern
    return format_name or DEFAULT_FORMAT, pattern


def require_log(log: LogFolder) -> None:
    """Raise SourceMissingError if the folder holds no log segments of that format. The error names what it holds."""
    from litelog.formats.registry import open_format
    from litelog.log.source import SegmentFolder
    from litelog.system.clock import SystemClock

    SegmentFolder(log.folder, open_format(log.format, log.pattern), SystemClock(), reports=False).require_log()


def log_batches(
    stack: ExitStack,
    log: LogFolder,
    start: StartPoint,
    end: StartPoint | None,
    follow: bool,
    isolation: str = DEFAULT_ISOLATION,
) -> Iterator[Columns]:
    """The records of a log. ``stack`` closes what this opens."""
    from litelog.api.open_replica import is_committed
    from litelog.log.reader import LogReader

    if is_committed(isolation):
        return _committed_batches(stack, log, start, end, follow)
    bounds = reader_bounds(start, end)
    reader = LogReader(log.folder, log.format, pattern=log.pattern, **bounds, follow=follow, state_dir=log.state_dir)
    return stack.enter_context(reader).batches()


def _committed_batches(
    stack: ExitStack, log: LogFolder, start: StartPoint, end: StartPoint | None, follow: bool
) -> Iterator[Columns]:
    """The records of a log, without those of aborted and open transactions."""
    from litelog.formats.committed_reading import CommittedReading
    from litelog.formats.registry import open_format
    from litelog.log.reader import LogReader

    reading = CommittedReading(lambda name: open_format(name, log.pattern))
    log_format = reading.open_format(log.format)
    reader = LogReader(log.folder, log_format, **reader_bounds(start, None), follow=follow, state_dir=log.state_dir)
    bounds = {} if end is None else {"end" if end.kind is StartKind.SEQUENCE else "end_time": end.value}
    batches = stack.enter_context(reader).batches()
    return reading.filtered((columns for columns in batches), **bounds)


def replica_batches(
    stack: ExitStack,
    source: GenerationSource,
    start: StartPoint,
    end: StartPoint | None,
    follow: bool,
    isolation: str = DEFAULT_ISOLATION,
) -> Iterator[Columns]:
    """The records of a replica. ``stack`` closes what this opens."""
    from litelog.api.open_replica import open_replica

    replica, name = source.replica, source.name
    if name is not None:
        from litelog.reading.latest import expand_generation

        with opened_replica(replica.url, replica.options) as client:
            name = expand_generation(name, [client])
    bounds: dict[str, Any] = {**reader_bounds(start, end), "isolation": isolation}
    records = open_replica(replica, **bounds, generation=name, pattern=source.pattern, follow=follow)
    return stack.enter_context(records).batches()


def reader_bounds(start: StartPoint, end: StartPoint | None) -> dict[str, Any]:
    """The arguments of a reader."""
    bounds: dict[str, Any] = {}
    if start.kind is StartKind.TIME:
        bounds["start_time"] = start.value
    else:
        bounds["start"] = _LOG_WORDS.get(start.kind, start.value)
    if end is not None:
        bounds["end" if end.kind is StartKind.SEQUENCE else "end_time"] = end.value
    return bounds
