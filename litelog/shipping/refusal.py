"""A refused PUT of a WAL segment: what is in the slot decides whether we are fenced, or put it ourselves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import DivergedError, FencedError
from litelog.objects import wal_segment
from litelog.objects.layout import wal_key
from litelog.reading.fetch import read_checked
from litelog.reading.wal_cursor import describe_sealed
from litelog.shipping.finished_segments import UnfitError, holds

if TYPE_CHECKING:
    from litelog.log.follower import Follower
    from litelog.log.source_position import Place
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalSegment
    from litelog.shipping.finished_segments import FinishedFiles
    from litelog.shipping.wal_encoder import Prepared
    from litelog.stores.replica_client import ReplicaClient


@dataclass(frozen=True, slots=True)
class Adopted:
    """A WAL segment of our own that is in its slot already."""

    there: WalSegment
    after: Place
    """Where the log is read on behind it."""
    sealed: SnapshotEntry | None
    """The sealed segment that it stands for, if it does."""


def adopt_own(client: ReplicaClient, follower: Follower, files: FinishedFiles, prepared: Prepared) -> Adopted:
    """What is in the slot of ``prepared``, if it is our own and the log still holds it. It may stand for a sealed
    segment where ``prepared`` does not, and the other way round: an earlier run put it.

    FencedError for a terminal or another owner's; DivergedError where the log holds other bytes; SourceMissingError
    where there is no log any more.
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
    if header.sealed is not None:
        entry = describe_sealed(client, header)
        return Adopted(there, _place_behind(files, follower, entry, key), entry)
    run = follower.read_again(prepared.start, header.length, final=header.final)
    if (run.crc, run.end.crc_total) != (header.crc, header.crc_total) or run.data != there.data():
        raise DivergedError(key, "the replica holds other bytes under this owner's name")
    return Adopted(there, run.after, None)


def _place_behind(files: FinishedFiles, follower: Follower, entry: SnapshotEntry, key: str) -> Place:
    """Where a log is read on behind a log segment whose sealed segment is there. Errors as ``adopt_own`` has them."""
    try:
        with files.open(entry.file) as opened:
            if holds(opened, entry.length, entry.digest):
                return files.place_behind(entry)
    except (FileNotFoundError, UnfitError):
        follower.require_segment(entry.file)
    raise DivergedError(key, "the replica holds other bytes under this owner's name")
