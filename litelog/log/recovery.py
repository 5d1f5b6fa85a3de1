"""Finds the end of a log in litelog's own format when its writer opens it, and cuts off what a crash left there.

Only the newest log segment can have a torn tail: a new one is started after the last one is synced, and a commit is
written after its header is. A tail is cut only if no good commit follows it, and never because an index says so.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError, SequenceGapError, SourceError
from litelog.formats import Damage, Expectation, Tail
from litelog.formats.litelog import SEGMENT_HEADER_BYTES, LitelogFormat, SegmentHeader, segment_name, sequence_of
from litelog.log.sparse_index import INTERVAL_BYTES, IndexEntry, IndexReader
from litelog.system.files import open_regular

if TYPE_CHECKING:
    from uuid import UUID

    from litelog.formats import Scan
    from litelog.log.disk import Disk

READ_BYTES = 4 << 20
"""How many bytes of a log segment are checked at a time."""

MAX_TAIL_BYTES = 256 << 20
"""How many bytes after the last good commit are searched for good ones, in memory. A longer tail raises an error and is
not cut."""

NO_TIMESTAMP = -(1 << 63)
"""The highest timestamp of an empty set of records."""

OnTrailing = Literal["trim", "error"]


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The position of the next commit."""

    log_id: UUID | None
    """None if the only log segment has no whole header yet."""
    name: str
    size: int
    """How many bytes of the newest log segment are good; 0 if its header is still to be written."""
    next: int
    epoch: int
    highest: int
    trimmed: int = 0
    """Bytes that were cut off."""
    kept_entries: int = 0
    """How many entries of its index are good."""
    kept_offset: int | None = None
    """The offset of the last of them."""
    entries: tuple[IndexEntry, ...] = ()
    """The entries that follow them."""


def list_segments(folder: str) -> list[str]:
    """Return the names of litelog's own log segments in ``folder``, oldest first."""
    return [segment_name(first) for first in _first_sequences(folder)]


def _first_sequences(folder: str) -> list[int]:
    """The first sequences of the log segments in ``folder``, as their names state them, ascending."""
    return sorted(first for name in os.listdir(folder) if (first := sequence_of(name)) is not None)


def recover(folder: str, disk: Disk, on_trailing: OnTrailing) -> LogEnd | None:
    """Find the end of the log in ``folder``, and cut off a torn tail, durably. None if the folder holds no log segment.

    Raises:
        CorruptCommitError: A bad commit has good ones after it; or the tail is torn, and ``on_trailing`` is "error".
        SequenceGapError, WrongFormatError: Log segments that do not belong together, or are not litelog's.
    """
    firsts = _first_sequences(folder)
    if not firsts:
        return None
    end = _recover_newest(folder, firsts[-1], disk, on_trailing)
    if len(firsts) > 1 and end.size <= SEGMENT_HEADER_BYTES:  # only the one before shows what came before
        return _continue(folder, firsts[-2], end)
    return end


def _recover_newest(folder: str, first: int, disk: Disk, on_trailing: OnTrailing) -> LogEnd:
    path = os.path.join(folder, segment_name(first))
    descriptor = open_regular(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        return _recover_open(path, first, descriptor, disk, on_trailing)
    finally:
        os.close(descriptor)


def _recover_open(path: str, first: int, descriptor: int, disk: Disk, on_trailing: OnTrailing) -> LogEnd:
    size = os.fstat(descriptor).st_size
    header = _read_header(path, first, descriptor, size)
    if isinstance(header, SegmentHeader):
        found = _find_end(path, descriptor, size, header)
    else:
        found = _Found(LogEnd(None, os.path.basename(path), 0, first, 0, NO_TIMESTAMP), *header)
    if found.end.size == size:
        return found.end
    if found.tail is not Tail.ZEROS and on_trailing == "error":
        raise _corrupt(path, found.damage, found.end.size, size)
    disk.truncate(descriptor, found.end.size)
    disk.sync(descriptor)
    return replace(found.end, trimmed=size - found.end.size)


@dataclass(frozen=True, slots=True)
class _Found:
    end: LogEnd
    tail: Tail
    damage: Damage | None


def _continue(folder: str, first: int, end: LogEnd) -> LogEnd:
    """Complete ``end``, which is of a log segment without a commit, from the log segment before it, which begins with
    sequence ``first``."""
    path, previous = os.path.join(folder, end.name), os.path.join(folder, segment_name(first))
    descriptor = open_regular(previous, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        size = os.fstat(descriptor).st_size
        header = _read_header(previous, first, descriptor, size)
        if not isinstance(header, SegmentHeader):
            raise _corrupt(previous, header[1], 0, size)
        found = _find_end(previous, descriptor, size, header)
    finally:
        os.close(descriptor)
    if found.end.size != size and found.tail is not Tail.ZEROS:
        raise _corrupt(previous, found.damage, found.end.size, size)
    if found.end.next != end.next:
        raise SequenceGapError(path, 0, found.end.next, end.next)
    if end.log_id not in (None, found.end.log_id):
        raise CorruptCommitError(path, 0, "log id", found.end.log_id, end.log_id)
    return replace(end, log_id=found.end.log_id, epoch=found.end.epoch, highest=found.end.highest)


def _read_header(path: str, first: int, descriptor: int, size: int) -> SegmentHeader | tuple[Tail, Damage | None]:
    """Return the header of a log segment whose name states sequence ``first``. Return the tail instead if a crash
    prevented the header from being written."""
    head = os.pread(descriptor, SEGMENT_HEADER_BYTES, 0)
    try:
        header = SegmentHeader.decode(path, head)
    except ValueError:
        scan = LitelogFormat().scan(path, memoryview(_read_bounded(path, descriptor, 0, size)), 0, Expectation())
        if size > SEGMENT_HEADER_BYTES and scan.tail is not Tail.ZEROS:  # commits are written after durable headers
            raise _corrupt(path, scan.damage, 0, size) from None
        return scan.tail, scan.damage
    if header.first_sequence != first:
        raise CorruptCommitError(path, 0, "first sequence in the header", first, header.first_sequence)
    return header


def _find_end(path: str, descriptor: int, size: int, header: SegmentHeader) -> _Found:
    """Find the end of a log segment's commits: from its index's last good entry on, if a clean end follows it."""
    start = LogEnd(header.log_id, os.path.basename(path), SEGMENT_HEADER_BYTES, header.first_sequence, 0, NO_TIMESTAMP)
    with IndexReader(path, header.log_id) as index:
        hint = index.last_below(size)
    if hint is not None and hint[1].sequence >= header.first_sequence and hint[1].offset >= SEGMENT_HEADER_BYTES:
        place, entry = hint
        hinted = replace(start, size=entry.offset, next=entry.sequence, highest=entry.highest)
        hinted = replace(hinted, kept_entries=place + 1, kept_offset=entry.offset)
        try:
            found = _scan(path, descriptor, size, hinted)
        except (CorruptCommitError, SequenceGapError):
            found = None  # the index may be at fault
        if found is not None and found.end.size > entry.offset and found.tail in (Tail.NOTHING, Tail.ZEROS):
            return found
    return _scan(path, descriptor, size, start)


def _scan(path: str, descriptor: int, size: int, end: LogEnd) -> _Found:
    """Check all commits from ``end`` on."""
    log_format = LitelogFormat()
    entries: list[IndexEntry] = []
    tail, damage = Tail.NOTHING, None
    length = READ_BYTES
    while end.size < size:
        data = memoryview(_read_bounded(path, descriptor, end.size, min(length, size - end.size)))
        scan = log_format.scan(path, data, end.size, Expectation(end.next, end.epoch))
        if not scan.commits:
            tail, damage = scan.tail, scan.damage
            if len(data) == size - end.size:
                break
            length = 2 * max(length, scan.wanted)  # a large commit, or the whole rest must be searched
            continue
        more, highest = _entries(log_format, path, data, end, scan)
        entries += more
        end = replace(end, size=scan.end, next=end.next + scan.records, epoch=scan.epoch, highest=highest)
        length, tail, damage = READ_BYTES, Tail.NOTHING, None
    return _Found(replace(end, entries=tuple(entries)), tail, damage)


def _entries(
    log_format: LitelogFormat, path: str, data: memoryview, end: LogEnd, scan: Scan
) -> tuple[list[IndexEntry], int]:
    """Return the index entries for the commits of ``scan``, and the log's highest timestamp after them."""
    highest, entries, last = end.highest, list[IndexEntry](), -INTERVAL_BYTES
    for commit in log_format.commits(path, data[: scan.end - scan.start], end.size, Expectation(end.next, end.epoch)):
        if commit.start - last >= INTERVAL_BYTES:
            last = commit.start
            entries.append(IndexEntry(commit.first, commit.start, highest))
        highest = max(highest, NO_TIMESTAMP if commit.highest is None else commit.highest)
    return entries, highest


def _read_bounded(path: str, descriptor: int, offset: int, length: int) -> bytes:
    if length > MAX_TAIL_BYTES:
        raise CorruptCommitError(path, offset, "bytes after the last good commit", f"up to {MAX_TAIL_BYTES}", length)
    return _read(path, descriptor, offset, length)


def _read(path: str, descriptor: int, offset: int, length: int) -> bytes:
    pieces: list[bytes] = []
    while length > 0:
        piece = os.pread(descriptor, length, offset)
        if not piece:
            raise SourceError(f"{path}: became shorter while it was read")
        pieces.append(piece)
        offset += len(piece)
        length -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _corrupt(path: str, damage: Damage | None, offset: int, size: int) -> CorruptCommitError:
    if damage is None:
        return CorruptCommitError(path, offset, "bytes after the last commit", 0, size - offset)
    return CorruptCommitError(path, damage.offset, damage.what, damage.expected, damage.actual)
