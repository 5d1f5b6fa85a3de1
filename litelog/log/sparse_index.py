"""The sparse index of a log segment: an entry about every 4 KiB says which sequence starts there. It is only a hint.

One entry, 32 bytes, little-endian; a file consists of entries, and every field rises from entry to entry
 0  8  u64 sequence    8  8  u64 offset of a commit that starts with it
16  8  i64 highest timestamp of all records before it in the log, microseconds since 1970
24  4  zero           28  4  u32 CRC-32C of the log id and bytes 0..28, so that another log's entries are invalid
The reader of an entry checks that a commit with that sequence starts there. The index is never synced.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.dataclass import dataclass
from litelog.system.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

INTERVAL_BYTES = 4096
"""The fewest bytes of the log between two entries: a look-up reads at most one page too many."""

BUFFERED_ENTRIES = 128
"""How many entries are written at once: 4 KiB of index. A crash loses them; opening the log makes them again."""

MAX_BAD_ENTRIES = 1024
"""How many entries, from the last one back, are tried before an index counts as damaged. After 4 MiB of the log were
cut off, that many entries are invalid."""

_ENTRY = struct.Struct("<QQqII")
_CHECKED_BYTES = 28


@dataclass(frozen=True, slots=True, order=True)
class IndexEntry:
    """A commit that starts with ``sequence`` at ``offset``; ``highest`` is the highest timestamp before it."""

    sequence: int
    offset: int
    highest: int


def index_path(segment_path: str) -> str:
    """Return the path of the index of the log segment at ``segment_path`` (``....log``)."""
    return segment_path.removesuffix(".log") + ".index"


class IndexReader:
    """Looks up entries in the file. It loads nothing, so a large index costs no memory. Close it after use."""

    def __init__(self, segment_path: str, log_id: UUID) -> None:
        """A missing index counts as an empty one."""
        self._seed = crc32c(log_id.bytes)
        self._descriptor = -1
        self._count = 0
        with suppress(OSError):
            self._descriptor = open_regular(index_path(segment_path), os.O_RDONLY | os.O_NOFOLLOW)
            self._count = os.fstat(self._descriptor).st_size // _ENTRY.size

    def __enter__(self) -> IndexReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def before(self, sequence: int) -> IndexEntry | None:
        """Return the last entry at or before ``sequence``; None if there is none, or the index is damaged."""
        return self._last_with(lambda entry: entry.sequence <= sequence)

    def before_time(self, timestamp: int) -> IndexEntry | None:
        """Return the last entry before which all records are older than ``timestamp`` (microseconds since 1970)."""
        return self._last_with(lambda entry: entry.highest < timestamp)

    def last_below(self, size: int) -> tuple[int, IndexEntry] | None:
        """Return (number, entry) of the last good entry for a log segment of ``size`` bytes; None if there is none."""
        for place in range(self._count - 1, max(-1, self._count - 1 - MAX_BAD_ENTRIES), -1):
            entry = self._read(place)
            if entry is not None and entry.offset < size:
                return place, entry
        return None

    def _last_with(self, fits: Callable[[IndexEntry], bool]) -> IndexEntry | None:
        low, high, best = 0, self._count, None
        while low < high:
            middle = (low + high) // 2
            entry = self._read(middle)
            if entry is None:
                return best
            if fits(entry):
                low, best = middle + 1, entry
            else:
                high = middle
        return best

    def _read(self, place: int) -> IndexEntry | None:
        try:
            body = os.pread(self._descriptor, _ENTRY.size, place * _ENTRY.size)
        except OSError:
            return None
        if len(body) < _ENTRY.size:
            return None
        sequence, offset, highest, _, checksum = _ENTRY.unpack(body)
        return IndexEntry(sequence, offset, highest) if crc32c(body[:_CHECKED_BYTES], self._seed) == checksum else None


class IndexWriter:
    """Keeps one log segment's index while it grows. If the disk refuses a write, only the index ends."""

    def __init__(self, segment_path: str, log_id: UUID, kept: int = 0, last_offset: int | None = None) -> None:
        """Continue after the first ``kept`` entries, the last of which has ``last_offset``. Drops all later entries."""
        self._seed = crc32c(log_id.bytes)
        self._pending: list[bytes] = []
        self._last_offset = -INTERVAL_BYTES if last_offset is None else last_offset
        self._descriptor = -1
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._descriptor = open_regular(index_path(segment_path), flags, 0o644)
            os.ftruncate(self._descriptor, kept * _ENTRY.size)

    def add(self, sequence: int, offset: int, highest: int) -> None:
        """Add a commit, if it is far enough after the last entry."""
        if offset - self._last_offset < INTERVAL_BYTES:
            return
        self._last_offset = offset
        entry = _ENTRY.pack(sequence, offset, highest, 0, 0)[:_CHECKED_BYTES]
        self._pending.append(entry + crc32c(entry, self._seed).to_bytes(4, "little"))
        if len(self._pending) >= BUFFERED_ENTRIES:
            self.flush()

    def flush(self) -> None:
        """Write the pending entries."""
        if self._pending and self._descriptor >= 0:
            body = b"".join(self._pending)
            try:
                complete = os.write(self._descriptor, body) == len(body)
            except OSError:
                complete = False
            if not complete:
                self._give_up()
        self._pending.clear()

    def close(self) -> None:
        """Write the pending entries and close the file."""
        self.flush()
        self._give_up()

    def _give_up(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
