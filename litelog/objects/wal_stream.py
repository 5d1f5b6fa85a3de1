"""A stream of WAL segments, as a daemon sends the log that it serves. Bytes in, WAL segments out, and back.

skippable frame   an announcement, JSON in UTF-8: position, size and digest of the WAL segment that follows
WAL segment       as litelog.objects.wal_segment has it

An announcement without a position is a sign of life, or ends the stream: with ``end``, or with ``error``. A stream that
ends without either broke off. An LZ4 reader skips announcements and headers, and gives the log's bytes.

Specified in litelog/live/README.md#wal-segments.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, unquote_to_bytes

from litelog.codec.decoding import JsonLimits, naming, parse_json, require_fields
from litelog.codec.lz4_frames import skippable_frame
from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, StoreError
from litelog.formats import LARGEST_COMMIT_BYTES
from litelog.objects import wal_segment
from litelog.objects.layout import wal_key
from litelog.objects.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.objects.wal_segment import WalSegment

MAX_ANNOUNCEMENT_BYTES = 16 << 10
"""The largest announcement in bytes. An error has a message for people; all other fields are short."""

MAX_SEGMENT_BYTES = LARGEST_COMMIT_BYTES + LARGEST_COMMIT_BYTES // 8 + (1 << 20)
"""The largest WAL segment that a reader accepts, in bytes: the largest commit, incompressible, and some room."""

BEFORE_BYTES = 4 << 10
"""A mirror states the SHA-256 of so many bytes before its position, or of all that its log segment has there. The
CRC-32C of commits that end with their own does not show what they hold."""

BEFORE_HEADER, SEGMENT_HEADER = "litelog-before", "litelog-segment-before"
"""The headers in which a mirror states that, and the same of the end of the log segment before."""

DIGEST = re.compile("[0-9a-f]{64}")
SEGMENT_BEFORE = re.compile("([0-9a-f]{64}) ([0-9]{1,18}) ([^ ]{1,765})")
"""A log segment in SEGMENT_HEADER. Its name is percent-encoded."""

_LIMITS = JsonLimits(size=MAX_ANNOUNCEMENT_BYTES, values=32, texts=32, containers=4, depth=2)
_HEAD_BYTES = 8
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StreamError:
    """Why the daemon ended the stream: an HTTP status, and a message for people."""

    http_status: int
    message: str


@dataclass(frozen=True, slots=True)
class SegmentBefore:
    """The end of a finished log segment, as a mirror has it."""

    file: str
    size: int
    digest: str
    """SHA-256, hex, of its last BEFORE_BYTES, or of all that it has."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError."""
        match = SEGMENT_BEFORE.fullmatch(text)
        if match is None:
            raise ValueError("must be a SHA-256 in hex, a size in bytes and a percent-encoded name")
        digest, size, file = match.groups()
        return cls(os.fsdecode(unquote_to_bytes(file)), int(size), digest)

    def __str__(self) -> str:
        return f"{self.digest} {self.size} {quote(os.fsencode(self.file), safe='')}"


@dataclass(frozen=True, slots=True)
class MirrorEnd:
    """What a mirror has at its end, before its position."""

    digest: str | None = None
    """SHA-256, hex, of the last BEFORE_BYTES in the log segment of the position, or of all there; None: there are
    none, or they are not to be compared."""
    segment: SegmentBefore | None = None
    """The log segment before, if that one has fewer than BEFORE_BYTES before the position."""


def announced(position: Position, body: Sequence[Buffer], digest: str | None = None) -> list[Buffer]:
    """Return the WAL segment of that position, whose buffers are ``body``, after its announcement. ``digest``: its
    SHA-256, if that is known."""
    fields = {"position": str(position), "size": sum(memoryview(buffer).nbytes for buffer in body)}
    return [_announcement({**fields, "digest": digest or wal_segment.digest(body)}), *body]


def sign_of_life() -> bytes:
    """Return the bytes to send while no WAL segment is ready."""
    return _announcement({})


def end() -> bytes:
    """Return what ends a stream that is whole."""
    return _announcement({"end": True})


def failure(error: Mapping[str, object]) -> bytes:
    """Return what ends a stream that cannot continue. ``error``: ``http_status`` and ``message``, and more."""
    return _announcement({"error": {**error, "message": str(error["message"])[: MAX_ANNOUNCEMENT_BYTES // 16]}})


def read_stream(url: str, stream: BinaryIO) -> Iterator[WalSegment | StreamError]:
    """Yield the WAL segments of a stream, whose digests are checked. Yield a StreamError last if there is one.

    Raises:
        StoreError: The stream broke off, or reading failed. Another attempt may help.
        CorruptObjectError: The stream is damaged.
    """
    while True:
        fields = _read_announcement(url, stream)
        if "end" in fields:
            return
        if "error" in fields:
            with naming(url, "error"):
                error = require_fields(fields["error"])
                yield StreamError(int(error["http_status"]), str(error["message"]))
            return
        if fields:
            yield _read_segment(url, stream, fields)


def _announcement(fields: Mapping[str, object]) -> bytes:
    return skippable_frame(json.dumps(fields, separators=(",", ":")).encode())


def _read_announcement(url: str, stream: BinaryIO) -> dict[str, Any]:
    head = _read(url, stream, _HEAD_BYTES)
    size = int.from_bytes(head[4:], "little")
    if head[:4] != skippable_frame(b"")[:4] or size > MAX_ANNOUNCEMENT_BYTES:
        raise CorruptObjectError(url, "no announcement where one must be")
    with naming(url, "announcement"):
        return require_fields(parse_json(_read(url, stream, size), _LIMITS))


def _read_segment(url: str, stream: BinaryIO, fields: Mapping[str, Any]) -> WalSegment:
    with naming(url, "announcement"):
        position, size, digest = Position.parse(fields["position"]), fields["size"], fields["digest"]
        if type(size) is not int or not 0 < size <= MAX_SEGMENT_BYTES:
            raise ValueError(f"size is {size}")
    segment = wal_segment.decode(key := wal_key(position), _read(url, stream, size))
    if segment.digest != digest:
        raise CorruptObjectError(f"{url}: {key}", "digest", digest, segment.digest)
    return segment


def _read(url: str, stream: BinaryIO, size: int) -> bytes:
    """Read exactly ``size`` bytes, piece by piece: no more memory than has arrived."""
    pieces: list[bytes] = []
    left = size
    while left:
        piece = stream.read(min(left, _READ_BYTES))
        if not piece:
            raise StoreError("read", url, "the stream broke off")
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
