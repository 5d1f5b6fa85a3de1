"""Sealed segments: one finished log segment in one object that can be read at any place. Bytes in, facts out.

data frames       the log segment's bytes, about FRAME_BYTES each, as the frame table says (``frame_table``)
skippable frame   the footer:
    8  frame head: u32 0x184D2A50, u32 number of bytes that follow
    .  document: JSON in UTF-8, compressed to LZ4 frames, fields as in SealedFooter
    2  u16 version          2  u16 0
    4  u32 bytes of the whole skippable frame
    4  u32 CRC-32C of the skippable frame up to this field
    4  magic "seal"

Version 1 has frames of LZ4. Version 2 names another codec.

Specified in litelog/objects/README.md#sealed-segment.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from litelog.codec.checksum import crc32c
from litelog.codec.decoding import JsonLimits, naming, parse_json, require_fields
from litelog.codec.frame_codecs import FrameCodec
from litelog.codec.lz4_frames import compress_frames, decompress_frames, skippable_frame
from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, UnknownVersionError
from litelog.objects.fields import (
    COUNT,
    CRC,
    SEQUENCE,
    TIMESTAMP,
    Reader,
    number,
    optional,
    parsed,
    read_all,
    require,
    sha256,
    text,
)
from litelog.objects.frame_table import FRAME_VALUES, MAX_FRAMES, MAX_MARKS, FrameTable, ShipTimes
from litelog.objects.layout import sealed_key
from litelog.objects.position import MAX_INDEX, Generation, generation

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

VERSION = 1
"""The version of a footer whose frames are LZ4."""

CODEC_VERSION = 2
"""The version of a footer that names another codec."""

TAIL_BYTES = 64 << 10
"""How many bytes of an object's end are read for its footer: enough for a GiB of log shipped in a thousand pieces."""

MAX_FOOTER_BYTES = 64 << 20
"""The most bytes that a footer takes in the object. ``MAX_DOCUMENT_BYTES`` is the limit after decompression."""

MAX_DOCUMENT_BYTES = 128 << 20

MIN_FRAME_BYTES = 16
"""The fewest bytes that a frame takes in the object, so that a small object has a small table."""

_HEAD = struct.Struct("<II")
_TRAILER = struct.Struct("<HHII4s")
_MAGIC = b"seal"
_SKIPPABLE = 0x184D2A50

MIN_OBJECT_BYTES = _HEAD.size + _TRAILER.size


@dataclass(frozen=True, slots=True)
class SealedFooter:
    """The description of a sealed segment. Offsets and lengths are bytes of the log segment, uncompressed."""

    log: str
    """The log's id, 32 hex digits."""
    format: str
    generation: Generation
    owner: str
    index: int
    file: str
    """The log segment's file name."""
    length: int
    first: int | None
    """The first record's sequence; None without records."""
    next: int | None
    """The sequence that follows; None if it is not known."""
    records: int
    lowest: int | None
    """The lowest record timestamp, in microseconds since 1970; None without one."""
    highest: int | None
    crc: int
    """CRC-32C of the uncompressed bytes."""
    digest: str
    """SHA-256, hex, of the uncompressed bytes. Snapshots and ``final`` WAL segments name it."""
    previous: str
    """The chain digest before it: SHA-256, hex, of the object before the log segment's first byte in the generation;
    empty if nothing was shipped before."""
    marks: ShipTimes
    frames: FrameTable
    codec: FrameCodec = FrameCodec.LZ4
    """Of the data frames."""

    @property
    def key(self) -> str:
        return sealed_key(self.generation, self.index)

    @property
    def path(self) -> str:
        """The log segment within the object: errors about its commits name this path."""
        return f"{self.key}/{self.file}"

    @property
    def data_bytes(self) -> int:
        """The object's bytes before its footer."""
        return self.frames.starts[-1] + self.frames.sizes[-1] if len(self.frames) else 0

    @property
    def shipped(self) -> tuple[int, int]:
        """The times at which its first and its last bytes were shipped, in microseconds since 1970."""
        return self.marks.times[0], self.marks.times[-1]


def encode_footer(footer: SealedFooter) -> bytes:
    """The footer as a skippable frame, which follows the data frames."""
    fields = {name: getattr(footer, name) for name in SealedFooter.__slots__}
    fields |= {"marks": footer.marks.to_json(), "frames": footer.frames.to_json()}
    version = CODEC_VERSION
    if footer.codec is FrameCodec.LZ4:
        version = VERSION
        del fields["codec"]
    document = b"".join(compress_frames(json.dumps(fields, separators=(",", ":")).encode()))
    size = _HEAD.size + len(document) + _TRAILER.size
    whole = skippable_frame(document + _TRAILER.pack(version, 0, size, 0, _MAGIC))
    checked = memoryview(whole)[:-8]
    return b"".join((checked, crc32c(checked).to_bytes(4, "little"), _MAGIC))


def footer_bytes(key: str, tail: Buffer, size: int) -> int:
    """The length of the footer in bytes, from the last 16 or more bytes of an object of ``size`` bytes.

    A CorruptObjectError names ``key``.
    """
    view = memoryview(tail).cast("B")
    if size < MIN_OBJECT_BYTES or len(view) < min(size, _TRAILER.size):
        raise CorruptObjectError(key, "bytes of the object", f"at least {MIN_OBJECT_BYTES}", size)
    _, _, length, _, magic = _TRAILER.unpack(view[-_TRAILER.size :])
    if magic != _MAGIC:
        raise CorruptObjectError(key, "its last bytes", _MAGIC, magic)
    if not MIN_OBJECT_BYTES <= length <= min(size, MAX_FOOTER_BYTES):
        raise CorruptObjectError(key, "length of the footer", f"up to {min(size, MAX_FOOTER_BYTES)}", length)
    return int(length)


def decode_footer(key: str, tail: Buffer, size: int) -> SealedFooter:
    """Decode the footer of an object of ``size`` bytes from its last ones, at least as many as ``footer_bytes`` says.

    CorruptObjectError, or UnknownVersionError for a newer version, names ``key`` and what is wrong. Checks the footer's
    own checksum, all types and ranges, that the columns fit each other, the object's size and its key.
    """
    view = memoryview(tail).cast("B")
    length = footer_bytes(key, view, size)
    if len(view) < length:
        raise CorruptObjectError(key, "bytes of the footer", length, len(view))
    whole = view[-length:]
    version, zero, _, stated, _ = _TRAILER.unpack(whole[-_TRAILER.size :])
    if (crc := crc32c(whole[:-8])) != stated:
        raise CorruptObjectError(key, "CRC-32C of the footer", f"{stated:#010x}", f"{crc:#010x}")
    if version not in (VERSION, CODEC_VERSION):
        raise UnknownVersionError(key, "footer", CODEC_VERSION, version)
    if zero or _HEAD.unpack(whole[: _HEAD.size]) != (_SKIPPABLE, length - _HEAD.size):
        raise CorruptObjectError(key, "the footer is in no skippable frame of its length")
    with naming(key, "footer"):
        limits = _limits(size)
        fields = parse_json(decompress_frames(whole[_HEAD.size : -_TRAILER.size], limits.size), limits)
        footer = _footer(require_fields(fields), version)
    if footer.key != key:
        raise CorruptObjectError(key, "position in the footer", key, footer.key)
    if footer.data_bytes + length != size:
        raise CorruptObjectError(key, "bytes of the object", footer.data_bytes + length, size)
    return footer


def read_footer(key: str, read: Callable[[int, int], bytes], size: int, guess: int = TAIL_BYTES) -> SealedFooter:
    """Read the footer of the object ``key`` of ``size`` bytes. ``read(start, length)`` returns a range of it.

    Makes one read of ``guess`` bytes, and a second one for the rest only if the footer is longer. Raises as
    ``decode_footer``, and what ``read`` raises.
    """
    first = min(size, max(guess, _TRAILER.size))
    tail = _read_exactly(key, read, size - first, first)
    length = footer_bytes(key, tail, size)
    if length > first:
        tail = _read_exactly(key, read, size - length, length - first) + tail
    return decode_footer(key, tail, size)


def _read_exactly(key: str, read: Callable[[int, int], bytes], start: int, length: int) -> bytes:
    found = read(start, length)
    if len(found) != length:
        raise CorruptObjectError(key, f"bytes at {start}", length, len(found))
    return found


def _limits(size: int) -> JsonLimits:
    """The JSON limits for the footer of an object of ``size`` bytes: a value in each column for each frame and mark."""
    frames = min(size // MIN_FRAME_BYTES, MAX_FRAMES)
    values = FRAME_VALUES * frames + 2 * MAX_MARKS + 100
    return JsonLimits(size=MAX_DOCUMENT_BYTES, values=values, texts=100, containers=100, depth=3)


def _previous(name: str, value: object) -> str:
    """Read the digest of the object before; empty if there is none."""
    return "" if value == "" else sha256(name, value)


_FIELDS: dict[str, Reader[Any]] = {
    "log": text,
    "format": text,
    "generation": parsed(generation),
    "owner": text,
    "file": text,
    "digest": sha256,
    "previous": _previous,
    "index": number(below=MAX_INDEX),
    "length": COUNT,
    "records": COUNT,
    "crc": CRC,
    "first": optional(SEQUENCE),
    "next": optional(SEQUENCE),
    "lowest": optional(TIMESTAMP),
    "highest": optional(TIMESTAMP),
}


def _codec(name: str, value: object) -> FrameCodec:
    """Read the codec that a footer of version 2 names. Any further one will have its own version."""
    require(value == FrameCodec.ZSTD, name, value)
    return FrameCodec.ZSTD


def _footer(fields: dict[str, Any], version: int) -> SealedFooter:
    names = set(SealedFooter.__slots__) - ({"codec"} if version == VERSION else set())
    if set(fields) != names:
        raise ValueError("has fields that are not a footer's, or lacks some")
    values = read_all(_FIELDS, fields)
    marks = ShipTimes.from_json(fields["marks"], values["length"])
    codec = _codec("codec", fields["codec"]) if version == CODEC_VERSION else FrameCodec.LZ4
    footer = SealedFooter(**values, marks=marks, frames=FrameTable.from_json(fields["frames"]), codec=codec)
    _check_sums(footer)
    return footer


def _check_sums(footer: SealedFooter) -> None:
    """Check that the statements on the whole equal the sums over the frames."""
    frames = footer.frames
    known = [(low, high) for low, high in zip(frames.lowests, frames.highests, strict=True) if low is not None]
    lowest = min((low for low, _ in known), default=None)
    highest = max((high for _, high in known if high is not None), default=None)
    require(sum(frames.lengths) == footer.length, "length", footer.length)
    require(sum(frames.records) == footer.records, "records", footer.records)
    require((lowest, highest) == (footer.lowest, footer.highest), "lowest and highest", (lowest, highest))
    require((footer.first is None) == (footer.records == 0), "first", footer.first)
    if footer.first is not None:
        require(footer.first == frames.firsts[0], "first", footer.first)
        follows = footer.next is not None and footer.first < footer.next >= frames.firsts[-1]
        require(follows, "next", footer.next)
