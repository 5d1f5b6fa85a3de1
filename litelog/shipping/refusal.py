"""A refused PUT of a WAL segment: what is in the slot decides whether we are fenced, or put it ourselves."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from litelog import wal_segment
from litelog.errors import DivergedError, FencedError
from litelog.layout import wal_key
from litelog.reading.checked_read import read_checked

if TYPE_CHECKING:
    from litelog.log.follower import Follower
    from litelog.log.place import Run
    from litelog.replica_client import ReplicaClient
    from litelog.shipping.preparation import Prepared
    from litelog.wal_segment import WalSegment


def adopt_own(client: ReplicaClient, follower: Follower, prepared: Prepared) -> tuple[WalSegment, Run]:
    """What is in the slot of ``prepared``, and its run in the log, if it is our own and the log still holds it.

    FencedError for a terminal or another owner's; DivergedError where the log holds other bytes.
    """
    key = wal_key(prepared.header.position)
    there = read_checked(
        lambda: client.read_wal_segment(prepared.header.position), partial(wal_segment.decode_checked, key)
    )
    header = there.header
    if header.successor is not None or header.owner != prepared.header.owner:
        by = f"ended by {header.successor}" if header.successor is not None else f"written by owner {header.owner}"
        raise FencedError(f"{client.url}: generation {header.generation} was {by}; this daemon stops here")
    if header.previous != prepared.header.previous:
        raise DivergedError(key, "the replica holds another chain under this owner's name")
    if header.file != prepared.header.file:
        raise DivergedError(key, f"the replica holds {header.file} under this owner's name")
    run = follower.read_again(prepared.start, header.length, final=header.final)
    if (run.crc, run.end.crc_total) != (header.crc, header.crc_total) or run.data != there.data():
        raise DivergedError(key, "the replica holds other bytes under this owner's name")
    return there, run
