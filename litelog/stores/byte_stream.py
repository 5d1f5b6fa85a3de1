"""A stream of bytes that is defined by its ``read`` alone."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


class ByteStream(io.RawIOBase):
    """To be inherited, as ``io`` has no protocol for streams: ``read(size)`` gives ``size`` bytes, or all that are left
    where they are fewer or ``size`` is None or negative."""

    def readall(self) -> bytes:
        return self.read() or b""

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        piece = self.read(len(view)) or b""
        view[: len(piece)] = piece
        return len(piece)

    def readable(self) -> bool:
        return True
