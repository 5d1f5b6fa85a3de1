"""Seals one log segment: from the local file, or from its WAL segments once the file is gone or has changed.

Specified in litelog/shipping/README.md#seal.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import (
    CorruptionError,
    CorruptObjectError,
    DivergedError,
    ExistsError,
    NotFoundError,
    ReplicaGapError,
)
from litelog.events import fields
from litelog.formats import Expectation
from litelog.log.source import SegmentFolder
from litelog.objects.layout import sealed_key
from litelog.objects.position import Generation, Position
from litelog.objects.sealed_encoding import FinishedSegment, Sealing
from litelog.objects.snapshot_entries import SnapshotEntry, make_entry
from litelog.reading.contents import list_index
from litelog.reading.sealed_reader import read_listed_footer
from litelog.reading.search import read_header, read_segment
from litelog.reading.wal_cursor import describe_sealed
from litelog.shipping.archive_state import NO_MARKS, Opening, shipped_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from litelog.objects.claim import Claim
    from litelog.objects.frame_table import ShipTimes
    from litelog.objects.sealed_encoding import Read
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.objects.wal_segment import WalSegment
    from litelog.shipping.archive_state import ShippedSegment
    from litelog.shipping.context import ReplicaContext
    from litelog.stores.replica_client import ReplicaClient

_logger = logging.getLogger(__name__)


class SealedConflictError(DivergedError):
    """The generation already has a sealed segment of that index with other bytes: the log was rewritten before a
    snapshot or ``final`` made those bytes part of its history."""


class Sealer:
    """Writes the sealed segments of one generation. Used by any thread."""

    def __init__(self, context: ReplicaContext, claim: Claim) -> None:
        source = context.source
        self._folder = source.folder
        self._format = source.format
        self._compression = context.settings.compression
        self._client = context.client
        self._claim = claim
        self._generation = claim.generation
        self._names = SegmentFolder(source.folder, source.format, context.clock, reports=False)

    def seal_shipped(self, segment: ShippedSegment, marks: ShipTimes = NO_MARKS) -> SnapshotEntry:
        """Seal a log segment that was shipped as WAL segments, and check its CRC-32C. Return its entry once it is
        durable.

        Raises CorruptionError if neither the file nor the WAL segments hold those bytes, SealedConflictError,
        StoreError.
        """
        described = self._describe(segment, marks)
        try:
            with self._names.open(segment.file) as opened:
                return self._put(described, opened.read)
        except FileNotFoundError:
            message = "%s: is gone; it is sealed from its WAL segments"
            _logger.info(message, described.path, extra=self._fields(segment))
        except (DivergedError, CorruptionError) as error:
            if isinstance(error, CorruptObjectError | SealedConflictError):
                raise
            _logger.warning("%s; it is sealed from its WAL segments", error, extra=self._fields(segment))
        positions = list_index(self._client, self._generation, segment.index)
        return self._put(described, WalBytes(positions, partial(read_segment, self._client)).read)

    def _fields(self, segment: ShippedSegment) -> dict[str, object]:
        return fields("sealed-from-wal", log=self._folder, replica=self._client.url, file=segment.file)

    def _put(self, segment: FinishedSegment, read: Read) -> SnapshotEntry:
        sealing = Sealing(segment, read, self._format, compression=self._compression)
        try:
            self._client.write_sealed_segment(self._generation, segment.index, sealing)
        except ExistsError:
            return self._adopt(sealing)
        return make_entry(sealing.footer, sealing.size)

    def _describe(self, segment: ShippedSegment, marks: ShipTimes) -> FinishedSegment:
        return FinishedSegment(
            claim=self._claim,
            index=segment.index,
            file=segment.file,
            length=segment.length,
            crc=segment.crc,
            previous=segment.previous,
            shipped=segment.shipped,
            marks=marks,
            expect=Expectation(segment.sequence, segment.epoch),
            path=os.path.join(self._folder, segment.file),
        )

    def _adopt(self, sealing: Sealing) -> SnapshotEntry:
        """Return the entry of the existing sealed segment.

        Raises SealedConflictError if it is ours but has other bytes, and CorruptObjectError if it is another owner's,
        or damaged.
        """
        key = sealed_key(self._generation, sealing.segment.index)
        try:
            made = sealing.footer
        except ValueError:  # the store refused it before it was encoded
            deque(sealing, maxlen=0)
            made = sealing.footer
        footer, size = read_sealed_footer(self._client, self._generation, sealing.segment.index)
        for name in ("log", "format", "file", "length", "digest", "crc", "first", "next", "records"):
            expected, actual = getattr(made, name), getattr(footer, name)
            if expected != actual and (footer.log, footer.owner) == (made.log, made.owner):
                raise SealedConflictError(
                    sealing.segment.path, f"{key} holds other bytes: its {name} is {actual}, not {expected}"
                )
            if expected != actual:
                raise CorruptObjectError(key, f"{name} of the existing sealed segment", expected, actual)
        return make_entry(footer, size)


def read_sealed_footer(client: ReplicaClient, name: Generation, index: int) -> tuple[SealedFooter, int]:
    """Return the footer of an existing sealed segment, and the object's size. A listing and a ranged GET.

    Raises NotFoundError and CorruptObjectError.
    """
    key = sealed_key(name, index)
    info = next(iter(client.sealed_segments(name, index)), None)
    if info is None or info.index != index:
        raise NotFoundError(key)
    return read_listed_footer(client, info), info.size


class WalBytes:
    """Reads the bytes of WAL segments forward: ``read`` may go back only to where the last ``read`` began."""

    def __init__(self, positions: Iterable[Position], read: Callable[[Position], WalSegment]) -> None:
        """``positions``: of all WAL segments of a log segment, in order."""
        self._left = iter(positions)
        self._read = read
        self._held: list[tuple[int, memoryview]] = []

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset`` on; fewer at the end. Raises CorruptObjectError, ReplicaGapError."""
        self._held = [(start, data) for start, data in self._held if start + len(data) > offset]
        while not self._held or self._end < offset + length:
            position = next(self._left, None)
            if position is None:
                break
            expected = self._end if self._held else None
            segment = self._read(position)
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


def find_finished(client: ReplicaClient, name: Generation, index: int) -> ShippedSegment:
    """Return what a finished index's WAL segments state of its log segment. A listing, a ranged GET and a GET; and the
    footer of a sealed segment, if the last one stands for it.

    Raises ReplicaGapError if the first or the last one is missing.
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
    return shipped_segment(opening, last.header, last.digest, sealed)
