"""Zigzag varints, read at many places of a buffer at once.

A varint has seven bits a byte, the lowest first; the last byte is below 0x80. Eight bytes are read at a time. Nearly
all varints in records have one byte or two. Those with more are marked as rare, and read by ``read_any``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]
    Words = npt.NDArray[np.uint64]

PADDING = 16
"""Bytes that must follow the last varint of a buffer."""

LONGEST = (1 << 31) - 1
"""The highest length that a varint may state."""

NULL = 1
"""The raw length of a null: the varint of -1."""

MOST_BYTES = 10  # of a number of 64 bits

_STOPS = np.uint64(0x8080_8080_8080_8080)  # the bits that are zero in the last byte of a varint
_ONE_BYTE, _TWO_BYTES = np.uint64(0x80), np.uint64(0x8000)
_LOW, _HIGH = np.uint64(0x7F), np.uint64(0x3F80)
_ONE = np.uint64(1)
_BYTE = np.uint64(8)


class Varints:
    """The varints of one buffer. ``end`` is where they end: PADDING bytes before the buffer does."""

    @classmethod
    def up_to(cls, end: int, data: memoryview) -> Varints:
        """The varints of ``data``, the last of which ends at ``end``: of a copy, if too few bytes follow."""
        return cls(data if len(data) >= end + PADDING else memoryview(b"".join([data[:end], bytes(PADDING)])))

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.end = len(data) - PADDING
        self.bytes = np.frombuffer(data, np.uint8)
        self.pairs: npt.NDArray[np.uint16] = np.ndarray((len(data) - 1,), "<u2", data, strides=(1,))
        """Each two bytes."""
        self._words: Words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))

    def words(self, places: Int64s) -> Words:
        """Eight bytes from each place on. Places after the end are those at the end."""
        return self._words[np.minimum(places, self.end)]

    def read(self, places: Int64s, rare: Bools) -> tuple[Int64s, Int64s]:
        """The raw numbers at ``places``, and the places after them. Adds to ``rare`` those that it cannot read."""
        return take(self.words(places), places, rare)

    def read_any(self, places: Int64s) -> tuple[Int64s, Int64s]:
        """The raw numbers at ``places``, of any length, and the places after them."""
        raw, sizes = np.zeros(len(places), np.uint64), np.zeros(len(places), np.int64)
        at = np.minimum(places, self.end)
        more = np.ones(len(places), np.bool_)
        for step in range(MOST_BYTES):
            part = self.bytes[at + step]
            raw |= ((part & 0x7F).astype(np.uint64) << np.uint64(7 * step)) * more
            sizes += more
            more &= part >= 0x80
            if not more.any():
                break
        return raw.view(np.int64), places + sizes


def take(words: Words, places: Int64s, rare: Bools) -> tuple[Int64s, Int64s]:
    """The raw number at the start of each word, and the places after them; ``words`` lose the number's bytes."""
    stops = ~words & _STOPS
    stop = stops & (~stops + _ONE)
    raw = words & _LOW
    after = places + 1
    two = stop != _ONE_BYTE
    if two.any():
        raw |= (words >> _ONE & _HIGH) * two
        rare |= stop - _ONE >= _TWO_BYTES  # wraps if there is no stop in eight bytes
        words >>= _BYTE << two
        after += two
    else:
        words >>= _BYTE
    return raw.view(np.int64), after


def signed(raw: Int64s) -> Int64s:
    """The numbers, with zigzag undone."""
    return (raw.view(np.uint64) >> _ONE).view(np.int64) ^ -(raw & 1)
