"""The codecs of sealed segments' frames: what a replica may be configured to write, and what a footer may name.

LZ4 and LZ4 HC write the same frames, so a footer names only their codec.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from litelog.codec import lz4_frames, zstd_frames
from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from litelog.codec.lz4_frames import Frame
    from litelog.native.lz4_frame import MadeFrame, ReadFrame


class FrameCodec(StrEnum):
    """The frames of a sealed segment, as its footer names them."""

    LZ4 = "lz4"
    ZSTD = "zstd"


class Compression(StrEnum):
    """How sealed segments are compressed."""

    LZ4 = "lz4"
    LZ4HC = "lz4hc"
    """LZ4 that searches longer for matches: smaller objects, which are read as fast, for more processor time."""
    ZSTD = "zstd"

    @property
    def codec(self) -> FrameCodec:
        """The name in a footer."""
        return FrameCodec.ZSTD if self is Compression.ZSTD else FrameCodec.LZ4

    def compress(self, data: memoryview) -> MadeFrame:
        """Compress ``data``, which is not empty, to one frame. Raises ConfigError if a package is missing."""
        if self is Compression.ZSTD:
            return lz4_frames.describe_frame(data, zstd_frames.compress_zstd_frame(data))
        high = self is Compression.LZ4HC
        return lz4_frames.make_frame(data, lz4_frames.HIGH_LEVEL if high else lz4_frames.ACCELERATION)

    def problem(self) -> str | None:
        """Why this compression cannot be used here, with the command that helps; None if it can."""
        return zstd_frames.zstandard_problem() if self is Compression.ZSTD else None


class ReadAtOnce(Protocol):
    """``lz4_frames.read_frame``."""

    def __call__(
        self, data: memoryview, crc: int, size: int, into: memoryview | None, *, with_crc: bool
    ) -> ReadFrame | None: ...


def no_read(data: memoryview, crc: int, size: int, into: memoryview | None, *, with_crc: bool) -> None:
    """For a codec that has no such call."""


@dataclass(frozen=True, slots=True)
class FrameDecoder:
    """Reads the frames of one codec. Each of them ends with the checksum of its content, in four bytes."""

    find: Callable[[Buffer], Frame]
    """Returns the only data frame of the bytes given, which end with it. Raises FrameError."""
    decompress: Callable[[Buffer, Frame, memoryview | None], memoryview]
    """Decompresses a frame that ``find`` found, of the same bytes. Raises FrameError. The last argument may receive the
    content, and has as many bytes; None: a new buffer."""
    checksum: Callable[[Buffer], int]
    """Returns the content checksum of the frame that holds the bytes given."""
    read: ReadAtOnce = no_read
    """Reads a frame in one call, if the codec has one."""


DECODERS = {
    FrameCodec.LZ4: FrameDecoder(
        lz4_frames.find_frame, lz4_frames.decompress_known_frame, lz4_frames.xxh32, lz4_frames.read_frame
    ),
    FrameCodec.ZSTD: FrameDecoder(
        zstd_frames.find_zstd_frame, zstd_frames.decompress_zstd_frame, zstd_frames.zstd_checksum
    ),
}
