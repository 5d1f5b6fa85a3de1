"""The identity of a log: its id, and whether it holds what a generation shipped."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.errors import SourceMissingError
from litelog.formats import FinishedTail
from litelog.log.source import GROWTH_BYTES, OpenSegment, SegmentFolder

if TYPE_CHECKING:
    from uuid import UUID

    from litelog.formats import LogFormat
    from litelog.system.clock import Clock

READ_BYTES = 4 << 20

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

    None if the log does not hold what that generation shipped. SourceMissingError if the log does not exist.
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
    if start is not None and _digest(segment, start, end) != shipped.check_digest:
        return False
    return not shipped.final or skips_garbage or not segment.read(end, GROWTH_BYTES).strip(b"\0")


def _digest(segment: OpenSegment, start: int, end: int) -> str:
    sha = hashlib.sha256()
    while start < end and (piece := segment.read(start, min(READ_BYTES, end - start))):
        sha.update(piece)
        start += len(piece)
    return sha.hexdigest()


def read_log_id(folder: str, log_format: LogFormat, clock: Clock) -> UUID | None:
    """Return the log's id, from its first log segment that has one. SourceMissingError if it has no log segment."""
    names = SegmentFolder(folder, log_format, clock, reports=False)
    if not names.all():
        raise SourceMissingError(folder, f"holds no log segment of format {log_format.name}{names.others()}")
    for segment in names.each():
        found = log_format.log_id(os.path.join(folder, segment.name), memoryview(segment.read(0, HEAD_BYTES)))
        if found is not None:
            return found
    return None
