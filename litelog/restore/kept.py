"""WAL segments whose bytes an earlier restore left on the disk: taken from there, checked as if they had been read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.codec.lz4_frames import skippable_frame
from litelog.errors import CorruptObjectError
from litelog.objects.layout import wal_key
from litelog.objects.wal_segment import WalSegment, decode_header
from litelog.restore.journal import VerifiedWal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.objects.position import Position
    from litelog.restore.journal import Journal
    from litelog.restore.segment_files import SegmentFiles

_CHUNK_BYTES = 1 << 20
_FRAME_HEAD_BYTES = 8


@dataclass(frozen=True, slots=True)
class KeptSegment(WalSegment):
    """A WAL segment without its object: its bytes are in the log segment that is restored."""

    open_file: Callable[[], int]
    """The log segment's descriptor."""

    def pieces(self) -> Iterator[memoryview]:
        """As the object's; CorruptObjectError where they are not there any more, or others are."""
        header, file = self.header, self.open_file()
        at, crc = header.offset, 0
        while at < header.end and (data := os.pread(file, min(_CHUNK_BYTES, header.end - at), at)):
            crc = crc32c(data, crc)
            at += len(data)
            yield memoryview(data)
        if at != header.end or crc != header.crc:
            raise CorruptObjectError(self.key, "CRC-32C of what an earlier restore left of it is another one")


class KeptSegments:
    """What a restore that was killed has left of WAL segments, and what this one leaves to the next."""

    def __init__(self, journal: Journal, files: SegmentFiles) -> None:
        self._journal = journal
        self._files = files

    def find(self, position: Position) -> KeptSegment | None:
        """The WAL segment at ``position``, if its bytes may be there: ``pieces`` tells.

        What the journal says of its digest is proved by the object behind it, as if it had been read.
        """
        key = wal_key(position)
        kept = self._journal.wal(key)
        if kept is None:
            return None
        try:
            header = decode_header(key, skippable_frame(kept.header.encode()))
        except CorruptObjectError:
            return None
        return KeptSegment(
            header, kept.object_digest, memoryview(b""), lambda: self._files.open(header.index, header.file)
        )

    def note(self, segment: WalSegment) -> None:
        """Remember a WAL segment whose bytes were written and checked."""
        if isinstance(segment, KeptSegment):
            return
        size = int.from_bytes(segment.body[4:_FRAME_HEAD_BYTES], "little")
        text = bytes(segment.body[_FRAME_HEAD_BYTES : _FRAME_HEAD_BYTES + size]).decode()
        self._journal.add_wal(VerifiedWal(segment.key, segment.header.file, segment.digest, text))
