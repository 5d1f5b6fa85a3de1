"""WAL segments: the object that carries a run of whole commits. Bytes in, facts out, and back.

skippable frame   the header, JSON in UTF-8, fields as in WalHeader; the last field is the CRC-32C of the others
LZ4 frames        the run's bytes, FRAME_BYTES each; no frames if the run is empty

Specified in litelog/objects/README.md#wal-segment.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from litelog.codec.checksum import crc32c
from litelog.codec.decoding import JsonLimits, naming, parse_json, require_fields
from litelog.codec.lz4_frames import (
    FrameError,
    compress_frames,
    decompress_frame,
    decompress_joined,
    skippable_frame,
    store_frames,
    walk_frames,
)
from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, NotEnoughMemoryError
from litelog.formats import LARGEST_COMMIT_BYTES
from litelog.objects.fields import (
    COUNT,
    CRC,
    SEQUENCE,
    TIMESTAMP,
    Reader,
    flag,
    number,
    optional,
    parsed,
    read_all,
    require,
    sha256,
    text,
)
from litelog.objects.layout import wal_key
from litelog.objects.position import MAX_INDEX, MAX_OFFSET, Generation, Position, generation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor

    from typing_extensions import Buffer

    from litelog.formats import Scan
    from litelog.objects.claim import Claim

_Bytes = TypeVar("_Bytes", bound="Buffer")

VERSION = 1

MAX_HEADER_BYTES = 16 << 10
"""The largest header in bytes: file names have at most 255 bytes, and all other fields are numbers."""

HEADER_LIMITS = JsonLimits(size=MAX_HEADER_BYTES, values=64, texts=64, containers=8, depth=2)
"""The header has two dozen fields."""

MAX_LENGTH_BYTES = 16 << 20
"""The most bytes of the log in one WAL segment, except for a single commit that is larger."""

LASTING_SEGMENTS = 2
"""The number of WAL segments of a generation that are never deleted: the last one, and the terminal after it."""


def may_be_remnant(first: Position | None, start: Position, count: int) -> bool:
    """Whether these WAL segments look like the remains of a generation that was pruned, or is being pruned.

    ``count`` WAL segments, from ``first`` on, are left of a generation that began at ``start``. They look so if only
    those are left that are never deleted, or if the first one is gone: retention deletes it before all others.
    """
    return count <= LASTING_SEGMENTS or first != start


@dataclass(frozen=True, slots=True)
class WalHeader:
    """The description of a WAL segment. Offsets and lengths are bytes of the log segment, uncompressed."""

    log: str
    """The log's id, 32 hex digits."""
    format: str
    generation: Generation
    owner: str
    index: int
    offset: int
    length: int
    file: str
    """The log segment's file name; empty in a terminal that knows none."""
    first: int | None
    """The first record's sequence; None without records."""
    next: int | None
    """The sequence that follows."""
    records: int
    lowest: int | None
    """The lowest record timestamp, in microseconds since 1970; None without one."""
    highest: int | None
    crc: int
    """CRC-32C of the bytes."""
    crc_total: int
    """CRC-32C of [0, offset + length) of the log segment."""
    previous: str
    """SHA-256, hex, of the preceding object in the generation."""
    shipped: int
    """Microseconds since 1970; never goes back within a generation."""
    final: bool = False
    """Whether it is the last WAL segment of its index."""
    sealed: str | None = None
    """In a ``final`` that holds no bytes and stands for a sealed segment: the SHA-256, hex, of the log segment's bytes.
    The footer of the sealed segment states the same digest."""
    check_start: int | None = None
    check_digest: str | None = None
    """SHA-256, hex, of [check_start, offset + length) of the log segment: the end of its last commit, or of several
    small ones. It distinguishes histories, which a CRC-32C cannot if commits end with their own."""
    successor: str | None = None
    """In a terminal, which ends a generation: the key of its successor's claim."""

    @classmethod
    def of(
        cls, claim: Claim, index: int, offset: int, scan: Scan | None = None, *, previous: str = "", shipped: int = 0
    ) -> WalHeader:
        """The header of a WAL segment of the claim's generation, with the records that ``scan`` found. It names no file
        and no bytes: callers set these with ``replace``."""
        return cls(
            log=claim.log,
            format=claim.format,
            generation=claim.generation,
            owner=claim.owner,
            index=index,
            offset=offset,
            length=0,
            file="",
            first=None if scan is None else scan.first,
            next=None if scan is None else scan.next,
            records=0 if scan is None else scan.records,
            lowest=None if scan is None else scan.lowest,
            highest=None if scan is None else scan.highest,
            crc=0,
            crc_total=0,
            previous=previous,
            shipped=shipped,
        )

    @property
    def position(self) -> Position:
        return Position(self.generation, self.index, self.offset)

    @property
    def path(self) -> str:
        """The log segment within the object: errors about its commits name this path."""
        return f"{wal_key(self.position)}/{self.file}"

    @property
    def end(self) -> int:
        """The offset after its bytes."""
        return self.offset + self.length

    @property
    def next_slot(self) -> Position:
        """The position of the generation's next WAL segment."""
        here = self.position
        return (
            Position(here.generation, self.index + 1, 0)
            if self.final
            else Position(here.generation, self.index, self.end)
        )


@dataclass(frozen=True, slots=True)
class WalSegment:
    """A WAL segment that passed its own checks: its header and the object in which its frames are."""

    header: WalHeader
    _digest: str
    """Its digest, if known. If empty, the digest is computed when it is needed."""
    body: memoryview

    @property
    def digest(self) -> str:
        """SHA-256 of the object, hex: the next object names it as ``previous``."""
        return self._digest or digest([self.body])

    def pieces(self) -> Iterator[memoryview]:
        """Yield the run's bytes, frame by frame, each checked; the last step checks length and CRC of the whole."""
        crc = length = 0
        try:
            for frame in walk_frames(self.body):
                if not frame.skippable:
                    piece = decompress_frame(self.body, frame)
                    crc = crc32c(piece, crc)
                    length += len(piece)
                    yield piece
        except FrameError as error:
            raise CorruptObjectError(self.key, str(error)) from error
        except MemoryError as error:
            raise NotEnoughMemoryError(self.key) from error
        self._check(length, crc)

    def data(self) -> memoryview:
        """The run's bytes, checked. Many of them lie in memory as in the log segment's pages (``make_page_buffer``)."""
        try:
            frames = [frame for frame in walk_frames(self.body) if not frame.skippable]
            content = decompress_joined(self.body, frames, self.header.offset)
        except FrameError as error:
            raise CorruptObjectError(self.key, str(error)) from error
        except MemoryError as error:
            raise NotEnoughMemoryError(self.key) from error
        self._check(len(content), crc32c(content))
        return content

    def _check(self, length: int, crc: int) -> None:
        if length != self.header.length:
            raise CorruptObjectError(self.key, "length", self.header.length, length)
        if crc != self.header.crc:
            raise CorruptObjectError(self.key, "CRC-32C", f"{self.header.crc:#010x}", f"{crc:#010x}")

    @property
    def key(self) -> str:
        return wal_key(self.header.position)


def encode(header: WalHeader, data: Buffer, executor: Executor | None = None) -> list[bytes]:
    """The object as buffers to join. ``executor`` compresses its frames concurrently."""
    return assemble(header, compress_frames(data, executor))


def encode_stored(header: WalHeader, data: Buffer) -> list[Buffer]:
    """As ``encode``, with the run's bytes uncompressed, and not copied."""
    return assemble(header, store_frames(data))


def assemble(header: WalHeader, frames: Sequence[_Bytes]) -> list[bytes | _Bytes]:
    """The object as buffers to join, from its header and the frames of its run."""
    stated = {name: value for name in WalHeader.__slots__ if (value := getattr(header, name)) is not None}
    text = json.dumps({"version": VERSION, **stated}, separators=(",", ":"))
    body = text.encode()
    return [skippable_frame(b"%s%s%d}" % (body[:-1], _HEADER_CRC, crc32c(body))), *frames]


def digest(body: Sequence[Buffer]) -> str:
    """SHA-256, hex, of an object's buffers, joined."""
    sha = hashlib.sha256()
    for buffer in body:
        sha.update(buffer)
    return sha.hexdigest()


def decode_checked(key: str, body: Buffer) -> WalSegment:
    """As ``decode``, and check the bytes, too: for callers that rely on the digest."""
    segment = decode(key, body)
    deque(segment.pieces(), maxlen=0)
    return segment


def decode(key: str, body: Buffer) -> WalSegment:
    """Decode the WAL segment in ``body``. A CorruptObjectError names ``key`` and what is wrong.

    Checks frames and their lengths, the header's types, that the header agrees with the key, and that the frames hold
    the stated length. The bytes are checked as they are decompressed (``WalSegment.pieces``).
    """
    view = memoryview(body)
    if not view:
        raise CorruptObjectError(key, "bytes of the object", "a header at least", 0)
    try:
        frames = list(walk_frames(view))
    except FrameError as error:
        raise CorruptObjectError(key, str(error)) from error
    if not frames[0].skippable or any(frame.skippable for frame in frames[1:]):
        raise CorruptObjectError(key, "frames are not one header and then data")
    header = decode_header(key, view[: frames[0].end])
    length = sum(frame.size for frame in frames[1:])
    if length != header.length:
        raise CorruptObjectError(key, "length", header.length, length)
    return WalSegment(header, "", view)


def decode_header(key: str, head: Buffer) -> WalHeader:
    """Decode the header from the first bytes of a WAL segment (MAX_HEADER_BYTES are enough). Raises
    CorruptObjectError, which names ``key``."""
    view = memoryview(head)
    size = int.from_bytes(view[4:8], "little")
    if len(view) < 8 or view[0] & 0xF0 != 0x50 or bytes(view[1:4]) != b"\x2a\x4d\x18":
        raise CorruptObjectError(key, "no header frame")
    if size > MAX_HEADER_BYTES - 8:
        raise CorruptObjectError(key, "header is too long")
    if len(view) < 8 + size:
        raise CorruptObjectError(key, "header is cut off")
    text = bytes(view[8 : 8 + size])
    with naming(key, "header"):
        _check_crc(text)
        header = _header(require_fields(parse_json(text, HEADER_LIMITS)))
    if wal_key(header.position) != key:
        raise CorruptObjectError(key, "position in the header", key, wal_key(header.position))
    return header


_FIELDS: dict[str, Reader[Any]] = {
    "log": text,
    "format": text,
    "generation": parsed(generation),
    "owner": text,
    "index": number(below=MAX_INDEX),
    "offset": number(below=MAX_OFFSET),
    "length": number(below=max(MAX_LENGTH_BYTES, LARGEST_COMMIT_BYTES) + 1),
    "file": text,
    "first": optional(SEQUENCE),
    "next": optional(SEQUENCE),
    "records": COUNT,
    "lowest": optional(TIMESTAMP),
    "highest": optional(TIMESTAMP),
    "crc": CRC,
    "crc_total": CRC,
    "previous": text,
    "shipped": COUNT,
    "final": flag,
    "sealed": optional(sha256),
    "check_start": optional(COUNT),
    "check_digest": optional(text),
    "successor": optional(text),
}
_HEADER_CRC = b',"header_crc":'


def _check_crc(text: bytes) -> None:
    """Raise ValueError if the header's CRC is missing, or is not that of its other fields."""
    fields, found, stated = text.rpartition(_HEADER_CRC)
    if not found:
        raise ValueError("has no CRC-32C")
    if stated != b"%d}" % (crc := crc32c(fields + b"}")):
        raise ValueError(f"CRC-32C is {crc}, expected {stated[:-1].decode(errors='replace')}")


def _header(fields: dict[str, Any]) -> WalHeader:
    if type(fields.get("version")) is not int or fields["version"] != VERSION:
        raise ValueError(f"version is not {VERSION}")
    header = WalHeader(**read_all(_FIELDS, fields))
    require(header.end <= MAX_OFFSET, "offset", header.offset)
    require((header.check_start or 0) <= header.end, "check_start", header.check_start)
    require(header.length > 0 or header.final or header.successor is not None, "length", header.length)
    if header.sealed is not None:
        require(header.final and not header.length and not header.records, "sealed, in one with bytes", header.sealed)
        require(header.successor is None, "successor", header.successor)
    return header
