"""A log segment's bytes from its WAL segments: what is sealed where the source no longer has them."""

from __future__ import annotations

from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from litelog.errors import NotFoundError, ReplicaGapError
from litelog.objects import wal_segment
from litelog.objects.layout import wal_key
from litelog.objects.position import Generation, Position
from litelog.reading.fetch import read_checked
from litelog.reading.search import read_header
from litelog.reading.wal_cursor import describe_sealed
from litelog.shipping.archive_state import Opening, finished_by

if TYPE_CHECKING:
    from litelog.objects.wal_segment import WalSegment
    from litelog.shipping.archive_state import ShippedSegment
    from litelog.stores.replica_client import ReplicaClient


class WalBytes:
    """Reads forward: ``read`` may go back only as far as the last ``read`` began."""

    def __init__(self, client: ReplicaClient, name: Generation, index: int) -> None:
        self._client = client
        self._left = iter(list_index(client, name, index))
        self._held: list[tuple[int, bytes]] = []

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset`` on; fewer at the end. CorruptObjectError, ReplicaGapError."""
        self._held = [(start, data) for start, data in self._held if start + len(data) > offset]
        while not self._held or self._end < offset + length:
            position = next(self._left, None)
            if position is None:
                break
            expected = self._end if self._held else None
            segment = read_segment(self._client, position)
            if expected not in (None, position.offset):
                raise ReplicaGapError(str(Position(position.generation, position.index, expected)), str(position))
            if segment.header.length and segment.header.end > offset:
                self._held.append((position.offset, segment.data()))
        pieces = [data[max(0, offset - start) : max(0, offset + length - start)] for start, data in self._held]
        return b"".join(pieces)

    @property
    def _end(self) -> int:
        start, data = self._held[-1]
        return start + len(data)


def list_index(client: ReplicaClient, name: Generation, index: int) -> list[Position]:
    """Where the WAL segments of one index lie."""
    listed = (info.position for info in client.wal_segments(name, Position(name, index, 0)))
    return list(takewhile(lambda position: position.index == index, listed))


def read_segment(client: ReplicaClient, position: Position) -> WalSegment:
    """The WAL segment there, its bytes checked. CorruptObjectError, ReplicaGapError."""
    try:
        return read_checked(
            lambda: client.read_wal_segment(position), partial(wal_segment.decode_checked, wal_key(position))
        )
    except NotFoundError as error:
        raise ReplicaGapError(str(position)) from error


def find_finished(client: ReplicaClient, name: Generation, index: int) -> ShippedSegment:
    """What a finished index's WAL segments say of its log segment: a listing, a ranged GET, a GET; and
    the footer of the sealed segment that the last one stands for, if it does.

    ReplicaGapError where the first or the last one is missing.
    """
    positions = list_index(client, name, index)
    start = Position(name, index, 0)
    if not positions or positions[0] != start:
        raise ReplicaGapError(str(start), str(positions[0]) if positions else None)
    first = read_header(client, positions[0])
    last = read_segment(client, positions[-1])
    if not last.header.final:
        raise ReplicaGapError(str(last.header.next_slot))
    sealed = describe_sealed(client, last.header) if last.header.sealed is not None else None
    sequence = first.next if first.first is None else first.first
    opening = Opening(index, first.previous, sequence if sealed is None else sealed.first, 0)
    return finished_by(opening, last.header, last.digest, sealed)
