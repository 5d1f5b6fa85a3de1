"""Reads batches of records between two places of a log or a replica."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError, NothingToRestoreError
from litelog.formats.registry import open_stored_format
from litelog_cli.arguments import StartKind, StartPoint, expand_generation, opened_replica

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from litelog.config import LogConfig
    from litelog.formats.columns import Columns
    from litelog.objects.position import Generation
    from litelog.stores.replica_client import ReplicaClient
    from litelog_cli.configured import ConfiguredReplica

DEFAULT_FORMAT = "litelog"

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


def choose_format(log: LogConfig | None, format_name: str | None, pattern: str | None) -> tuple[str, str | None]:
    """A log's format and pattern: from the options, else from its configuration."""
    if log is not None:
        format_name, pattern = format_name or log.format, pattern or log.pattern
    return format_name or DEFAULT_FORMAT, pattern


def require_log(log: LogFolder) -> None:
    """Raise SourceMissingError for a folder without log segments of that format, which names what it holds."""
    from litelog.formats.registry import open_format
    from litelog.log.source import SegmentFolder
    from litelog.system.clock import SystemClock

    SegmentFolder(log.folder, open_format(log.format, log.pattern), SystemClock(), reports=False).require_log()


def log_batches(
    stack: ExitStack, log: LogFolder, start: StartPoint, end: StartPoint | None, follow: bool
) -> Iterator[Columns]:
    """The records of a log. ``stack`` closes what this opens."""
    from litelog.formats.registry import open_format
    from litelog.log.reader import LogReader

    bounds: dict[str, Any] = {}
    if start.kind is StartKind.TIME:
        bounds["start_time"] = start.value
    else:
        bounds["start"] = _LOG_WORDS.get(start.kind, start.value)
    if end is not None:
        bounds["end" if end.kind is StartKind.SEQUENCE else "end_time"] = end.value
    log_format = open_format(log.format, log.pattern)
    reader = LogReader(log.folder, log_format, **bounds, follow=follow, state_dir=log.state_dir)
    return stack.enter_context(reader).batches()


def replica_batches(
    stack: ExitStack, source: GenerationSource, start: StartPoint, end: StartPoint | None, follow: bool
) -> Iterator[Columns]:
    """The records of a replica. ``stack`` closes what this opens."""
    from litelog.reading.replica_reader import ReplicaReader

    replica = source.replica
    client = stack.enter_context(opened_replica(replica.url, replica.options))
    name = expand_generation(source.name, [client])
    sequence = start.value if start.kind is StartKind.SEQUENCE else None
    if start.kind in (StartKind.LAST, StartKind.END):
        # A follower waits for a replica that is still empty.
        with suppress(NothingToRestoreError) if follow else nullcontext():
            if (last := _last_commit(client, name, source.pattern)) is not None:
                sequence = last[0] if start.kind is StartKind.LAST else last[1]
    reader = ReplicaReader(
        client,
        generation=name,
        start=sequence,
        start_time=start.value if start.kind is StartKind.TIME else None,
        end=end.value if end is not None and end.kind is StartKind.SEQUENCE else None,
        follow=follow,
        formats=lambda format_name: open_stored_format(format_name, source.pattern),
    )
    batches = stack.enter_context(reader).batches()
    return _until(batches, end.value) if end is not None and end.kind is StartKind.TIME else batches


def _last_commit(client: ReplicaClient, name: Generation | None, pattern: str | None) -> tuple[int, int] | None:
    """The last record's sequence and the next one; None if there is no record. Reads at most a few headers at the end.

    If sequences count bytes, the last record is the one that a reader of the log returns last.
    """
    from litelog.formats.capabilities import is_divisible
    from litelog.log.cursor import PIECE_BYTES
    from litelog.reading.contents import list_pieces
    from litelog.reading.latest import find_claim, open_latest
    from litelog.reading.search import read_header

    pieces = open_latest(client) if name is None else list_pieces(client, find_claim(client, name))
    headers = (read_header(client, info.position) for info in reversed(pieces.wal))
    shipped = ((each.index, each.first, each.offset, each.next) for each in headers)
    sealed = ((each.index, each.first, 0, each.next) for each in reversed(pieces.base.entries))
    runs = chain(shipped, sealed)
    index, first, offset, reached = next((run for run in runs if run[3] is not None), (0, None, 0, None))
    if reached is None:
        return None
    if not is_divisible(open_stored_format(pieces.base.claim.format, pattern)):
        return max(0, reached - 1), reached
    begin = None if first is None else first - offset  # of its file: readers begin there, piece by piece
    while begin is None:
        of, first, offset, after = next(runs, (0, 0, 0, 0))
        if after is not None and after < reached and of != index:
            begin = after  # the bytes between were not shipped as WAL segments
        elif first is not None:
            begin = first - offset
    return begin + max(0, reached - 1 - begin) // PIECE_BYTES * PIECE_BYTES, reached


def _until(batches: Iterator[Columns], time: int) -> Iterator[Columns]:
    for columns in batches:
        if columns.timestamps is None:
            raise ConfigError("the replica's records carry no timestamps to stop at: stop at a sequence")
        late = columns.timestamps >= time
        stop = int(late.argmax()) if late.any() else len(columns)
        if stop:
            yield columns.slice(0, stop)
        if stop < len(columns):
            return
