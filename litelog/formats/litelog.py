"""Our own log format: the log segment's header and name, and the format as litelog asks for it.

segment header, 64 bytes, little-endian
 0  8  magic "litelog\\n"
 8  2  u16 version = 1      10  2  u16 flags = 0      12  4  u32 header length = 64
16 16  log id (UUID)        32  8  u64 first sequence 40  8  i64 created, microseconds
48 12  zero                 60  4  u32 CRC-32C of bytes 0..60
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from uuid import UUID

from litelog.checksum import crc32c
from litelog.errors import WrongFormatError
from litelog.formats.encoding import MAX_SEQUENCE, commit_bytes, encode_columns, encode_commit

__all__ = [
    "SEGMENT_HEADER_BYTES",
    "SegmentHeader",
    "commit_bytes",
    "encode_columns",
    "encode_commit",
    "segment_name",
]

MAGIC = b"litelog\n"
VERSION = 1
SEGMENT_HEADER_BYTES = 64

_HEADER = struct.Struct("<8sHHI16sQq12sI")
_CHECKED_BYTES = SEGMENT_HEADER_BYTES - 4
_NAME = re.compile(r"([0-9]{20})\.log")


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a log segment's first 64 bytes say. ``created`` is in microseconds since 1970."""

    log_id: UUID
    first_sequence: int
    created: int

    def encode(self) -> bytes:
        """The 64 bytes."""
        fields = (MAGIC, VERSION, 0, SEGMENT_HEADER_BYTES, self.log_id.bytes, self.first_sequence, self.created)
        head = _HEADER.pack(*fields, bytes(12), 0)[:_CHECKED_BYTES]
        return head + crc32c(head).to_bytes(4, "little")

    @classmethod
    def decode(cls, name: str, head: memoryview | bytes) -> SegmentHeader:
        """The header in the first 64 bytes of ``head``; ValueError if they are damaged, WrongFormatError if not ours.

        ``name`` is the log segment's, for the error.
        """
        if len(head) < SEGMENT_HEADER_BYTES:
            raise ValueError(f"{len(head)} bytes are no header")
        magic, version, flags, length, log_id, first, created, zeros, checksum = _HEADER.unpack_from(head)
        if magic != MAGIC:
            raise WrongFormatError(name, "litelog", f"it starts with {magic!r}, not {MAGIC!r}")
        if crc32c(head[:_CHECKED_BYTES]) != checksum:
            raise ValueError(f"the header's checksum is {checksum:08x}, expected {crc32c(head[:_CHECKED_BYTES]):08x}")
        if (version, flags, length, zeros) != (VERSION, 0, SEGMENT_HEADER_BYTES, bytes(12)):
            raise WrongFormatError(name, "litelog", f"version {version}, flags {flags}, header length {length}")
        return cls(UUID(bytes=log_id), first, created)


def segment_name(first_sequence: int) -> str:
    """The file name of the log segment that starts with ``first_sequence``."""
    return f"{first_sequence:020d}.log"


def sequence_of(name: str) -> int | None:
    """The first sequence that a log segment's file name says; None for any other name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and int(match[1]) <= MAX_SEQUENCE else None
