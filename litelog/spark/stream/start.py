"""Finds where a stream begins in a log that it meets for the first time, and the current end of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import NothingToRestoreError, TruncatedError
from litelog.objects.claim import open_claimed_format
from litelog.objects.position import Position
from litelog.reading.contents import list_pieces
from litelog.reading.latest import open_latest
from litelog.reading.replica_reader import ReplicaReader
from litelog.reading.search import read_header
from litelog.reading.start_search import StartRequest, find_start
from litelog.spark.scan.task import open_log_format
from litelog.spark.stream.steps import LogOffset

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.errors import LitelogError
    from litelog.objects.claim import Claim
    from litelog.reading.contents import GenerationContents
    from litelog.spark.stream.options import StreamStart
    from litelog.stores.replica_client import ReplicaClient


def find_end(client: ReplicaClient) -> LogOffset | None:
    """The offset after the last record of a replica's latest generation; None if it holds no record yet.

    Costs four requests and reading a header.
    """
    pieces = _open(client)
    return None if pieces is None else _end_of(client, pieces)


def find_begin(
    client: ReplicaClient, start: StreamStart, pattern: str | None, lose: Callable[[LitelogError], None]
) -> LogOffset | None:
    """The offset at which a stream begins; None if the log is empty. Calls ``lose`` if it precedes all records."""
    pieces = _open(client)
    if pieces is None:
        return None
    if start.is_latest:
        return _end_of(client, pieces)
    sequence = start.sequence
    if start.time is not None:
        sequence = _sequence_at(client, pieces, start.time, pattern)
        if sequence is None:
            return _end_of(client, pieces)
    if sequence is not None:
        try:
            return LogOffset(_place_of(client, pieces, sequence, pattern), sequence)
        except TruncatedError as error:
            lose(error)
    first = next((entry.first for entry in pieces.base.entries if entry.first is not None), None)
    return LogOffset(pieces.base.first, first)


def find_sequence(client: ReplicaClient, claim: Claim, sequence: int | None) -> Position:
    """The position of a sequence in a generation, or slightly before it. If it was deleted: that of the next record."""
    pieces = list_pieces(client, claim)
    if sequence is None:
        return pieces.base.first
    try:
        return _place_of(client, pieces, sequence, None)
    except TruncatedError:
        return pieces.base.first


def _open(client: ReplicaClient) -> GenerationContents | None:
    try:
        return open_latest(client)
    except NothingToRestoreError:
        return None


def _end_of(client: ReplicaClient, pieces: GenerationContents) -> LogOffset:
    base = pieces.base
    if not pieces.wal:
        return LogOffset(base.start, None if base.snapshot is None else base.link().next)
    header = read_header(client, pieces.wal[-1].position)
    return LogOffset(header.position if header.successor else header.next_slot, header.next)


def _place_of(client: ReplicaClient, pieces: GenerationContents, sequence: int, pattern: str | None) -> Position:
    base = pieces.base
    log_format = open_claimed_format(base.claim, lambda name: open_log_format(name, pattern))
    found = find_start(client, pieces, StartRequest(sequence=sequence), log_format)
    if found.entry is not None:
        return Position(base.first.generation, base.first.index + found.entry, 0)
    return pieces.wal[found.wal].position if pieces.wal else base.start


def _sequence_at(client: ReplicaClient, pieces: GenerationContents, time: int, pattern: str | None) -> int | None:
    """The sequence of the first record with this ``time`` or a later one. Reads the objects that hold it."""
    name = pieces.base.claim.generation
    formats = lambda kind: open_log_format(kind, pattern)  # noqa: E731
    reader = ReplicaReader(client, generation=name, start_time=time, formats=formats)
    with reader:
        first = next(reader.batches(), None)
    return None if first is None else int(first.sequences[0])
