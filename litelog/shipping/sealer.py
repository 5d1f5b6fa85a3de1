"""Seals one log segment: from the local file, or from its WAL segments where that no longer holds what was shipped."""

from __future__ import annotations

import logging
import os
from collections import deque
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, CorruptObjectError, DivergedError, ExistsError, NotFoundError
from litelog.events import fields
from litelog.formats import Expectation
from litelog.log.source import SegmentNames
from litelog.objects.layout import sealed_key
from litelog.objects.position import Generation, generation
from litelog.objects.sealed_encoding import FinishedSegment, Sealing
from litelog.objects.sealed_segment import SealedFooter, read_footer
from litelog.objects.snapshot_entries import SnapshotEntry, make_entry
from litelog.reading.fetch import read_checked
from litelog.shipping.marks import NO_MARKS
from litelog.shipping.wal_bytes import WalBytes

if TYPE_CHECKING:
    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.objects.frame_table import Marks
    from litelog.objects.sealed_encoding import Read
    from litelog.shipping.archive_state import ShippedSegment
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)


class TakenError(DivergedError):
    """The generation has a sealed segment of that index already, and it is of other bytes: the log was rewritten before
    anything else said that they belong to its history."""


class Sealer:
    """Writes the sealed segments of one generation. Used by any thread."""

    def __init__(self, folder: str, log_format: LogFormat, client: ReplicaClient, claim: Claim, clock: Clock) -> None:
        self._folder = folder
        self._format = log_format
        self._client = client
        self._claim = claim
        self._name = generation(claim.generation)
        self._names = SegmentNames(folder, log_format, clock, reports=False)

    def seal_shipped(self, segment: ShippedSegment, marks: Marks = NO_MARKS) -> SnapshotEntry:
        """Seal what was shipped as WAL segments, by its CRC-32C; the entry of what is durable then.

        Raises CorruptionError where neither the file nor the WAL segments hold those bytes, TakenError, StoreError.
        """
        described = self._describe(segment, marks)
        try:
            with self._names.open(segment.file) as opened:
                return self._put(described, opened.read)
        except FileNotFoundError:
            said = "%s: is gone; it is sealed from its WAL segments"
            _logger.info(said, described.path, extra=self._fields(segment))
        except (DivergedError, CorruptionError) as error:
            if isinstance(error, CorruptObjectError | TakenError):
                raise
            _logger.warning("%s; it is sealed from its WAL segments", error, extra=self._fields(segment))
        return self._put(described, WalBytes(self._client, self._name, segment.index).read)

    def _fields(self, segment: ShippedSegment) -> dict[str, object]:
        return fields("sealed-from-wal", log=self._folder, replica=self._client.url, file=segment.file)

    def _put(self, segment: FinishedSegment, read: Read) -> SnapshotEntry:
        sealing = Sealing(segment, read, self._format)
        try:
            self._client.write_sealed_segment(self._name, segment.index, sealing)
        except ExistsError:
            return self._adopt(sealing)
        return make_entry(sealing.footer, sealing.size)

    def _describe(self, segment: ShippedSegment, marks: Marks) -> FinishedSegment:
        claim = self._claim
        return FinishedSegment(
            log=claim.log,
            format=claim.format,
            generation=claim.generation,
            owner=claim.owner,
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
        """The entry of the sealed segment that is there. TakenError if it is our own and of other bytes; else
        CorruptObjectError if it is another one, or damaged."""
        key = sealed_key(self._name, sealing.segment.index)
        try:
            made = sealing.footer
        except ValueError:  # the store refused it before it was made
            deque(sealing, maxlen=0)
            made = sealing.footer
        footer, size = read_sealed_footer(self._client, self._name, sealing.segment.index)
        for name in ("log", "format", "file", "length", "digest", "crc", "first", "next", "records"):
            expected, actual = getattr(made, name), getattr(footer, name)
            if expected != actual and (footer.log, footer.owner) == (made.log, made.owner):
                raise TakenError(
                    sealing.segment.path, f"{key} is of other bytes: its {name} is {actual}, not {expected}"
                )
            if expected != actual:
                raise CorruptObjectError(key, f"{name} of the sealed segment there", expected, actual)
        return make_entry(footer, size)


def read_sealed_footer(client: ReplicaClient, name: Generation, index: int) -> tuple[SealedFooter, int]:
    """The footer of a sealed segment that is there, and the object's size: a listing and a ranged GET.

    NotFoundError, CorruptObjectError.
    """
    key = sealed_key(name, index)
    info = next(iter(client.sealed_segments(name, index)), None)
    if info is None or info.index != index:
        raise NotFoundError(key)

    def read(start: int, length: int) -> bytes:
        return client.read_sealed_segment(name, index, start, length)

    return read_checked(lambda: info.size, lambda size: (read_footer(key, read, size), size))
