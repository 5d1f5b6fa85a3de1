"""Decompresses what other programs compressed: gzip, snappy, LZ4 and zstd, each with a limit before memory is taken.

snappy and zstd need packages that only some formats need; they are imported on first use.
"""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING, Any

from litelog.codec.lz4_frames import decompress_foreign
from litelog.codec.snappy_blocks import SnappyBlocks, block_size
from litelog.errors import ConfigError
from litelog.installation import install_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

XERIAL_MAGIC = b"\x82SNAPPY\0"
"""How the stream of snappy-java begins: blocks of raw snappy, each after its length."""

_XERIAL_HEADER_BYTES = 16
_GZIP_WINDOW = 31  # zlib's number for the format of gzip
_CHUNK_BYTES = 1 << 20  # taken at a time, so that a stream without a stated size takes no more than it holds


def decompress_gzip(data: memoryview, limit: int, *, to_end: bool = False) -> bytes:
    """Decompress a gzip stream of up to ``limit`` bytes.

    Raises ValueError if it is damaged, or holds more. With ``to_end``, bytes after the stream are an error, too.
    """
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        content = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise ValueError(f"not a gzip stream: {error}") from None
    _check(len(content), limit)
    if not stream.eof or (to_end and stream.unused_data):
        raise ValueError("a gzip stream that does not end where its bytes do")
    return content


def peek_gzip(data: memoryview, size: int) -> bytes:
    """Return the first ``size`` bytes of what a gzip stream holds, or all. Raises ValueError if it is damaged there."""
    try:
        return zlib.decompressobj(_GZIP_WINDOW).decompress(data, size)
    except zlib.error as error:
        raise ValueError(f"not a gzip stream: {error}") from None


def decompress_lz4(data: memoryview, limit: int) -> bytes:
    """Decompress LZ4 frames of up to ``limit`` bytes. Raises ValueError if they are damaged, or hold more."""
    return decompress_foreign(data, limit)


def decompress_snappy(data: memoryview, limit: int, extra: str) -> bytes:
    """Decompress raw snappy, or the stream of snappy-java, of up to ``limit`` bytes.

    Args:
        data: All of the compressed bytes.
        limit: The most bytes that they may hold.
        extra: The extra of litelog that installs what this needs.

    Raises:
        ValueError: They are damaged, or hold more.
        ConfigError: cramjam is not installed.
    """
    decompressor = SnappyBlocks(extra)
    blocks = list(_snappy_blocks(data))
    sizes = [block_size(block) for block in blocks]
    _check(sum(sizes), limit)
    content, at = memoryview(bytearray(sum(sizes))), 0
    for block, size in zip(blocks, sizes, strict=True):
        decompressor.decompress_into(block, content[at : at + size])
        at += size
    return bytes(content)


def decompress_zstd(data: memoryview, limit: int, extra: str) -> bytes:
    """Decompress zstd frames of up to ``limit`` bytes. Arguments and errors as in ``decompress_snappy``; the package is
    zstandard."""
    content = io.BytesIO()
    for chunk in open_zstd(data, min(_CHUNK_BYTES, limit + 1), extra):
        content.write(chunk)
        _check(content.tell(), limit)
    return content.getvalue()


def open_zstd(source: memoryview | BinaryIO, chunk_bytes: int, extra: str) -> Iterator[bytes]:
    """Decompress zstd frames from bytes or a file, in chunks of up to ``chunk_bytes``. ``extra`` and errors as in
    ``decompress_snappy``; the package is zstandard."""
    try:
        import zstandard  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise ConfigError(f"records compressed with zstd need zstandard; run: {install_command(extra)}") from error
    reader: Any = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(source, read_across_frames=True)
    try:
        while chunk := reader.read(chunk_bytes):
            yield chunk
    except zstandard.ZstdError as error:
        raise ValueError(f"not a zstd frame: {error}") from None


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    """The blocks of raw snappy in ``data``."""
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        yield data
        return
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if size > len(data) - at or not size:
            raise ValueError(f"a snappy block of {size} bytes, of which {max(0, len(data) - at)} are there")
        yield data[at : at + size]
        at += size


def _check(size: int, limit: int) -> None:
    if size > limit:
        raise ValueError(f"more than {limit} bytes once decompressed")
