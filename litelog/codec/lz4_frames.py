"""LZ4 frames: compresses, walks and decompresses them. The only module that imports lz4.

Every data frame here carries its content size and a content checksum. The walk reads the frame format itself
(https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md) so that each length is known, and bounded, before a byte
is decompressed:

    4  magic 0x184D2204              or 0x184D2A50..5F, u32 size, that many bytes: a skippable frame
    1  FLG: version 01, block independence, block checksum, content size, content checksum, 0, dictionary id
    1  BD: block maximum size
    8  content size
    1  header checksum
    .  blocks: u32 size (bit 31: stored), bytes;   u32 0 ends them
    4  content checksum

Specified in litelog/objects/README.md#lz4-frames.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import lz4.block
import lz4.frame
import xxhash

from litelog.codec.checksum import crc32c
from litelog.codec.page_buffer import make_page_buffer
from litelog.dataclass import dataclass
from litelog.errors import LitelogError
from litelog.native import lz4_frame
from litelog.native.calls import address_of, make_bytes
from litelog.native.lz4_frame import MadeFrame, ReadFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    from typing_extensions import Buffer

FRAME_BYTES = 1 << 20
"""Uncompressed bytes in one frame: enough for threads to work concurrently, and few enough for the cache."""

ACCELERATION = -2
"""LZ4's search for matches: negative levels search less. Compared with level 0, objects are 3 % larger for lines of
JSON, 5 % for records that are half random and half words, and 11 % for an access log. LZ4 takes 1.4, 0.9 and 1.25 ms a
MiB instead of 1.7, 1.45 and 1.25. Sealing a MiB takes about 4.5 ms in all, so level 0 would cost up to a tenth more."""

HIGH_LEVEL = 3
"""The level of LZ4 HC. It takes about eight times as long as ``ACCELERATION``, and objects are a tenth (random bytes
and words) to a fifth (lines of JSON) smaller. Level 6 takes two thirds more time, and objects are 3 % smaller."""

MAX_FRAME_BYTES = 4 << 20
"""The largest frame that a reader accepts, uncompressed: the format's largest block."""

MAX_EXPANSION = 255
"""LZ4's highest compression ratio. It bounds a log segment's length by the size of its sealed segment."""

_MAGIC = 0x184D2204
_SKIPPABLE = 0x184D2A50
_SKIPPABLE_HEAD_BYTES = 8
_FLAGS = 0b0110_1100  # version 1, independent blocks, content size, content checksum
_FLAGS_MASK = 0b1101_1111  # our writer's choices are checked; block independence is not a matter of safety
_LARGEST_BLOCKS = 7 << 4
_BLOCK_BYTES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_CONTENT_SIZE, _CONTENT_CHECKSUM = 0b1000, 0b0100
_HEAD_BYTES = 15  # magic, FLG, BD, content size, header checksum
_STORED = 0x8000_0000


class FrameError(LitelogError):
    """Bytes are not frames as a litelog writer makes them. ``offset`` is in the buffer that was read."""

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        super().__init__(f"bad frame at byte {offset}: {reason}")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, which takes the bytes [start, end) of a buffer. ``size`` is the size of its content, uncompressed."""

    start: int
    end: int
    size: int
    skippable: bool


def compress_frame(data: Buffer, level: int = ACCELERATION) -> bytes:
    """Compress one LZ4 frame with content size and checksum.

    The checksum is added here: lz4's own takes ten times as long as xxhash, a fifth of all the work.
    """
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=level,
        block_size=lz4.frame.BLOCKSIZE_MAX4MB,
        block_linked=False,
        content_checksum=False,
        store_size=True,
    )
    head = bytearray(frame[:_HEAD_BYTES])
    if not head[4] & _CONTENT_SIZE:  # lz4 omits the size of empty content
        raise ValueError("empty data has no frame")
    head[4] |= _CONTENT_CHECKSUM
    head[-1] = _header_checksum(memoryview(head)[4:-1])
    checksum = struct.pack("<I", xxh32(data))
    return b"".join((head, memoryview(frame)[_HEAD_BYTES:], checksum))


def make_frame(data: memoryview, level: int = ACCELERATION) -> MadeFrame:
    """As ``compress_frame``, with the CRC-32C of ``data`` and of the frame."""
    if level < 0 and (compressor := _compressor()):
        made = lz4_frame.make_frame(compressor, 1 - level, data)
        if made is not None:
            return made
    return describe_frame(data, compress_frame(data, level))


def describe_frame(data: Buffer, frame: bytes) -> MadeFrame:
    """A frame of ``data``, with the CRC-32C of both."""
    return MadeFrame(frame, crc32c(data), crc32c(frame))


def store_frame(data: memoryview) -> list[Buffer]:
    """Make one LZ4 frame whose only block holds ``data`` as it is, uncompressed. The bytes are not copied."""
    if not 0 < len(data) <= MAX_FRAME_BYTES:
        raise ValueError(f"a frame holds 1 to {MAX_FRAME_BYTES} bytes, not {len(data)}")
    descriptor = struct.pack("<BBQ", _FLAGS, _LARGEST_BLOCKS, len(data))
    head = struct.pack("<I10sBI", _MAGIC, descriptor, _header_checksum(descriptor), len(data) | _STORED)
    return [head, data, struct.pack("<II", 0, xxh32(data))]


def store_frames(data: Buffer) -> list[Buffer]:
    """``data`` as frames of FRAME_BYTES each, uncompressed. The bytes are not copied."""
    return [buffer for piece in cut_frames(data) for buffer in store_frame(piece)]


def content_checksum(frame: Buffer) -> int:
    """The checksum of its content, XXH32, with which a whole frame ends."""
    return int.from_bytes(memoryview(frame)[-4:], "little")


def xxh32(data: Buffer) -> int:
    """The content checksum of a frame of ``data``."""
    return xxhash.xxh32_intdigest(data)


def compress_frames(data: Buffer, executor: Executor | None = None) -> list[bytes]:
    """``data`` as frames of FRAME_BYTES each, compressed concurrently on ``executor`` if there is one."""
    pieces = cut_frames(data)
    if executor is None or len(pieces) < 2:
        return [compress_frame(piece) for piece in pieces]
    return list(executor.map(compress_frame, pieces))


def cut_frames(data: Buffer) -> list[memoryview]:
    """``data`` in pieces of one frame each."""
    view = memoryview(data).cast("B")
    return [view[at : at + FRAME_BYTES] for at in range(0, len(view), FRAME_BYTES)]


def skippable_frame(payload: bytes) -> bytes:
    """A frame with ``payload``, which every LZ4 reader skips."""
    return struct.pack("<II", _SKIPPABLE, len(payload)) + payload


def skippable_end(view: memoryview) -> int:
    """Where the skippable frame ends with which ``view`` begins; 0 if it begins with another one. Raises FrameError."""
    if len(view) < _SKIPPABLE_HEAD_BYTES:
        return 0
    frame = _skippable_at(view, 0)
    return 0 if frame is None else frame.end


def walk_frames(data: Buffer) -> Iterator[Frame]:
    """Yield the frames of ``data``. Raises FrameError if it does not consist of frames to its last byte."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        frame = _frame_at(view, at)
        yield frame
        at = frame.end


def find_frame(data: Buffer) -> Frame:
    """The only frame of ``data``, with content. Raises FrameError if ``data`` is anything else."""
    found = list(walk_frames(data))
    if len(found) != 1 or found[0].skippable:
        raise FrameError(0, "is not one LZ4 frame")
    return found[0]


def read_frame(data: memoryview, crc: int, size: int, into: memoryview | None, *, with_crc: bool) -> ReadFrame | None:
    """Read the only frame of ``data``, whose CRC-32C is ``crc``, with content of ``size`` bytes, in one call.

    None for a frame that is not plainly as ours are, and if the compiled library cannot do that here. Then
    ``find_frame`` and ``decompress_frame`` tell more. ``into``: may receive the content, and may hold anything after
    None; None: a new buffer. ``with_crc``: whether to compute the CRC-32C of the content.
    """
    decompressor = _decompressor()
    return lz4_frame.read_frame(decompressor, data, crc, size, into, with_crc=with_crc) if decompressor else None


def decompress_known_frame(data: Buffer, frame: Frame, into: memoryview | None = None) -> memoryview:
    """``decompress_frame`` for bytes that another checksum has shown to be the writer's."""
    return decompress_frame(data, frame, known=True, into=into)


def decompress_frame(data: Buffer, frame: Frame, *, known: bool = False, into: memoryview | None = None) -> memoryview:
    """Decompress ``frame``, which holds exactly ``frame.size`` bytes.

    ``known``: another checksum has shown that the bytes are the writer's, so the content checksum is not needed.
    ``into``: may receive the content, and has ``frame.size`` bytes. The content lies elsewhere if the frame is not as
    ours are.
    """
    view = memoryview(data)[frame.start : frame.end]
    try:
        content = _decompress_only_block(view, frame, known=known, into=into) or memoryview(lz4.frame.decompress(view))
    except RuntimeError as error:
        raise FrameError(frame.start, str(error)) from error
    if len(content) != frame.size:
        raise FrameError(frame.start, f"{len(content)} bytes of content, not {frame.size}")
    return content


def decompress_joined(data: Buffer, frames: Sequence[Frame], offset: int = 0) -> memoryview:
    """Decompress frames into one buffer, without another copy. The bytes of a single frame that stores them stay where
    they are. Those of several frames lie as in a file from ``offset`` on (``make_page_buffer``)."""
    if len(frames) == 1:
        return decompress_frame(data, frames[0])
    if not frames:
        return memoryview(b"")
    content = make_page_buffer(sum(frame.size for frame in frames), offset)
    at = 0
    for frame in frames:
        room = content[at : at + frame.size]
        found = decompress_frame(data, frame, into=room)
        if found.obj is not room.obj:
            room[:] = found
        at += frame.size
    return content


def decompress_frames(data: Buffer, limit: int) -> bytes:
    """Decompress all frames in ``data``, in order. Raises FrameError if they hold more than ``limit`` bytes."""
    frames = [frame for frame in walk_frames(data) if not frame.skippable]
    if sum(frame.size for frame in frames) > limit:
        raise FrameError(0, f"more than {limit} bytes of content")
    return b"".join(decompress_frame(data, frame) for frame in frames)


def _decompress_only_block(view: memoryview, frame: Frame, *, known: bool, into: memoryview | None) -> memoryview:
    """The content of a frame that is one block, as ours are; empty for any other. A stored block is not copied."""
    (word,) = _unpack("<I", view, _HEAD_BYTES)
    end = _HEAD_BYTES + 4 + (word & ~_STORED)
    if end + 8 != len(view):
        return memoryview(b"")
    _check(view[_HEAD_BYTES - 1] == _header_checksum(view[4 : _HEAD_BYTES - 1]), frame.start, "header checksum")
    block = view[_HEAD_BYTES + 4 : end]
    content = block if word & _STORED else block_decompressor()(block, frame.size, into)
    _check(known or content_checksum(view) == xxh32(content), frame.start, "content checksum")
    return content


@cache
def _compressor() -> int:
    """The address of liblz4's own ``LZ4_compress_fast``; 0 if the package hides it."""
    return _address_of(_find_function(lz4.block.compress, "LZ4_compress_fast"))


@cache
def _decompressor() -> int:
    """The address of liblz4's own ``LZ4_decompress_safe``; 0 if the package hides it."""
    return _address_of(_find_function(lz4.block.decompress, "LZ4_decompress_safe"))


def _address_of(call: Any) -> int:
    return 0 if call is None else ctypes.cast(call, ctypes.c_void_p).value or 0


def _find_function(of: Callable[..., Any], name: str) -> Any:
    """A function of liblz4, as the extension with ``of`` has it; None if the extension hides its symbols."""
    try:
        return getattr(ctypes.CDLL(sys.modules[of.__module__].__file__), name)
    except (AttributeError, KeyError, OSError, TypeError):
        return None


@cache
def block_decompressor() -> Callable[[memoryview, int, memoryview | None], memoryview]:
    """The faster of the two decompressors below, if it works here; otherwise the other."""
    call = _find_function(lz4.block.decompress, "LZ4_decompress_safe")
    if call is None:
        return decompress_by_package
    call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    call.restype = ctypes.c_int
    return BlockDecompressor(call)


def decompress_by_package(block: memoryview, size: int, into: memoryview | None = None) -> memoryview:  # noqa: ARG001
    """Decompress a block to at most ``size`` bytes. Raises RuntimeError if it is not a block, or holds more. ``into``:
    is not used, as the package has no such way."""
    try:
        return memoryview(lz4.block.decompress(block, uncompressed_size=size))
    except lz4.block.LZ4BlockError as error:
        raise RuntimeError(str(error)) from error


class BlockDecompressor:
    """As ``decompress_by_package``, with liblz4's own function, in three quarters of the time: the package copies the
    decompressed bytes once more, and no other Python thread runs while it copies."""

    def __init__(self, call: Any) -> None:
        """``call``: ``LZ4_decompress_safe``, which writes at most as many bytes as it is given room for."""
        self._call = call

    def __call__(self, block: memoryview, size: int, into: memoryview | None = None) -> memoryview:
        """As ``decompress_by_package``. ``into``: receives the content, and has ``size`` bytes; None: a new buffer."""
        content = memoryview(make_bytes(size)) if into is None else into
        written = self._call(address_of(block), address_of(content), len(block), size)
        if written < 0:
            raise RuntimeError(f"a bad block, at or before its byte {-written}")
        return content[:written]


def _header_checksum(descriptor: Buffer) -> int:
    return (xxhash.xxh32_intdigest(descriptor) >> 8) & 0xFF


def _skippable_at(view: memoryview, start: int) -> Frame | None:
    magic, size = _unpack("<II", view, start)
    if magic & 0xFFFF_FFF0 != _SKIPPABLE:
        return None
    end = start + _SKIPPABLE_HEAD_BYTES + size
    _check(end <= len(view), start, "skippable frame is cut off")
    return Frame(start, end, size, skippable=True)


def _frame_at(view: memoryview, start: int) -> Frame:
    skippable = _skippable_at(view, start)
    if skippable is not None:
        return skippable
    (magic,) = _unpack("<I", view, start)
    _check(magic == _MAGIC, start, f"magic is {magic:#010x}")
    flags, descriptor, content_bytes = _unpack("<BBQ", view, start + 4)
    _check(flags & _FLAGS_MASK == _FLAGS & _FLAGS_MASK, start, f"flags are {flags:#04x}")
    block_bytes = _BLOCK_BYTES.get(descriptor >> 4, 0)
    _check(block_bytes > 0 and descriptor & 0x8F == 0, start, f"block descriptor is {descriptor:#04x}")
    _check(content_bytes <= MAX_FRAME_BYTES, start, f"content of {content_bytes} bytes is over the limit")
    at = start + 15
    blocks = 0
    while True:
        (word,) = _unpack("<I", view, at)
        at += 4
        if word == 0:
            break
        blocks += 1
        _check(blocks <= content_bytes // block_bytes + 1, start, "more blocks than the content has")
        at += word & ~_STORED
    end = at + 4
    _check(end <= len(view), start, "frame is cut off")
    return Frame(start, end, content_bytes, skippable=False)


def _unpack(layout: str, view: memoryview, at: int) -> tuple[int, ...]:
    if at + struct.calcsize(layout) > len(view):
        raise FrameError(at, "frame is cut off")
    return struct.unpack_from(layout, view, at)


def _check(holds: bool, at: int, reason: str) -> None:
    if not holds:
        raise FrameError(at, reason)


def decompress_foreign(data: Buffer, limit: int) -> bytes:
    """Decompress the frames of any writer, of up to ``limit`` bytes. Raises ValueError if they are damaged, or hold
    more."""
    view, parts, left = memoryview(data), list[bytes](), limit + 1
    while view and left > 0:
        frame = lz4.frame.LZ4FrameDecompressor()
        try:
            part = frame.decompress(view, max_length=left)
        except RuntimeError as error:
            raise ValueError(f"not an LZ4 frame: {error}") from None
        parts.append(part)
        left -= len(part)
        if left > 0 and not frame.eof:
            raise ValueError("an LZ4 frame that ends early")
        view = memoryview(frame.unused_data or b"")
    if left <= 0:
        raise ValueError(f"more than {limit} bytes once decompressed")
    return b"".join(parts)
