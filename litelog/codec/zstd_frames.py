"""zstd frames: compresses one, finds it in bytes from outside, and decompresses it.

zstandard, an extra, is imported on first use. A frame states the size of its content and ends with a checksum of it. A
skippable frame may precede it: it pads a frame that would hold more than ``MAX_EXPANSION`` times its own bytes.

Specified in litelog/objects/README.md#zstd-frames.
"""

from __future__ import annotations

import threading
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

import xxhash

from litelog.codec.lz4_frames import MAX_EXPANSION, MAX_FRAME_BYTES, Frame, FrameError, skippable_end, skippable_frame
from litelog.errors import ConfigError
from litelog.installation import install_command
from litelog.native.calls import make_bytes

if TYPE_CHECKING:
    from typing_extensions import Buffer

EXTRA = "zstd"
"""The extra of litelog that installs zstandard."""

LEVEL = 1
PARAMETERS = {"window_log": 18, "hash_log": 15, "min_match": 7}
"""What differs from zstd's level: twice the places to remember, in a window whose bytes stay in the cache. Compared
with a window of 1 MiB and matches of six bytes, most objects have the same size within 1 %, in 4 to 20 % less time.
Matches of six bytes make rows of random words 5 % smaller, and lines of JSON 1 % larger. Level 3 takes two to three
times as long as level 1."""

NOISY_PARAMETERS = {"window_log": 18, "hash_log": 15, "min_match": 4, "target_length": 5}
"""The same for bytes of which most are as good as random. Short matches are looked for among them, and what does not
match is skipped faster and has no Huffman code. Compared as above, rows of random bytes and words are 1 % smaller, in
two thirds to four fifths of the time; numbers in floating point are 7 % larger, in less than half of it."""

MAX_WINDOW_BYTES = 8 << 20
"""The largest window that a reader accepts: what zstd asks each decoder to support."""

_MAGIC = b"\x28\xb5\x2f\xfd"
_MOST_HEADER_BYTES = 18
_PAD_HEAD_BYTES = 8
_BLOCK_HEAD_BYTES, _CHECKSUM_BYTES = 3, 4
_ONE_BYTE_REPEATED = 1
_PIECES, _PIECE_BYTES = 64, 64
_LEAST_SAVED = 8


def zstandard_problem() -> str | None:
    """Why zstd frames cannot be used here, with the command that helps; None if they can."""
    try:
        _load()
    except ConfigError as error:
        return str(error)
    return None


def compress_zstd_frame(data: Buffer) -> bytes:
    """Compress ``data``, which is not empty, to one frame."""
    view, tools = memoryview(data).cast("B"), _tools()
    frame: bytes = (tools.noise_compressor if _is_noisy(view) else tools.compressor).compress(view)
    least = -(-len(view) // MAX_EXPANSION)
    if len(frame) >= least:
        return frame
    return skippable_frame(bytes(max(0, least - len(frame) - _PAD_HEAD_BYTES))) + frame


def zstd_checksum(data: Buffer) -> int:
    """The content checksum of a frame of ``data``: the lower half of its XXH64."""
    return xxhash.xxh64_intdigest(data) & 0xFFFF_FFFF


def find_zstd_frame(data: Buffer) -> Frame:
    """The only data frame of ``data``, which ends where the data ends. Raises FrameError if its head and those of its
    blocks show no such frame; ``decompress_zstd_frame`` checks what the blocks hold."""
    view = memoryview(data)
    start = skippable_end(view)
    if view[start : start + len(_MAGIC)] != _MAGIC:
        raise FrameError(start, "is not one zstd frame")
    zstandard = _load()
    head = view[start : start + _MOST_HEADER_BYTES]
    try:
        stated, head_bytes = zstandard.get_frame_parameters(head), zstandard.frame_header_size(head)
    except zstandard.ZstdError as error:
        raise FrameError(start, str(error)) from error
    if not stated.has_checksum or stated.dict_id or stated.window_size > MAX_WINDOW_BYTES:
        raise FrameError(start, "has no content checksum, needs a dictionary, or needs too large a window")
    if stated.content_size > MAX_FRAME_BYTES:  # also if it is not stated
        raise FrameError(start, f"content of {stated.content_size} bytes is over the limit, or not stated")
    end = _find_end(view, start + head_bytes)
    if end != len(view):
        raise FrameError(min(end, len(view)), "frame is cut off" if end > len(view) else "unused data after the frame")
    return Frame(start, end, stated.content_size, skippable=False)


def decompress_zstd_frame(data: Buffer, frame: Frame, into: memoryview | None = None) -> memoryview:
    """Decompress ``frame``, which ``find_zstd_frame`` found. Raises FrameError if it does not hold what its head and
    its checksum state. ``into``: receives the content, and has ``frame.size`` bytes; None: a new buffer.

    libzstd writes there at once, as it is given a whole frame and room for its content. It checks both.
    """
    content = memoryview(make_bytes(frame.size)) if into is None else into
    try:
        written = _tools().decompressor.stream_reader(memoryview(data)[frame.start : frame.end]).readinto(content)
    except _load().ZstdError as error:
        raise FrameError(frame.start, str(error)) from error
    if written != frame.size:
        raise FrameError(frame.start, f"{written} bytes of content, not {frame.size}")
    return content


def _find_end(view: memoryview, at: int) -> int:
    """Where a frame ends, with its checksum, whose blocks begin at ``at``; behind ``view`` if it is cut off."""
    is_last = 0
    while not is_last:
        head = int.from_bytes(view[at : at + _BLOCK_HEAD_BYTES], "little")
        if at + _BLOCK_HEAD_BYTES > len(view):
            break
        is_last, kind, size = head & 1, head >> 1 & 3, head >> 3
        at += _BLOCK_HEAD_BYTES + (1 if kind == _ONE_BYTE_REPEATED else size)
    return at + _CHECKSUM_BYTES


def _is_noisy(data: memoryview) -> bool:
    """Whether a Huffman code would save less than an eighth of ``data``, judged by pieces of it."""
    step = max(_PIECE_BYTES, len(data) // _PIECES)
    sample = b"".join([data[at : at + _PIECE_BYTES] for at in range(0, len(data), step)])
    code = zlib.compressobj(1, wbits=-9, memLevel=6, strategy=zlib.Z_HUFFMAN_ONLY)
    coded = len(code.compress(sample)) + len(code.flush())
    return coded * _LEAST_SAVED > len(sample) * (_LEAST_SAVED - 1)


def _load() -> Any:
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"sealed segments with zstd need zstandard; run: {install_command(EXTRA)}") from error
    return zstandard


class _Tools(threading.local):
    """zstd's own objects, which threads must not share."""

    def __init__(self) -> None:
        zstandard = _load()
        self.compressor = _make_compressor(zstandard, PARAMETERS)
        self.noise_compressor = _make_compressor(zstandard, NOISY_PARAMETERS)
        self.decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)


def _make_compressor(zstandard: Any, parameters: dict[str, int]) -> Any:
    made = zstandard.ZstdCompressionParameters.from_level(LEVEL, write_checksum=True, **parameters)
    return zstandard.ZstdCompressor(compression_params=made)


@cache
def _tools() -> _Tools:
    return _Tools()
