"""The pieces of a generation: the sealed segments that its base names, and the WAL segments behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, LitelogError, ReplicaGapError
from litelog.objects.layout import snapshot_key
from litelog.objects.position import Position, generation
from litelog.reading.beginning import never_began
from litelog.reading.contents import LISTINGS, Base, list_generation, read_base
from litelog.reading.search import read_header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.claim import Claim
    from litelog.reading.contents import Listing
    from litelog.stores.replica_client import ReplicaClient, WalSegmentInfo


@dataclass(frozen=True, slots=True)
class Pieces:
    """What a generation holds, from its base on."""

    base: Base
    """``base.entries`` are the log segments that are read from sealed segments."""
    wal: tuple[WalSegmentInfo, ...]
    """The WAL segments from ``base.start`` on, in order."""
    before: WalSegmentInfo | None
    """The last WAL segment before ``base.start``, where it is still there: it ends the index before."""
    gap: LitelogError | None
    """The first hole that names show at every listing: ReplicaGapError, or, where the newest snapshot is damaged and
    what is missing was covered by it, its CorruptObjectError."""
    began: bool = True
    """False where it was ended before it began (``beginning``): then it holds nothing, whatever else is there."""


def list_pieces(client: ReplicaClient, claim: Claim, listing: Listing | None = None) -> Pieces:
    """The pieces of a generation: a listing and a GET, made again where something is missing.

    Of a generation that never began that is its terminal, and no snapshot. A ranged GET more where there is one WAL
    segment, and no snapshot after the first one. ``listing``: one that was just made. Raises as ``read_base``.
    """
    name = generation(claim.generation)
    for attempt in range(LISTINGS):
        if attempt or listing is None or not listing.whole:
            listing = list_generation(client, name)
        if listing.snapshots in ((), (claim.first,)) and _shows_no_beginning(client, claim, listing.wal):
            return Pieces(Base(claim, None, ""), listing.wal, None, None, began=False)
        try:
            base = read_base(client, claim, listing.snapshots)
        except ReplicaGapError:
            if attempt == LISTINGS - 1:
                raise
            continue
        found: Sequence[WalSegmentInfo] = listing.wal
        if base.damage is not None:  # it may have been listed from the newest snapshot on
            found = list(client.wal_segments(name, base.start))
        number = next((number for number, info in enumerate(found) if info.position >= base.start), len(found))
        wal, before = tuple(found[number:]), found[number - 1] if number else None
        gap = missing_snapshot(base, wal) or missing_piece(base.start, wal)
        if gap is None:
            return Pieces(base, wal, before, None)
    return Pieces(base, wal, before, base.damage or gap)


def _shows_no_beginning(client: ReplicaClient, claim: Claim, wal: Sequence[WalSegmentInfo]) -> bool:
    """Whether the only WAL segment is a terminal that shows that the generation never began. A damaged or
    missing terminal shows nothing here: the reader of that object reports it."""
    if len(wal) != 1 or wal[0].position != Position(generation(claim.generation), claim.first, 0):
        return False
    try:
        return never_began(claim.first, read_header(client, wal[0].position))
    except CorruptionError:
        return False


def missing_snapshot(base: Base, wal: Sequence[WalSegmentInfo]) -> ReplicaGapError | None:
    """The gap where a generation has WAL segments and no snapshot: it is written before all but a terminal."""
    if base.snapshot is not None or not wal or wal[-1].position == base.start:
        return None
    key = snapshot_key(generation(base.claim.generation), base.claim.first)
    return ReplicaGapError(key, str(wal[0].position))


def missing_piece(start: Position, wal: Sequence[WalSegmentInfo]) -> ReplicaGapError | None:
    """The first hole that names alone show: indexes without holes from ``start`` on, each from offset 0 on."""
    index = start.index - 1
    for number, piece in enumerate(wal):
        at = piece.position
        if at.index == index and number:
            continue
        index += 1
        if (at.index, at.offset) != (index, 0):
            return ReplicaGapError(str(Position(at.generation, index, 0)), str(at))
    return None
