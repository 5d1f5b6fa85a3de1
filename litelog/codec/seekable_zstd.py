"""Files of zstd frames with a seek table at the end: read at any place, with each length checked before it is used.

seek table, the last frame of the file, little-endian
 0  4  u32 0x184D2A5E      4  4  u32 length of what follows
 8  .  for each frame: u32 bytes in the file, u32 bytes of its content, and u32 of a checksum with flag 0x80
 .  9  u32 number of frames, u8 flags, u32 0x8F92EAB1

Specified by zstd's seekable format, version 0.1.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.errors import ConfigError, CorruptCommitError
from litelog.installation import install_command

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
MAX_FRAME_BYTES = 1 << 20
"""The largest content of a frame that is read, and the largest frame, in bytes."""

_TABLE = struct.Struct("<II")
_FOOTER = struct.Struct("<IBI")
_SKIPPABLE = 0x184D2A5E
_SEEKABLE = 0x8F92EAB1
_CHECKSUM_FLAG = 0x80
_UNKNOWN_FLAGS = 0x7F


class SeekableZstd:
    """The content of such a file. Threads may share it."""

    def __init__(self, path: str, read: Callable[[int, int], bytes], size: int, extra: str) -> None:
        """``path`` is for errors. ``read``: reads the file, of ``size`` bytes: an offset, and up to a number of bytes.

        Raises CorruptCommitError if the file has no whole seek table, and ConfigError without the library, which
        ``extra`` installs.
        """
        self._path, self._read, self._file_bytes = path, read, size
        self._zstd = _load(path, extra)
        sizes, table_at = self._read_table()
        self._places = _running(sizes[:, 0])
        self._offsets = _running(sizes[:, 1])
        if int(self._places[-1]) != table_at:
            raise self._damage(table_at, "bytes before the seek table", int(self._places[-1]), table_at)
        for column, what in ((0, "a frame"), (1, "the content of a frame")):
            if len(sizes) and int(sizes[:, column].max()) > MAX_FRAME_BYTES:
                frame = int(sizes[:, column].argmax())
                limit = f"up to {MAX_FRAME_BYTES}"
                raise self._damage(int(self._places[frame]), f"bytes of {what}", limit, int(sizes[frame, column]))

    def size(self) -> int:
        """The number of bytes of the content."""
        return int(self._offsets[-1])

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes of the content from ``offset`` on; fewer at the end. Raises CorruptCommitError."""
        end = min(offset + length, self.size())
        if offset >= end:
            return b""
        first = int(np.searchsorted(self._offsets, offset, side="right")) - 1
        stop = int(np.searchsorted(self._offsets, end, side="left"))
        places = self._places[first : stop + 1].tolist()
        sizes = np.diff(self._offsets[first : stop + 1]).tolist()
        stored = self._read(places[0], places[-1] - places[0])
        if len(stored) < places[-1] - places[0]:
            raise self._damage(places[0], "bytes of frames", places[-1] - places[0], len(stored))
        parts = self._decompress(memoryview(stored), places, sizes)
        start = offset - int(self._offsets[first])
        content = parts[0] if len(parts) == 1 else b"".join(parts)
        return content[start : start + end - offset] if start or len(content) > end - offset else content

    def _decompress(self, stored: memoryview, places: list[int], sizes: list[int]) -> list[bytes]:
        decompress, stated = self._zstd.ZstdDecompressor().decompress, self._zstd.frame_content_size
        origin, parts = places[0], []
        for number, size in enumerate(sizes):
            frame = stored[places[number] - origin : places[number + 1] - origin]
            try:
                # A frame may state its size, and is allocated by that.
                part = (
                    decompress(frame, max_output_size=size, allow_extra_data=False)
                    if stated(frame) in (-1, size)
                    else b""
                )
            except self._zstd.ZstdError as error:
                raise self._damage(places[number], "compressed frame", f"{size} bytes of content", str(error)) from None
            if len(part) != size:
                raise self._damage(places[number], "bytes of a frame's content", size, len(part))
            parts.append(part)
        return parts

    def _read_table(self) -> tuple[npt.NDArray[Any], int]:
        """The frames' sizes (in the file, of the content), and where the seek table begins."""
        size = self._file_bytes
        footer = self._read(max(0, size - _FOOTER.size), _FOOTER.size)
        count, flags, magic = _FOOTER.unpack(footer) if len(footer) == _FOOTER.size else (0, 0, 0)
        if magic != _SEEKABLE or flags & _UNKNOWN_FLAGS:
            raise self._damage(
                max(0, size - _FOOTER.size), "end of a file of zstd frames", "a seek table", footer.hex()
            )
        width = 12 if flags & _CHECKSUM_FLAG else 8
        length = count * width + _FOOTER.size
        begin = size - length - _TABLE.size
        if begin < 0:
            raise self._damage(size - _FOOTER.size, "frames in the seek table", f"those of {size} bytes", count)
        table = self._read(begin, length + _TABLE.size)
        if len(table) != length + _TABLE.size or _TABLE.unpack_from(table) != (_SKIPPABLE, length):
            raise self._damage(
                begin, "header of the seek table", _TABLE.pack(_SKIPPABLE, length).hex(), table[:8].hex()
            )
        entries = np.frombuffer(table, "<u4", count=count * width // 4, offset=_TABLE.size)
        return entries.reshape(count, width // 4)[:, :2].astype(np.int64), begin

    def _damage(self, offset: int, what: str, expected: object, actual: object) -> CorruptCommitError:
        return CorruptCommitError(self._path, offset, what, expected, actual)


def _running(sizes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Where each of the parts begins, and where the last one ends."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends


def _load(path: str, extra: str) -> Any:
    try:
        import zstandard  # noqa: PLC0415  # an extra that only compressed files need
    except ImportError as error:
        raise ConfigError(f"{path} is compressed; reading it needs zstandard; run: {install_command(extra)}") from error
    return zstandard
