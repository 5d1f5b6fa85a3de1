"""The 61 bytes at the start of a Kafka record batch of version 2.

batch, big-endian
 0  8  i64 base offset        8  4  i32 length of what follows (at least 49)   12  4  i32 leader epoch
16  1  i8 magic = 2          17  4  u32 CRC-32C of everything from byte 21 on  21  2  i16 attributes
23  4  i32 last offset delta 27  8  i64 base timestamp, milliseconds           35  8  i64 highest timestamp
43  8  i64 producer id       51  2  i16 producer epoch                         53  4  i32 base sequence
57  4  i32 n records         61  .  the records, compressed as the attributes say

Specified in litelog/formats/README.md#kafka.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LENGTH_END = 12
"""The bytes before those that a batch's length counts."""

CHECKED_FROM = 21
"""Where the bytes begin that the checksum covers. Base offset, length, leader epoch and magic lie before it."""

MAGIC_AT = 16
MAGIC = 2
MIN_LENGTH = HEADER_BYTES - LENGTH_END
NO_EPOCH = -1
NO_PRODUCER = -1

CODEC_BITS = 0x07
APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""The cleaner has replaced the base timestamp with the time at which it may remove tombstones."""

MAX_SEGMENT_OFFSETS = 1 << 31
"""Kafka's indexes hold an offset in 31 bits from the log segment's base offset, so no log segment holds more."""

MAX_OFFSET = (1 << 63) - 1
MAX_MILLISECONDS = (1 << 63) // 1000 - 1
"""The last time that fits into microseconds of 64 bits. Later times are cut to it."""


class RecordBatch(NamedTuple):
    """A batch's header, decoded."""

    base: int
    length: int
    epoch: int
    magic: int
    checksum: int
    attributes: int
    last_delta: int
    base_time: int
    highest_time: int
    producer: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def next(self) -> int:
        """The lowest offset that may follow."""
        return self.base + self.last_delta + 1

    @property
    def is_control(self) -> bool:
        """Whether it holds a marker of a transaction or of the broker, and no records."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_append_time(self) -> bool:
        """Whether all its records have the time at which the broker appended them: the highest timestamp."""
        return bool(self.attributes & APPEND_TIME)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_BITS

    @property
    def rows(self) -> int:
        """The number of records that readers see."""
        return 0 if self.attributes & CONTROL else self.records

    @classmethod
    def read(cls, data: memoryview, at: int) -> RecordBatch:
        """The header at ``at``, unchecked. struct.error if it is not there as a whole."""
        return cls._make(HEADER.unpack_from(data, at))


def microseconds(milliseconds: int) -> int:
    """A batch's time in microseconds, cut to what 64 bits hold."""
    return max(-MAX_MILLISECONDS, min(milliseconds, MAX_MILLISECONDS)) * 1000
