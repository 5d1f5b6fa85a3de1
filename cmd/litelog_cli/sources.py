"""Batches of records between two places of a log or a replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog_cli.places import open_stored_format, opened_replica
from litelog_cli.start import Kind, Start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from litelog.formats.columns import Columns
    from litelog.position import Generation
    from litelog.replica_client import ReplicaClient
    from litelog.wal_segment import WalHeader

_LOG_WORDS = {Kind.BEGINNING: "earliest", Kind.LAST: "latest", Kind.END: "end"}


def log_batches(
    stack: ExitStack, folder: str, format_name: str, pattern: str | None, start: Start, end: Start | None, follow: bool
) -> Iterator[Columns]:
    """The records of the log in ``folder``. What is opened is closed by ``stack``."""
    from litelog.log.reader import LogReader
    from litelog.registry import open_format

    bounds: dict[str, Any] = {}
    if start.kind is Kind.TIME:
        bounds["start_time"] = start.value
    else:
        bounds["start"] = _LOG_WORDS.get(start.kind, start.value)
    if end is not None:
        bounds["end" if end.kind is Kind.SEQUENCE else "end_time"] = end.value
    log_format = open_format(format_name, pattern)
    return stack.enter_context(LogReader(folder, log_format, **bounds, follow=follow)).batches()


def replica_batches(
    stack: ExitStack,
    url: str,
    name: Generation | None,
    pattern: str | None,
    start: Start,
    end: Start | None,
    follow: bool,
) -> Iterator[Columns]:
    """The records of the replica at ``url``. What is opened is closed by ``stack``."""
    from litelog.journal import ReplicaReader

    client = stack.enter_context(opened_replica(url))
    sequence = start.value if start.kind is Kind.SEQUENCE else None
    last = _last_data(client, name) if start.kind in (Kind.LAST, Kind.END) else None
    if last is not None:
        sequence = last.first if start.kind is Kind.LAST else last.next
    reader = ReplicaReader(
        client,
        generation=name,
        start=sequence,
        start_time=start.value if start.kind is Kind.TIME else None,
        follow=follow,
        formats=lambda format_name: open_stored_format(format_name, pattern),
    )
    batches = stack.enter_context(reader).batches()
    if last is not None and start.kind is Kind.LAST:
        batches = _from_last(batches)
    return batches if end is None else _until(batches, end)


def _last_data(client: ReplicaClient, name: Generation | None) -> WalHeader | None:
    """The header of the last WAL segment that holds records; None if there is none."""
    from litelog.position import generation
    from litelog.reading.generation_choice import find_claim, find_latest
    from litelog.reading.wal_search import read_header

    claim = find_latest(client) if name is None else find_claim(client, name)
    positions = [info.position for info in client.wal_segments(generation(claim.generation))]
    headers = (read_header(client, position) for position in reversed(positions))
    return next((header for header in headers if header.records), None)


def _from_last(batches: Iterator[Columns]) -> Iterator[Columns]:
    """The first batch's last record, and all that follows."""
    for number, columns in enumerate(batches):
        yield columns if number else columns.slice(len(columns) - 1, len(columns))


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
