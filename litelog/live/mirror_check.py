"""Compares what a mirror has before its position with the log's folder.

Specified in litelog/live/README.md#mirrors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import SourceMissingError
from litelog.formats import FinishedTail, safe_segment_order
from litelog.formats.capabilities import rewrites_finished
from litelog.live.buffer_news import ForkedError
from litelog.log.source import SegmentFolder
from litelog.objects.wal_stream import BEFORE_BYTES

if TYPE_CHECKING:
    from litelog.live.served_log import ServedLog
    from litelog.objects.position import Position
    from litelog.objects.wal_stream import MirrorEnd, SegmentBefore
    from litelog.system.clock import Clock


def require_before(served: ServedLog, place: Position, before: MirrorEnd, clock: Clock) -> None:
    """Raise ForkedError if the folder has other bytes before ``place`` than a mirror. What the folder dropped, or its
    writer may have rewritten, is not compared."""
    source = served.log.source
    folder = SegmentFolder(source.folder, source.format, clock, reports=False)
    try:
        is_same = before.digest is None or _has_bytes(served, folder, place, before.digest)
        if is_same and before.segment is not None and not rewrites_finished(source.format):
            is_same = _has_segment(served, folder, before.segment)
    except SourceMissingError:
        return  # a mirror gets what is elsewhere
    if not is_same:
        raise ForkedError(served.name, f"its bytes before {place} are not those of the mirror")


def _has_bytes(served: ServedLog, folder: SegmentFolder, place: Position, digest: str) -> bool:
    """Whether the log segment of ``place`` has the bytes before it, or is not there."""
    end = served.buffer.view.end
    try:
        if end is not None and end.index == place.index:
            name = end.file
        else:
            name = "" if rewrites_finished(served.log.source.format) else served.find_file(place) or ""
        if not name:
            return True
        with folder.open(name) as opened:
            return opened.sha256(max(0, place.offset - BEFORE_BYTES), place.offset) == digest
    except FileNotFoundError:
        return True


def _has_segment(served: ServedLog, folder: SegmentFolder, held: SegmentBefore) -> bool:
    """Whether a log segment ends as the mirror's does, or was dropped: with all before it."""
    log_format = served.log.source.format
    if safe_segment_order(log_format, held.file) is None:
        return False
    try:
        with folder.open(held.file) as opened:
            if opened.sha256(max(0, held.size - BEFORE_BYTES), held.size) != held.digest:
                return False
            return log_format.finished_tail is FinishedTail.PREFIX or not opened.has_grown(held.size)
    except FileNotFoundError:
        return not folder.before(held.file)
