"""SpacetimeDB's log segments, made from the description of their bytes."""

from __future__ import annotations

import struct

from litelog.codec.checksum import crc32c
from litelog.formats.spacetimedb import SpacetimeDBFormat

HEADERS = {version: bytes.fromhex("286473295e32") + bytes([version, 0, 0, 0]) for version in (0, 1)}
"""The header of a log segment, by version."""


FRAME_BYTES = 4096
"""How many bytes of content a frame of a compressed log segment holds."""


def segment_name(first: int) -> str:
    """The file name of the log segment that begins with transaction ``first``."""
    return f"{first:020d}.stdb.log"


def encode_commit(first: int, records: bytes, count: int = 1, epoch: int = 0, version: int = 1) -> bytes:
    """A commit of ``count`` transactions."""
    numbers = struct.pack("<QQ", first, epoch) if version else struct.pack("<Q", first)
    commit = numbers + struct.pack("<HI", count, len(records)) + records
    return commit + crc32c(commit).to_bytes(4, "little")


def read_slowly(data: bytes) -> list[tuple[int, int, int, bytes, int]]:
    """The commits of a whole log segment: first transaction, epoch, n, records, checksum."""
    version, at, found = data[6], 10, []
    assert data[:10] == HEADERS[version]
    while at < len(data):
        first, epoch = struct.unpack_from("<QQ", data, at) if version else (*struct.unpack_from("<Q", data, at), 0)
        place = at + (16 if version else 8)
        count, length = struct.unpack_from("<HI", data, place)
        end = place + 6 + length
        (checksum,) = struct.unpack_from("<I", data, end)
        assert checksum == crc32c(data[at:end])
        found.append((first, epoch, count, data[place + 6 : end], checksum))
        at = end + 4
    return found


def compress(data: bytes) -> bytes:
    """A log segment as the crate compresses it: frames of 4,096 bytes of content, and their seek table."""
    import zstandard  # an extra

    pieces = [data[at : at + FRAME_BYTES] for at in range(0, len(data), FRAME_BYTES)]
    frames = [zstandard.ZstdCompressor().compress(piece) for piece in pieces]
    entries = (struct.pack("<II", len(frame), len(piece)) for frame, piece in zip(frames, pieces, strict=True))
    table = b"".join(entries) + struct.pack("<IBI", len(frames), 0, 0x8F92EAB1)
    return b"".join(frames) + struct.pack("<II", 0x184D2A5E, len(table)) + table


def logical_bytes(data: bytes) -> bytes:
    """The logical bytes of a file that may be compressed."""
    opened = SpacetimeDBFormat().open_logical("", lambda offset, length: data[offset : offset + length], len(data))
    return data if opened is None else opened.read(0, opened.size())
