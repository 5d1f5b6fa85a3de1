"""Where the bytes of a damaged sealed segment are taken from: its WAL segments, where they are still there, and other
replicas."""

from __future__ import annotations

import logging
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, StoreError
from litelog.events import fields
from litelog.objects import wal_segment
from litelog.objects.layout import wal_key
from litelog.objects.position import Position, generation
from litelog.reading.fetch import read_checked
from litelog.restore.repair.donors import NoDonorError
from litelog.restore.repair.generation_bytes import Chunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader, WalSegment
    from litelog.restore.repair.donors import Donors
    from litelog.stores.replica_client import ReplicaClient

_logger = logging.getLogger(__name__)


class Substitutes:
    """What else has a log segment's bytes. Nothing is asked for before it is needed. Shared by threads."""

    def __init__(self, client: ReplicaClient, donors: Donors | None) -> None:
        self._client = client
        self._donors = donors

    def chunks(self, entry: SnapshotEntry, start: int, stop: int, *, proven: bool) -> Iterator[Chunk]:
        """Bytes [start, stop) of the log segment that ``entry`` describes; NoDonorError where nobody has them.

        They are what their own object says; whether they are the ones that were sealed is the caller's to check.
        ``proven``: as in ``Donors.chunks``.
        """
        try:
            for chunk in self._wal_chunks(entry, start, stop):
                yield chunk
                start = chunk.end
        except (CorruptionError, StoreError) as error:
            self._tell(entry, error)
        if start < stop:
            if self._donors is None:
                raise NoDonorError(f"{entry.file}: nothing else has bytes {start} to {stop}")
            yield from self._donors.chunks(entry.file, start, stop, proven=proven)

    def wal_headers(self, entry: SnapshotEntry) -> Iterator[WalHeader]:
        """The headers of its WAL segments that are still there and whole, in order."""
        try:
            for position in self._positions(entry):
                yield self._read(position).header
        except (CorruptionError, StoreError) as error:
            self._tell(entry, error)

    def _tell(self, entry: SnapshotEntry, error: CorruptionError | StoreError) -> None:
        extra = fields("substitute-damaged", replica=self._client.url, file=entry.file)
        _logger.warning("%s: %s", self._client.url, error, extra=extra)

    def _wal_chunks(self, entry: SnapshotEntry, start: int, stop: int) -> Iterator[Chunk]:
        positions = self._positions(entry)
        begin = max((number for number, at in enumerate(positions) if at.offset <= start), default=len(positions))
        for position in positions[begin:]:
            segment = self._read(position)
            header = segment.header
            if start >= stop or header.file != entry.file or header.offset > start:
                return
            if header.end > start:
                data = memoryview(segment.data())[start - header.offset : min(stop, header.end) - header.offset]
                total = header.crc_total if header.end <= stop else None
                yield Chunk(start, data, self._client.url, entry.generation, total)
                start = min(stop, header.end)

    def _positions(self, entry: SnapshotEntry) -> list[Position]:
        place = Position(generation(entry.generation), entry.sealed_index, 0)
        listed = self._client.wal_segments(place.generation, place)
        return [info.position for info in takewhile(lambda info: info.position.index == place.index, listed)]

    def _read(self, position: Position) -> WalSegment:
        decode = partial(wal_segment.decode_checked, wal_key(position))
        return read_checked(partial(self._client.read_wal_segment, position), decode)
