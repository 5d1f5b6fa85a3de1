"""Brings a state up to date that is older than the replica (a restored backup, a crash), from its owner's objects.

Specified in litelog/shipping/README.md#changes-to-the-source-that-begin-a-new-generation.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, NotFoundError, UnknownVersionError
from litelog.formats import FinishedTail
from litelog.log.source_position import SourcePosition, make_run
from litelog.objects import wal_segment
from litelog.objects.layout import wal_key
from litelog.objects.position import Position
from litelog.reading.contents import list_generation, read_snapshot
from litelog.reading.fetch import read_verified
from litelog.reading.wal_cursor import describe_sealed
from litelog.shipping.finished_segments import FinishedSegments, NotSealableError
from litelog.shipping.state import add_to_tallies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.claim import Claim
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalSegment
    from litelog.shipping.context import ReplicaContext
    from litelog.shipping.state import IndexTally, Running
    from litelog.stores.replica_client import WalSegmentInfo


class _NotContinuedError(Exception):
    """The replica holds an object that does not continue the state. Other checks decide what that means."""


class CatchingUp:
    """Reads forward in an owner's own generation. The log may have lost what the replica holds: truncation needs only
    a snapshot of it."""

    def __init__(self, context: ReplicaContext) -> None:
        source = context.source
        self._format = source.format
        self._files = FinishedSegments(source, context.clock)
        self._client = context.client

    def find_ahead(self, state: Running) -> Running | None:
        """Return ``state`` as its owner would have saved it after the last object in the replica.

        None if the replica holds nothing after the position of ``state``; that takes one listing. Otherwise reads and
        checks the newest snapshot and each WAL segment since. Raises StoreError.
        """
        claim, name = state.claim, state.claim.generation
        listing = list_generation(self._client, name, since=state.place.index)
        ahead = state
        try:
            if listing.newest is not None and listing.newest > state.place.index:
                ahead = self._apply_snapshot(claim, state, listing.newest, listing.wal)
            for info in listing.wal:
                slot = Position(name, ahead.place.index, ahead.place.offset)
                if info.position >= slot:
                    ahead = self._apply_wal_segment(claim, ahead, slot)
        except (_NotContinuedError, CorruptionError, UnknownVersionError, NotFoundError):
            pass  # the state that was reached before it is valid
        if ahead is state or (ahead.digest != state.digest and ahead.last == state.last):
            return None
        promised = ahead.promised
        if promised is not None and ahead.place.index > promised.index + claim.shift:
            ahead = replace(ahead, promised=None)
        return replace(ahead, archive=None, tallies=_count(state, ahead, listing.newest, listing.wal))

    def _apply_snapshot(self, claim: Claim, state: Running, index: int, wal: Sequence[WalSegmentInfo]) -> Running:
        """Return the state after the log segments that a snapshot names. Their WAL segments may have been deleted."""
        snapshot, _ = read_snapshot(self._client, claim, index)
        entry = snapshot.entry(index - 1)
        if entry is None or snapshot.chain is None:
            raise _NotContinuedError
        ahead = replace(state, place=self._place_after(entry, state.place.epoch), digest=snapshot.chain)
        before = [info.position for info in wal if info.position.index < index]
        if before:
            last = self._read(before[-1])
            if last.digest == snapshot.chain:
                ahead = replace(ahead, last=before[-1], shipped=max(state.shipped, last.header.shipped))
        return ahead

    def _apply_wal_segment(self, claim: Claim, state: Running, slot: Position) -> Running:
        there = self._read(slot)
        header = there.header
        if header.successor is not None or header.owner != claim.owner or header.previous != state.digest:
            raise _NotContinuedError
        if header.sealed is not None:
            after = self._place_after(describe_sealed(self._client, header), state.place.epoch)
        else:
            after = self._place_in_wal(state.place, there)
        shipped = max(state.shipped, header.shipped)
        return replace(state, place=after, digest=there.digest, last=slot, shipped=shipped)

    def _read(self, position: Position) -> WalSegment:
        key = wal_key(position)
        read = partial(self._client.read_wal_segment, position)
        return read_verified(read, partial(wal_segment.decode_checked, key))

    def _place_in_wal(self, place: SourcePosition, there: WalSegment) -> SourcePosition:
        """Return where reading of the log continues after a WAL segment, by the bytes in it: the log may lack them."""
        header = there.header
        place = replace(place, file=header.file)
        data = there.data()
        scan = self._format.scan(header.file, data, place.offset, place.expectation) if data else None
        if scan is not None and header.final and self._format.finished_tail is FinishedTail.SHIP:
            scan = replace(scan, end=scan.start + len(data))
        run = make_run(place, data, scan, final=header.final)
        if (run.end.offset, run.end.crc_total) != (header.end, header.crc_total):
            raise _NotContinuedError
        return run.after

    def _place_after(self, entry: SnapshotEntry, epoch: int) -> SourcePosition:
        """Return where reading of the log continues after a sealed log segment. If the log holds it with other bytes,
        the follower decides what that means."""
        with suppress(FileNotFoundError, NotSealableError):
            with self._files.open(entry.file) as opened:
                is_held = self._files.holds(opened, entry.length, entry.digest)
            if not is_held:
                raise _NotContinuedError
            return self._files.place_after(entry)
        return SourcePosition(
            entry.index + 1, "", finished=entry.file, finished_end=entry.length, sequence=entry.next, epoch=epoch
        )


def _count(state: Running, ahead: Running, newest: int | None, wal: Sequence[WalSegmentInfo]) -> tuple[IndexTally, ...]:
    """Return the tallies of ``ahead``: those of ``state``, and the WAL segments after its position, which were read.

    Objects listed before that position are not counted again, because the tally must show what the replica lost.
    """
    slot = (state.place.index, state.place.offset)
    tallies = tuple(tally for tally in state.tallies if tally.index >= (newest or 0))
    last = ahead.last
    for info in wal:
        position = info.position
        if (position.index, position.offset) >= slot and last is not None and position <= last:
            tallies = add_to_tallies(tallies, position, info.size, newest)
    return tallies
