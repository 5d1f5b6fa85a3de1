"""The compiled maker of LZ4 frames: one call compresses bytes, and computes their checksums and those of the frame."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from litelog.native.calls import address_of, make_bytes
from litelog.native.library import has_fast_checksums, load

if TYPE_CHECKING:
    from typing_extensions import Buffer

_FRAME_BYTES = 27
"""The bytes of a frame around its block."""


class MadeFrame(NamedTuple):
    """A frame, the CRC-32C of its content, and its own CRC-32C."""

    body: Buffer
    crc: int
    stored: int


def make_frame(compressor: int, acceleration: int, data: memoryview) -> MadeFrame | None:
    """Make the frame of ``data``, 1 byte to 4 MiB. ``compressor``: the address of ``LZ4_compress_fast``.

    Returns:
        None without the library, and if it would compute checksums slowly.
    """
    library = load()
    if library is None or not has_fast_checksums():
        return None
    size = len(data)
    room = size + size // 255 + 16 + _FRAME_BYTES  # as much as LZ4 may need
    body, facts = make_bytes(room), (ctypes.c_int64 * 2)()
    places = (address_of(data), size, address_of(memoryview(body)), room)
    length = _function(library)(compressor, acceleration, *places, facts)
    if length < 0:
        raise ValueError(f"a frame holds 1 byte to 4 MiB, not {size} bytes")
    del body[length:]  # returns the rest of its memory, if that is the larger part
    return MadeFrame(body, *facts)


@cache
def _function(library: ctypes.CDLL) -> ctypes._NamedFuncPointer:
    function, address, number = library.litelog_make_frame, ctypes.c_void_p, ctypes.c_int64
    function.restype = number
    function.argtypes = [address, number, address, number, address, number, address]
    return function
