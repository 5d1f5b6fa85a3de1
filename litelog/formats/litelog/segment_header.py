"""The header of log segments in litelog's own format.

segment header, 64 bytes, little-endian
 0  8  magic "litelog\\n"
 8  2  u16 version = 1      10  2  u16 flags = 0      12  4  u32 header length = 64
16 16  log id (UUID)        32  8  u64 first sequence 40  8  i64 created, microseconds
48 12  zero                 60  4  u32 CRC-32C of bytes 0..60

Specified in litelog/formats/README.md#segment-header.
"""

from __future__ import annotations

import struct
from uuid import UUID

from litelog.codec.checksum import crc32c
from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError, WrongFormatError
from litelog.formats.commit_tail import is_zero
from litelog.formats.litelog.commit_walk import Walk, find_commit
from litelog.formats.log_format import Damage, Expectation, Tail

MAGIC = b"litelog\n"
VERSION = 1
SEGMENT_HEADER_BYTES = 64

_HEADER = struct.Struct("<8sHHI16sQq12sI")
_CHECKED_BYTES = SEGMENT_HEADER_BYTES - 4
_FIXED = struct.pack("<HHI", VERSION, 0, SEGMENT_HEADER_BYTES)  # the fields after the magic


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The header in a log segment's first 64 bytes. ``created`` is in microseconds since 1970."""

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
        """Decode the first 64 bytes of ``head``. ``name`` is the log segment's, for errors.

        Raises ValueError if the bytes are damaged or too few, and WrongFormatError if they are another format's.
        """
        if len(head) < SEGMENT_HEADER_BYTES:
            raise ValueError(f"{len(head)} bytes are not a header")
        magic, version, flags, length, log_id, first, created, zeros, stored = _HEADER.unpack_from(head)
        checksum = crc32c(head[:_CHECKED_BYTES])
        if _is_foreign(head):
            raise WrongFormatError(name, "litelog", f"it starts with {magic!r}, not {MAGIC!r}")
        if checksum != stored:
            raise ValueError(f"its checksum is {stored:08x}, expected {checksum:08x}")
        if (magic, version, flags, length, zeros) != (MAGIC, VERSION, 0, SEGMENT_HEADER_BYTES, bytes(12)):
            raise WrongFormatError(name, "litelog", f"version {version}, flags {flags}, header length {length}")
        return cls(UUID(bytes=log_id), first, created)


def check_header(name: str, data: memoryview, sequence: int, epoch: int) -> SegmentHeader | Walk:
    """The header of a log segment that starts with ``sequence``; an empty walk if the header is not there yet.

    Raises CorruptCommitError for a damaged header that a good commit follows, and WrongFormatError for another
    format's header.
    """
    head = bytes(data[:SEGMENT_HEADER_BYTES])
    if is_zero(data):
        return Walk([], 0, sequence, epoch, Tail.ZEROS if head else Tail.NOTHING)
    if _is_foreign(head):
        raise WrongFormatError(name, "litelog", f"it starts with {head[: len(MAGIC)]!r}, not {MAGIC!r}")
    if len(head) < SEGMENT_HEADER_BYTES:
        damage = Damage(0, "length of the header", SEGMENT_HEADER_BYTES, len(head))
        if _is_prefix(head, sequence):
            return Walk([], 0, sequence, epoch, Tail.INCOMPLETE, damage, SEGMENT_HEADER_BYTES)
        return Walk([], 0, sequence, epoch, Tail.DAMAGED, damage)
    try:
        header = SegmentHeader.decode(name, head)
    except ValueError as error:
        damage = Damage(0, "segment header", "a complete one", str(error))
        if find_commit(data, 0, Expectation(sequence - 1, epoch)) is not None:
            raise CorruptCommitError(name, 0, damage.what, damage.expected, damage.actual) from error
        return Walk([], 0, sequence, epoch, Tail.DAMAGED, damage)
    if header.first_sequence != sequence:
        raise CorruptCommitError(name, 0, "first sequence in the header", sequence, header.first_sequence)
    return header


def _is_foreign(head: memoryview | bytes) -> bool:
    """Whether another format's log segment begins with ``head``.

    A partial header of litelog may be zero-filled at the end. It never starts with zeros, unless it is damaged; other
    formats do (Kafka's segments start with their first offset).
    """
    magic = bytes(head[: len(MAGIC)]).rstrip(b"\0")
    if magic or len(head) < SEGMENT_HEADER_BYTES:
        return not MAGIC.startswith(magic)
    rest = bytes(head[len(MAGIC) : SEGMENT_HEADER_BYTES])
    return any(rest) and not rest.startswith(_FIXED)


def _is_prefix(head: bytes, sequence: int) -> bool:
    """Whether ``head`` may grow into the header of a log segment that starts with ``sequence``."""
    fixed = _HEADER.pack(MAGIC, VERSION, 0, SEGMENT_HEADER_BYTES, bytes(16), sequence, 0, bytes(12), 0)
    return all(head[start:stop] == fixed[start : min(stop, len(head))] for start, stop in ((0, 16), (32, 40), (48, 60)))
