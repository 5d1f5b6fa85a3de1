"""Checks how a claim maps the indexes of the generation that it continues to its own.

A wrong mapping would hide acknowledged bytes: a reader would take the older generation, or skip a part of the newer
one. So the log segment with which the older generation ended must have the same name at its mapped index.

Specified in litelog/reading/README.md#from-one-generation-to-the-next.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, CorruptObjectError
from litelog.objects.position import Position
from litelog.reading.contents import read_base
from litelog.reading.search import read_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from litelog.objects.claim import Claim
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.reading.contents import Listing
    from litelog.stores.replica_client import ReplicaClient


class SegmentNames:
    """The names of a generation's log segments by index. Each is looked up when it is first needed.

    Skips damaged objects: the code that reads their contents reports the damage.
    """

    def __init__(
        self, client: ReplicaClient, claim: Claim, slot: Position, last: WalHeader | None, find: Callable[[], Listing]
    ) -> None:
        """``slot``: the generation's next slot. ``last``: its last header. ``find``: lists its objects."""
        self._client = client
        self._claim = claim
        self._find = find
        self._names: dict[int, str] = {}
        self._looked: set[int] = set()
        self._entries_read = False
        if last is not None and last.file:
            self._names[last.index] = last.file
        self.last = slot.index - (slot.offset == 0)
        """The index of the last log segment of which it holds bytes; -1 if it holds none."""

    def name(self, index: int) -> str | None:
        """The name of the log segment at ``index``; None if no readable object states it."""
        if index not in self._names and index not in self._looked:
            self._looked.add(index)
            self._look_up(index)
        return self._names.get(index)

    def index_of(self, name: str) -> int | None:
        """The index of the log segment ``name``; None if no readable object states it.

        Makes a GET for each index that no snapshot describes.
        """
        for index in sorted({info.position.index for info in self._find().wal}):
            self.name(index)
        self._read_entries()
        return next((index for index, held in self._names.items() if held == name), None)

    def _look_up(self, index: int) -> None:
        listing = self._find()
        held = [info.position for info in listing.wal if info.position.index == index]
        if not held and listing.newest is not None and index < listing.newest:
            self._read_entries()
            return
        position = held[0] if held else Position(self._claim.generation, index, 0)
        with suppress(CorruptionError):
            if name := read_header(self._client, position).file:
                self._names[index] = name

    def _read_entries(self) -> None:
        if not self._entries_read:
            with suppress(CorruptionError):
                self.take(read_base(self._client, self._claim, self._find().snapshots).entries)
            self._entries_read = True

    def take(self, entries: Iterable[SnapshotEntry]) -> None:
        """Take note of the entries of the generation's base, which was just read."""
        self._entries_read = True
        for entry in entries:
            self._names.setdefault(entry.index, entry.file)


def check_mapping(claim: Claim, shift: int, newer: SegmentNames, older: SegmentNames) -> None:
    """Check ``shift``: the index of a log segment in the older generation, plus ``shift``, must be its index in the
    newer one. Raises a CorruptObjectError that names ``claim``, whose shift is the last one in the sum."""
    ended = older.name(older.last) if older.last >= 0 else None
    if ended is None:
        return
    mapped = older.last + shift
    if 0 <= mapped <= newer.last:
        found = newer.name(mapped)
        if found is None or found == ended:
            return
        raise CorruptObjectError(
            claim.key, f"shift is {claim.shift}: maps log segment {ended!r} to index {mapped}, which is {found!r}"
        )
    index = newer.index_of(ended)
    if index is not None and index != mapped:  # it may have been shipped since the slot was looked up
        raise CorruptObjectError(
            claim.key, f"shift is {claim.shift}: maps log segment {ended!r} to index {mapped}, but it has index {index}"
        )
