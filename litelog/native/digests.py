"""The compiled SHA-256, of one run of bytes and of two at a time, over states of eight words."""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING

from litelog.native.library import load

if TYPE_CHECKING:
    import ctypes

BLOCK_BYTES = 64


def can_hash() -> bool:
    """Whether the library is there, and the processor has instructions for SHA-256."""
    library = load()
    return library is not None and _can_hash(library)


@cache
def _can_hash(library: ctypes.CDLL) -> bool:
    import ctypes  # noqa: PLC0415  # takes as long as the start of a small command

    address, number = ctypes.c_void_p, ctypes.c_int64
    library.litelog_can_hash.restype = library.litelog_hash.restype = library.litelog_hash_two.restype = number
    library.litelog_hash.argtypes = [address, address, number]
    library.litelog_hash_two.argtypes = [address, address, address, address, number]
    return bool(library.litelog_can_hash())


class State:
    """The eight words of a SHA-256 that is being computed."""

    def __init__(self) -> None:
        """Begin. RuntimeError where not ``can_hash``."""
        if not can_hash():
            raise RuntimeError("no SHA-256 was compiled")
        from litelog.native.calls import address_of  # noqa: PLC0415 - as above

        self._library = load()
        self._address_of = address_of
        self._words = memoryview(bytearray(struct.pack("=8I", *_FIRST_WORDS))).cast("I")
        self._at = address_of(self._words)

    def take(self, data: memoryview) -> None:
        """Take ``data``, which consists of whole blocks."""
        assert self._library is not None
        _require(self._library.litelog_hash(self._at, self._address_of(data), len(data)), data)

    def take_with(self, data: memoryview, other: State, other_data: memoryview) -> None:
        """Take ``data``, and let ``other`` take ``other_data``, which is as long: both in the time of one."""
        assert self._library is not None
        assert len(data) == len(other_data)
        places = (self._at, self._address_of(data), other._at, self._address_of(other_data))
        _require(self._library.litelog_hash_two(*places, len(data)), data)

    def digest(self) -> bytes:
        """The words, as the digest has them."""
        return struct.pack(">8I", *self._words)


_FIRST_WORDS = (
    *(0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A),
    *(0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19),
)


def _require(taken: int, data: memoryview) -> None:
    if taken != len(data):
        raise ValueError(f"{len(data)} bytes are not whole blocks, or the processor has no SHA-256")
