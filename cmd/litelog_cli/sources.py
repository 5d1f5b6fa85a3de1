"""Batches of records between two places of a log or a replica."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from litelog.registry import open_stored_format
from litelog_cli.places import opened_replica
from litelog_cli.start import Kind, Start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from litelog.formats.columns import Columns
    from litelog.position import Generation
    from litelog.replica_client import ReplicaClient
    from litelog_cli.configured import Replica

_LOG_WORDS = {Kind.BEGINNING: "earliest", Kind.LAST: "latest", Kind.END: "end"}


@dataclass(frozen=True, slots=True)
class LocalLog:
    """A log's folder, and how it is read."""

    folder: str
    format: str
    pattern: str | None
    state_dir: str | None
    """Where its daemon keeps its state; None: where daemons do if nobody says."""


def log_batches(stack: ExitStack, log: LocalLog, start: Start, end: Start | None, follow: bool) -> Iterator[Columns]:
    """The records of a log. What is opened is closed by ``stack``."""
    from litelog.log.reader import LogReader
    from litelog.registry import open_format

    bounds: dict[str, Any] = {}
    if start.kind is Kind.TIME:
        bounds["start_time"] = start.value
    else:
        bounds["start"] = _LOG_WORDS.get(start.kind, start.value)
    if end is not None:
        bounds["end" if end.kind is Kind.SEQUENCE else "end_time"] = end.value
    log_format = open_format(log.format, log.pattern)
    reader = LogReader(log.folder, log_format, **bounds, follow=follow, state_dir=log.state_dir)
    return stack.enter_context(reader).batches()


def replica_batches(
    stack: ExitStack,
    replica: Replica,
    name: Generation | None,
    pattern: str | None,
    start: Start,
    end: Start | None,
    follow: bool,
) -> Iterator[Columns]:
    """The records of a replica. What is opened is closed by ``stack``."""
    from litelog.reading.replica_reader import ReplicaReader

    client = stack.enter_context(opened_replica(replica.url, replica.options))
    sequence = start.value if start.kind is Kind.SEQUENCE else None
    if start.kind in (Kind.LAST, Kind.END) and (reached := _next_sequence(client, name)) is not None:
        sequence = max(0, reached - 1) if start.kind is Kind.LAST else reached
    reader = ReplicaReader(
        client,
        generation=name,
        start=sequence,
        start_time=start.value if start.kind is Kind.TIME else None,
        follow=follow,
        formats=lambda format_name: open_stored_format(format_name, pattern),
    )
    batches = stack.enter_context(reader).batches()
    return batches if end is None else _until(batches, end)


def _next_sequence(client: ReplicaClient, name: Generation | None) -> int | None:
    """The sequence behind the last record; None if there is none. A few headers at most, at the end."""
    from litelog.reading.generation_choice import find_claim, open_latest
    from litelog.reading.pieces import list_pieces
    from litelog.reading.wal_search import read_header

    pieces = open_latest(client) if name is None else list_pieces(client, find_claim(client, name))
    headers = (read_header(client, info.position) for info in reversed(pieces.wal))
    reached = next((header.next for header in headers if header.next is not None), None)
    if reached is None:
        reached = next((entry.next for entry in reversed(pieces.base.entries) if entry.next is not None), None)
    return reached


def _until(batches: Iterator[Columns], end: Start) -> Iterator[Columns]:
    for columns in batches:
        if end.kind is Kind.SEQUENCE:
            stop = columns.find(end.value)
        elif columns.timestamps is None:
            stop = len(columns)
        else:
            late = columns.timestamps >= end.value
            stop = int(late.argmax()) if late.any() else len(columns)
        if stop:
            yield columns.slice(0, stop)
        if stop < len(columns) or (end.kind is Kind.SEQUENCE and int(columns.sequences[-1]) + 1 >= end.value):
            return
