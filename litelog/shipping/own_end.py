"""Finds where an owner's generation ended if its newest WAL segment cannot be read any more. The owner's state knows.

The header of a WAL segment says where the next one goes. If the newest one's header is damaged, the replica no longer
says which of two slots is the next one. The generation's own owner has that slot in its state, and the place in the log
that the slot stands for. With these it ends the generation, and continues it in a new one.

Specified in litelog/shipping/README.md#objects-that-a-store-loses.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.errors import CorruptObjectError, UnknownVersionError
from litelog.log.identity import ShippedEnd, find_checksum
from litelog.objects import wal_segment
from litelog.objects.position import Position
from litelog.objects.wal_segment import WalHeader
from litelog.reading.generations import GenerationEnd, find_tip, read_forward
from litelog.reading.latest import GenerationRange
from litelog.shipping.state import OwnEnd

if TYPE_CHECKING:
    from litelog.log.source_position import SourcePosition
    from litelog.objects.claim import Claim
    from litelog.shipping.context import ReplicaContext
    from litelog.shipping.state import Running
    from litelog.stores.replica_client import ReplicaClient


def find_own_end(context: ReplicaContext, state: Running) -> OwnEnd | None:
    """Return where the generation of ``state`` ended, if its newest WAL segment cannot be read; else None.

    StoreError, SourceError.
    """
    client = context.client
    try:
        find_tip(client, state.claim)
    except (CorruptObjectError, UnknownVersionError):
        end = _find_shipped(context, state.place)
    else:
        return None
    if end is None and state.base:  # nothing shows which log segment has which index
        return None
    name = state.claim.generation
    slot, digest = Position(name, state.place.index, state.place.offset), state.digest
    later = deque(client.wal_segments(name, slot), maxlen=1)  # this owner put it after it saved the state
    if later:
        at = later[0].position
        slot = Position(name, at.index, at.offset + 1)  # its length is unknown, and no longer matters
        digest = wal_segment.digest([client.read_wal_segment(at)])
    return OwnEnd(slot, digest, state.shipped, state.place.sequence, end)


def is_end_of(ended: OwnEnd | None, claim: Claim) -> bool:
    """Whether ``ended`` describes the generation of that claim."""
    return ended is not None and ended.slot.generation == claim.generation


def read_own_tip(client: ReplicaClient, claim: Claim, ended: OwnEnd) -> GenerationEnd:
    """Return how far the generation that ``ended`` describes has come: to its slot, or past the terminal in it."""
    return read_forward(client, GenerationEnd(ended.slot, _reconstruct(claim, ended), ended.digest))


def extent_of(claim: Claim, tip: GenerationEnd) -> GenerationRange:
    """Return what readers of the generation would find if they could read its newest WAL segment."""
    start = Position(tip.slot.generation, claim.first, 0)
    successor = tip.terminal.successor if tip.terminal is not None else None
    return GenerationRange(start, tip.slot, successor, last=tip.terminal)


def _find_shipped(context: ReplicaContext, place: SourcePosition) -> ShippedEnd | None:
    """Return the end of the last bytes that the owner shipped, from the position after them; None if it shipped
    none."""
    if place.offset:
        checked = (place.check_start, place.check_digest)
        return ShippedEnd(place.file, place.index, place.offset, place.crc_total, *checked, final=False)
    if place.behind_end is None:
        return None
    # The state has a digest of the last bytes, but no CRC-32C of all bytes: that is computed from the log.
    source = context.source
    crc = find_checksum(source.folder, source.format, context.clock, place.behind, place.behind_end)
    checked = (place.behind_start, place.behind_digest)
    return ShippedEnd(place.behind, place.index - 1, place.behind_end, crc, *checked, final=True)


def _reconstruct(claim: Claim, ended: OwnEnd) -> WalHeader | None:
    """Return a header that stands in for the unreadable one of the newest WAL segment."""
    end = ended.end
    if end is None:
        return None
    return replace(
        WalHeader.of(claim, end.index, end.end, previous=ended.digest, shipped=ended.shipped),
        file=end.file,
        next=ended.sequence,
        crc_total=end.crc_total,
        final=end.final,
        check_start=end.check_start,
        check_digest=end.check_digest,
    )
