"""The bytes of NetLog's log segments: the segment header, messages, and the messages inside a set.

segment header, 16 bytes, big-endian
 0  1  u8 version = 1   1  1  u8 header length = 16   2  4  u32 created, seconds since 1970   6 10  zero
message
 0  1  u8 version = 0 (high four bits) and codec: 0 plain, 1 set, 2 set in gzip, 3 set in snappy's framing format
 1  4  u32 CRC-32 (IEEE) of the payload as stored   5  4  u32 length of the payload   9  .  payload

The payload of a set is messages again. Specified in litelog/formats/README.md#netlog.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from litelog.codec.compression import decompress_gzip, peek_gzip
from litelog.codec.framed_snappy import decompress_framed_snappy
from litelog.formats.frame_chain import find_frames, read_numbers
from litelog.formats.log_format import MAX_COMMIT_BYTES
from litelog.native.layouts import Checksum, FrameLayout

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

SEGMENT_HEADER = struct.Struct(">BBI10s")
SEGMENT_HEADER_BYTES = SEGMENT_HEADER.size
VERSION = 1

MESSAGE = struct.Struct(">BII")
MESSAGE_BYTES = MESSAGE.size
"""The bytes before a payload: codec, checksum and length."""

PLAIN, SET, GZIP_SET, SNAPPY_SET = range(4)
LAST_CODEC = SNAPPY_SET

MAX_PAYLOAD_BYTES = MAX_COMMIT_BYTES - MESSAGE_BYTES

LAYOUT = FrameLayout(
    length_at=5,
    is_big_endian=True,
    other_bytes=MESSAGE_BYTES,
    fewest_bytes=MESSAGE_BYTES + 1,
    most_bytes=MAX_COMMIT_BYTES,
    checksum=Checksum.CRC32,
    checked_from=MESSAGE_BYTES,
    checksum_at=1,
)
_HELD = LAYOUT._replace(fewest_bytes=MESSAGE_BYTES, checksum=Checksum.NONE)
"""Messages in a set: they may be empty, and the set's checksum covers them."""

GZIP_MAGIC = b"\x1f\x8b"
_PEEKED_BYTES = 1 << 7


def created(head: bytes) -> int | None:
    """When a log segment was created, in seconds since 1970, as its header says; None if ``head`` is not a header."""
    if len(head) < SEGMENT_HEADER_BYTES:
        return None
    version, length, seconds, zeros = SEGMENT_HEADER.unpack_from(head)
    return seconds if (version, length, zeros) == (VERSION, SEGMENT_HEADER_BYTES, bytes(10)) else None


def unpack_set(codec: int, payload: memoryview) -> memoryview:
    """The messages of a set, decompressed.

    Raises ValueError if the payload is damaged or holds more than MAX_COMMIT_BYTES, and ConfigError if a package is
    missing.
    """
    if codec == SET:
        return payload
    if codec == SNAPPY_SET:
        return memoryview(decompress_framed_snappy(payload, MAX_COMMIT_BYTES, "netlog"))
    return memoryview(decompress_gzip(payload, MAX_COMMIT_BYTES, to_end=True))


def split_set(content: memoryview) -> tuple[Int64s, Int64s]:
    """The places and lengths of the payloads in a set. Raises ValueError if its messages do not fill it exactly."""
    bounds = find_frames(content, 0, _HELD)
    at = int(bounds[-1])
    left = len(content) - at
    if left >= MESSAGE_BYTES:
        _, _, length = MESSAGE.unpack_from(content, at)
        raise ValueError(f"a message of {length} bytes in the last {left - MESSAGE_BYTES} bytes of a set")
    if left:
        raise ValueError(f"{left} bytes after the last message of a set")
    if not at:
        raise ValueError("a set without messages")
    starts = bounds[:-1] + MESSAGE_BYTES
    return starts, bounds[1:] - starts


def find_suspects(data: memoryview, starts: Int64s, ends: Int64s) -> Int64s:
    """The numbers of the payloads at [starts, ends), none of which is empty, that ``is_set`` has to look at."""
    every, sizes = np.frombuffer(data, np.uint8), ends - starts
    first = every[starts]
    plain = np.flatnonzero((first <= LAST_CODEC) & (sizes >= 2 * MESSAGE_BYTES))
    held = read_numbers(data, ">u4", starts[plain] + LAYOUT.length_at)
    plain = plain[held <= sizes[plain] - 2 * MESSAGE_BYTES]  # another message follows the first one
    packed = np.flatnonzero((first == GZIP_MAGIC[0]) & (sizes >= len(GZIP_MAGIC)))
    packed = packed[every[starts[packed] + 1] == GZIP_MAGIC[1]]
    return np.sort(np.concatenate([plain, packed]))


def is_set(payload: memoryview) -> bool:
    """Whether the payload of a plain message is a whole set of several messages, not all of which are empty.

    Then the codec is damaged, which no checksum covers: one flipped bit turns a set into a plain message. Empty
    messages are zeros, as a record may be.
    """
    if len(payload) >= MESSAGE_BYTES and payload[0] <= LAST_CODEC:
        return _holds_messages(payload)
    if bytes(payload[:2]) != GZIP_MAGIC:
        return False
    try:
        begin = peek_gzip(payload[:_PEEKED_BYTES], MESSAGE_BYTES)
        if len(begin) < MESSAGE_BYTES:  # the stream's header is long
            begin = peek_gzip(payload, MESSAGE_BYTES)
        if len(begin) < MESSAGE_BYTES or begin[0] > LAST_CODEC:
            return False
        return _holds_messages(unpack_set(GZIP_SET, payload))
    except ValueError:
        return False


def _holds_messages(content: memoryview) -> bool:
    _, stored, length = MESSAGE.unpack_from(content)
    if zlib.crc32(content[MESSAGE_BYTES : MESSAGE_BYTES + length]) != stored:
        return False  # as nearly always
    try:
        starts, lengths = split_set(content)
    except ValueError:
        return False
    if len(starts) < 2 or not lengths.any():
        return False
    places = zip(starts.tolist(), lengths.tolist(), strict=True)
    return all(
        zlib.crc32(content[at : at + n]) == MESSAGE.unpack_from(content, at - MESSAGE_BYTES)[1] for at, n in places
    )
