"""The framing format of snappy: chunks of up to 64 KiB with a CRC-32C each, as Go's and Python's libraries write it.

stream identifier   ff 06 00 00 "sNaPpY"
chunk               u8 type, u24 length, little-endian; then that many bytes
 type 00, 01        u32 masked CRC-32C of the content; then the content as raw snappy (00), or as it is (01)
 type 80 to fe      skipped
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c
from litelog.codec.snappy_blocks import SnappyBlocks, block_size

if TYPE_CHECKING:
    from collections.abc import Iterator

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED, _PLAIN, _SKIPPED_FROM, _IDENTIFIER = 0x00, 0x01, 0x80, 0xFF
_CHUNK_BYTES = 1 << 16
_MASK_DELTA = 0xA282EAD8


def decompress_framed_snappy(data: memoryview, limit: int, extra: str) -> bytes:
    """Decompress a stream of the framing format.

    Args:
        data: The whole stream.
        limit: The most bytes that it may hold.
        extra: The extra of litelog that installs what this needs.

    Raises:
        ValueError: It is damaged, or holds more.
        ConfigError: cramjam is not installed.
    """
    if bytes(data[: len(IDENTIFIER)]) != IDENTIFIER:
        raise ValueError("no stream identifier of snappy")
    decompressor = SnappyBlocks(extra)
    contents, total = [], 0
    for kind, body in _chunks(data):
        content = _content(decompressor, kind, body)
        total += len(content)
        if total > limit:
            raise ValueError(f"more than {limit} bytes once decompressed")
        contents.append(content)
    return b"".join(contents)


def _chunks(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The chunks that hold something: type and bytes."""
    at = 0
    while at < len(data):
        kind, end = data[at], at + 4 + int.from_bytes(data[at + 1 : at + 4], "little")
        if end > len(data):
            raise ValueError(f"a chunk of snappy that ends at {end}, after the {len(data)} bytes there")
        if kind in (_COMPRESSED, _PLAIN):
            yield kind, data[at + 4 : end]
        elif kind < _SKIPPED_FROM or (kind == _IDENTIFIER and bytes(data[at:end]) != IDENTIFIER):
            raise ValueError(f"a chunk of snappy of the unknown type {kind:02x}")
        at = end


def _content(decompressor: SnappyBlocks, kind: int, body: memoryview) -> bytes:
    stated = int.from_bytes(body[:4], "little")
    content = bytes(body[4:])
    if kind == _COMPRESSED:
        size = block_size(body[4:])
        if size > _CHUNK_BYTES:
            raise ValueError(f"a chunk of snappy that states {size} bytes, more than {_CHUNK_BYTES}")
        buffer = bytearray(size)
        decompressor.decompress_into(body[4:], memoryview(buffer))
        content = bytes(buffer)
    checksum = crc32c(content)
    masked = ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & 0xFFFF_FFFF
    if len(content) > _CHUNK_BYTES or masked != stated:
        raise ValueError(f"a chunk of snappy with the checksum {masked:08x} that states {stated:08x}")
    return content
