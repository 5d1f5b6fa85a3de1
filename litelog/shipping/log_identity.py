"""The identity of a log: which log a source is, and whether it holds what a generation shipped.

Specified in litelog/shipping/README.md#which-log-it-is.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING
from uuid import UUID

from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, OtherLogError, SourceMissingError, UnknownVersionError
from litelog.events import fields
from litelog.formats import FinishedTail
from litelog.formats.capabilities import awaited_side_file
from litelog.log.source import OpenSegment, SegmentFolder
from litelog.reading.wal_cursor import describe_sealed

if TYPE_CHECKING:
    from random import Random

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.reading.generations import GenerationEnd
    from litelog.shipping.context import ReplicaContext
    from litelog.system.clock import Clock


HEAD_BYTES = 4096
"""How many bytes of a log segment are read for its header."""


@dataclass(frozen=True, slots=True)
class ShippedEnd:
    """The end of a generation's last WAL segment, in the log that it came from: offset ``end`` of ``file``."""

    file: str
    index: int
    end: int
    crc_total: int
    """CRC-32C of [0, end)."""
    check_start: int | None
    check_digest: str | None
    """SHA-256, hex, of [check_start, end): the end of the last commit, or all of it. None if the writer did not state
    it."""
    final: bool
    """The log segment was finished there: no bytes followed."""


def find_shift(folder: str, log_format: LogFormat, clock: Clock, shipped: ShippedEnd) -> int | None:
    """Return what to add to another generation's index to get this log's index.

    None if the log does not hold what that generation shipped. Raises SourceMissingError if the log does not exist.
    """
    ours, names = 0, SegmentFolder(folder, log_format, clock, reports=False)
    for segment in names.each():
        if segment.name == shipped.file:
            skips_garbage = log_format.finished_tail is FinishedTail.PREFIX
            return ours - shipped.index if _holds(segment, shipped, skips_garbage=skips_garbage) else None
        ours += segment.size() > 0
    names.require_log()
    return None


def find_checksum(folder: str, log_format: LogFormat, clock: Clock, file: str, end: int) -> int:
    """Return the CRC-32C of the first ``end`` bytes of a log segment, or of all its bytes if it has fewer; 0 if the log
    segment does not exist."""
    try:
        with SegmentFolder(folder, log_format, clock, reports=False).open(file) as segment:
            return segment.checksum(end)
    except FileNotFoundError:
        return 0


def _holds(segment: OpenSegment, shipped: ShippedEnd, *, skips_garbage: bool) -> bool:
    end, start = shipped.end, shipped.check_start
    if segment.size() < end or segment.checksum(end) != shipped.crc_total:
        return False
    if start is not None and segment.sha256(start, end) != shipped.check_digest:
        return False
    return not shipped.final or skips_garbage or not segment.has_grown(end)


def read_log_id(folder: str, log_format: LogFormat, clock: Clock) -> UUID | None:
    """Return the log's id, from its first log segment that has one. Raises SourceMissingError if no log segment
    exists, and SourceError if a log segment is missing that the manifest lists."""
    names = SegmentFolder(folder, log_format, clock, reports=False, whole=True)
    names.require_log()
    for segment in names.each():
        found = log_format.log_id(os.path.join(folder, segment.name), memoryview(segment.read(0, HEAD_BYTES)))
        if found is not None:
            return found
    return None


_logger = logging.getLogger(__name__)


class LogIdentity:
    """Compares a source with what one replica states of it."""

    def __init__(self, context: ReplicaContext, random: Random) -> None:
        self._source = context.source
        self._client = context.client
        self._clock = context.clock
        self._random = random

    def find_end(self, tip: GenerationEnd) -> ShippedEnd | None:
        """Return where in the log a generation ends; None if it holds nothing of the log.

        Raises CorruptionError if its last log segment was sealed, and the sealed segment cannot be read any more.
        """
        last, sealed = tip.last, tip.sealed
        if last is not None and last.sealed is not None:
            return _end_of(describe_sealed(self._client, last), last.index)
        if last is None:
            return None if sealed is None else _end_of(sealed, sealed.index)
        check = (last.check_start, last.check_digest)
        return ShippedEnd(last.file, last.index, last.end, last.crc_total, *check, last.final)

    def find_shift(self, tip: GenerationEnd) -> int | None:
        """Return what to add to the predecessor's index, if the log holds all that the predecessor shipped. None if it
        does not, or if that can no longer be determined."""
        try:
            end = self.find_end(tip)
        except (CorruptionError, UnknownVersionError) as error:
            extra = fields("predecessor-damaged", replica=self._client.url, generation=tip.slot.generation)
            _logger.warning("%s: the end of the predecessor cannot be read: %s", self._client.url, error, extra=extra)
            return None
        return 0 if end is None else self.find_shift_to(end)

    def find_shift_to(self, end: ShippedEnd) -> int | None:
        """As ``find_shift``, for a given end of a generation."""
        return find_shift(self._source.folder, self._source.format, self._clock, end)

    def choose_log(self, top: Claim | None, latest: tuple[Claim, GenerationEnd] | None, known: str) -> str:
        """Return the log's id: its own, or else the one in the replica, or else the one in its other replicas.

        ``top``: the newest claim; ``known``: the id in the state. Raises OtherLogError if the replica is another log's.
        """
        here = self._read_id()
        if here is None and not self._source.format.has_log_id:
            here = known or None
        if top is None:
            return here or self._source.agree_on_id(UUID(int=self._random.getrandbits(128), version=4).hex)
        self.require_format(top)
        if here is None and latest is not None and self.find_shift(latest[1]) is None:
            raise OtherLogError(self._client.url, f"the one in {self._source.folder}", top.log)
        if here is not None and here != top.log:
            raise OtherLogError(self._client.url, here, top.log)
        if not self._source.format.has_log_id:
            self._source.agree_on_id(top.log)
        return top.log

    def require_format(self, claim: Claim) -> None:
        """Raise OtherLogError if a generation's format is not the one in which the source is read."""
        here = self._source.format.name
        if claim.format != here:
            raise OtherLogError(self._client.url, f"one of format {here}", f"of format {claim.format}")

    def _read_id(self) -> str | None:
        source = self._source
        self._await_side_file()
        found = read_log_id(source.folder, source.format, self._clock)
        if found is None and source.format.has_log_id:
            raise SourceMissingError(source.folder, "holds no log segment with a header yet")
        return found.hex if found is not None else None

    def _await_side_file(self) -> None:
        """Raise SourceMissingError while the log's writer has neither written the side file that comes first, nor a
        byte of the log: only snapshots hold it, and the next one comes with the next finished log segment."""
        source = self._source
        awaited = awaited_side_file(source.format)
        if awaited is None or os.path.exists(os.path.join(source.folder, awaited)):
            return
        names = SegmentFolder(source.folder, source.format, self._clock, reports=False)
        if not any(any(segment.read(0, HEAD_BYTES)) for segment in names.each()):
            names.require_log()  # its error names the format that the folder has instead
            raise SourceMissingError(source.folder, f"holds no record yet, and no {awaited}")


def _end_of(sealed: SnapshotEntry, index: int) -> ShippedEnd:
    return ShippedEnd(sealed.file, index, sealed.length, sealed.crc, 0, sealed.digest, final=True)
