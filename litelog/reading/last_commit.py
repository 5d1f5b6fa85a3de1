"""Finds where a replica's records end, from a few headers at the end."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from litelog.formats.capabilities import is_divisible
from litelog.log.cursor import PIECE_BYTES
from litelog.reading.contents import list_pieces
from litelog.reading.latest import find_claim, open_latest
from litelog.reading.search import read_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.formats import LogFormat
    from litelog.objects.position import Generation
    from litelog.stores.replica_client import ReplicaClient


class RecordsEnd(NamedTuple):
    """The end of a replica's records."""

    last: int
    """The sequence of the last record. If sequences count bytes: that of the last record that a reader returns."""
    next: int
    """The sequence after it."""


def find_end(
    client: ReplicaClient, name: Generation | None, open_format: Callable[[str], LogFormat]
) -> RecordsEnd | None:
    """Find where the records of a generation end. Reads at most a few headers at the end.

    Args:
        client: The replica.
        name: The generation; None for the latest one.
        open_format: Returns a log format by its name.

    Returns:
        The end; None without a record.

    Raises:
        NothingToRestoreError: The replica holds nothing.
        CorruptObjectError, StoreError: A header is damaged, or a request failed.
    """
    pieces = open_latest(client) if name is None else list_pieces(client, find_claim(client, name))
    headers = (read_header(client, info.position) for info in reversed(pieces.wal))
    shipped = ((each.index, each.first, each.offset, each.next) for each in headers)
    sealed = ((each.index, each.first, 0, each.next) for each in reversed(pieces.base.entries))
    runs = chain(shipped, sealed)
    index, first, offset, reached = next((run for run in runs if run[3] is not None), (0, None, 0, None))
    if reached is None:
        return None
    if not is_divisible(open_format(pieces.base.claim.format)):
        return RecordsEnd(max(0, reached - 1), reached)
    begin = None if first is None else first - offset  # of its file: readers cut records from here on
    while begin is None:
        of, first, offset, after = next(runs, (0, 0, 0, 0))
        if after is not None and after < reached and of != index:
            begin = after
        elif first is not None:
            begin = first - offset
    return RecordsEnd(begin + max(0, reached - 1 - begin) // PIECE_BYTES * PIECE_BYTES, reached)
