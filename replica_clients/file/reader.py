"""A file's bytes, or a range of them, as an unbuffered stream."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from litelog.stores.byte_stream import ByteStream

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange


class FileReader(ByteStream):
    """``byte_range`` of an open file, which it closes. ``read(n)`` takes memory for what is there, not for n bytes."""

    def __init__(self, descriptor: int, byte_range: ByteRange) -> None:
        self._descriptor = descriptor
        self._at = byte_range.start
        size = os.fstat(descriptor).st_size
        end = size if byte_range.length is None else min(size, self._at + byte_range.length)
        self._left = max(0, end - self._at)

    def read(self, size: int | None = -1, /) -> bytes:
        """``size`` bytes, or all that are left where they are fewer or ``size`` is negative."""
        want = self._left if size is None or size < 0 else min(size, self._left)
        pieces: list[bytes] = []
        while want:
            piece = os.pread(self._descriptor, want, self._at)
            if not piece:
                raise OSError(f"file ends at byte {self._at}, {self._left} bytes early")
            pieces.append(piece)
            self._at += len(piece)
            self._left -= len(piece)
            want -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")[: self._left]
        if not len(view):
            return 0
        count = os.preadv(self._descriptor, [view], self._at)
        if not count:
            raise OSError(f"file ends at byte {self._at}, {self._left} bytes early")
        self._at += count
        self._left -= count
        return count

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)
