"""How frames lie in bytes, as the compiled library follows them."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Checksum(IntEnum):
    """The checksum of a frame."""

    NONE = 0
    CRC32C = 1
    CRC32 = 2


class FrameLayout(NamedTuple):
    """How frames state their length and their checksum, in 32 bits each."""

    length_at: int
    """Where a frame states its length."""
    is_big_endian: bool
    other_bytes: int
    """How many bytes of a frame its length does not count."""
    fewest_bytes: int
    """The size of the smallest frame. What is read of a frame lies in as many bytes at its start."""
    most_bytes: int
    checksum: Checksum = Checksum.NONE
    checked_from: int = 0
    """Where the bytes begin that the checksum covers. They end with the frame, or where a trailing checksum begins."""
    checksum_at: int = 0
    """Where a frame states its checksum; negative: counted from its end."""
    value_at: int = 0
    """Where a frame's value begins."""
    bytes_after_value: int = 0


class Field(NamedTuple):
    """A number that lies in the fewest bytes of every frame."""

    at: int
    width: int
    """1, 2, 4 or 8 bytes; negative for a number with a sign."""
