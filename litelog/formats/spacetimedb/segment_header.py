"""The header of log segments in SpacetimeDB's format.

segment header, 10 bytes
 0  6  magic "(ds)^2"      6  1  u8 version, 0 or 1      7  1  u8 checksum algorithm, 0 = CRC-32C      8  2  zero

Specified in litelog/formats/README.md#spacetimedb.
"""

from __future__ import annotations

from litelog.errors import WrongFormatError
from litelog.formats.commit_tail import TailCheck, is_zero
from litelog.formats.log_format import Damage, Tail

MAGIC = b"(ds)^2"
SEGMENT_HEADER_BYTES = 10
VERSIONS = (0, 1)

_CRC_32C = 0


def begins_segment(head: bytes) -> bool:
    """Whether ``head``, the first bytes of a file, begins with the magic of a log segment of this format."""
    return head.startswith(MAGIC)


def read_version(name: str, data: memoryview) -> int | TailCheck:
    """The version in the header at the front of ``data``; what is there instead, if the header is not there yet.

    Raises WrongFormatError for another format's bytes, and for a version or checksum algorithm that is not known.
    """
    head = bytes(data[:SEGMENT_HEADER_BYTES])
    if is_zero(data):
        return TailCheck(Tail.ZEROS if head else Tail.NOTHING)
    written = head.rstrip(b"\0")
    if len(written) < len(MAGIC) and MAGIC.startswith(written) and is_zero(data[len(written) :]):
        return TailCheck(Tail.INCOMPLETE, Damage(0, "segment header", "a complete one", written.hex()))
    if not head.startswith(MAGIC):
        raise WrongFormatError(name, "spacetimedb", f"it starts with {head[: len(MAGIC)]!r}, not {MAGIC!r}")
    if len(head) < SEGMENT_HEADER_BYTES:
        damage = Damage(0, "length of the header", SEGMENT_HEADER_BYTES, len(head))
        return TailCheck(Tail.INCOMPLETE, damage, SEGMENT_HEADER_BYTES)
    version, algorithm, reserved = head[6], head[7], head[8:]
    if version not in VERSIONS or algorithm != _CRC_32C or any(reserved):
        reason = f"version {version}, checksum algorithm {algorithm}, reserved bytes {reserved.hex()}"
        raise WrongFormatError(name, "spacetimedb", f"{reason}; this litelog reads versions 0 and 1 with CRC-32C")
    return version
