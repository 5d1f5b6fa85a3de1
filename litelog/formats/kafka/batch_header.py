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
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
LENGTH_AT, LENGTH_END = 8, 12
"""A batch's length counts the bytes after itself."""

CHECKED_FROM = 21
"""Where the bytes begin that the checksum covers. Base offset, length, leader epoch and magic lie before it."""

MAGIC_AT, CHECKSUM_AT = 16, 17
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

    @classmethod
    def read(cls, data: memoryview, at: int) -> RecordBatch:
        """The header at ``at``, unchecked. struct.error if it is not there as a whole."""
        return cls._make(HEADER.unpack_from(data, at))


_KINDS = (">i8", ">i4", ">i4", "i1", ">u4", ">i2", ">i4", ">i8", ">i8", ">i8", ">i2", ">i4", ">i4")
HEADER_TYPE = np.dtype(list(zip(RecordBatch._fields, _KINDS, strict=True)))
"""The header as NumPy reads it, with the names of ``RecordBatch``."""


_NUMBERS = {name: number for number, name in enumerate(RecordBatch._fields)}


@dataclass(frozen=True, slots=True)
class RecordBatches:
    """The headers of n batches, in arrays of length n."""

    places: Int64s
    """Where each batch begins in its buffer."""
    fields: Int64s
    """A row of n numbers for each field of ``RecordBatch``."""

    @classmethod
    def read(cls, data: memoryview, places: Int64s) -> RecordBatches:
        """The headers at ``places``, unchecked. Each must be there as a whole."""
        fields = np.empty((len(RecordBatch._fields), len(places)), np.int64)
        if len(places):
            every = np.ndarray((len(data) - HEADER_BYTES + 1,), HEADER_TYPE, data, strides=(1,))
            headers = every[places]
            for name, row in zip(RecordBatch._fields, fields, strict=True):
                row[:] = headers[name]
        return cls(places, fields)

    def __len__(self) -> int:
        return len(self.places)

    def take(self, chosen: Bools | slice) -> RecordBatches:
        """The chosen batches."""
        return RecordBatches(self.places[chosen], self.fields[:, chosen])

    def get(self, field: str) -> Int64s:
        """A field of all headers, under its name in ``RecordBatch``. Not to be changed."""
        numbers: Int64s = self.fields[_NUMBERS[field]]
        return numbers

    def have(self, attribute: int) -> Bools:
        """Which batches have the attribute, for example CONTROL."""
        found: Bools = self.get("attributes") & attribute != 0
        return found

    @property
    def last(self) -> Int64s:
        """The highest offset that each batch may hold."""
        return self.get("base") + self.get("last_delta")

    @property
    def ends(self) -> Int64s:
        """Where each batch ends in its buffer."""
        return self.places + self.get("length") + LENGTH_END
