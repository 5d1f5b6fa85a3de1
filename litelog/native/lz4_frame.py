"""The compiled maker and reader of LZ4 frames: one call compresses or decompresses bytes, and computes their checksums
and those of the frame."""

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

_MOST_CONTENT_BYTES = 4 << 20


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
    length = _maker(library)(compressor, acceleration, *places, facts)
    if length < 0:
        raise ValueError(f"a frame holds 1 byte to 4 MiB, not {size} bytes")
    del body[length:]  # returns the rest of its memory, if that is the larger part
    return MadeFrame(body, *facts)


class ReadFrame(NamedTuple):
    """The content of a frame with the CRC-32C that the reader expects, and what has to be compared further."""

    content: memoryview
    """It lies in the frame, if that stores it as it is."""
    checksum: int
    """The content checksum with which the frame ends. It is not computed from the content."""
    crc: int
    """The CRC-32C of the content; 0 if it was not wanted."""


def read_frame(
    decompressor: int, frame: memoryview, crc: int, size: int, into: memoryview | None, *, with_crc: bool
) -> ReadFrame | None:
    """Read a frame of one block, as ``make_frame`` makes it.

    Args:
        decompressor: The address of ``LZ4_decompress_safe``.
        frame: The frame, and nothing else.
        crc: Its own CRC-32C. A frame with another one is not decompressed.
        size: The size of its content.
        into: May receive the content, and has ``size`` bytes; None: a new buffer.
        with_crc: Whether to compute the CRC-32C of the content.

    Returns:
        None for any other frame, and for a damaged one; without the library, and if it would compute checksums slowly.
        ``into`` may hold anything then.
    """
    library = load()
    if library is None or not has_fast_checksums() or not 0 < size <= _MOST_CONTENT_BYTES:
        return None
    room, facts = memoryview(make_bytes(size)) if into is None else into, (ctypes.c_int64 * 2)()
    if room.nbytes != size or room.readonly:
        raise ValueError(f"no room for {size} bytes")
    at = _reader(library)(decompressor, address_of(frame), len(frame), crc, address_of(room), size, with_crc, facts)
    if at < 0:
        return None
    return ReadFrame(frame[at : at + size] if at else room, *facts)


@cache
def _reader(library: ctypes.CDLL) -> ctypes._NamedFuncPointer:
    function, address, number = library.litelog_read_frame, ctypes.c_void_p, ctypes.c_int64
    function.restype = number
    function.argtypes = [address, address, number, number, address, number, number, address]
    return function


@cache
def _maker(library: ctypes.CDLL) -> ctypes._NamedFuncPointer:
    function, address, number = library.litelog_make_frame, ctypes.c_void_p, ctypes.c_int64
    function.restype = number
    function.argtypes = [address, number, address, number, address, number, address]
    return function
