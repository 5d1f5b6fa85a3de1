"""The content of a fragment: decompressed, and checked against the length and the SHA-1 in its name."""

from __future__ import annotations

import hashlib
import zlib
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any

from litelog.codec.compression import open_zstd
from litelog.codec.framed_snappy import IDENTIFIER, decompress_framed_snappy
from litelog.errors import CorruptObjectError
from litelog.fragments.cover import Codec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO, BinaryIO

    from litelog.fragments.cover import Fragment
    from litelog.stores.object_store import ObjectStore

CHUNK_BYTES = 1 << 20
MEMORY_BYTES = 8 << 20
"""The largest content that is kept in memory while it is checked; a larger one is kept in a temporary file."""

EXTRA = "gazette"
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_SNAPPY_CHUNK = (1 << 16) + 1024
"""The largest chunk of snappy's framing format: 64 KiB that did not compress, and some room."""


class FragmentTooShortError(CorruptObjectError):
    """A fragment holds fewer bytes than its name states."""

    def __init__(self, key: str, expected: int, actual: int) -> None:
        super().__init__(key, "content is too short: its number of bytes", expected, actual)


class FragmentTooLongError(CorruptObjectError):
    """A fragment holds more bytes than its name states."""

    def __init__(self, key: str, expected: int) -> None:
        super().__init__(key, "content is too long: its number of bytes", expected, f"more than {expected}")


def open_content(store: ObjectStore, fragment: Fragment) -> IO[bytes]:
    """The whole content of a fragment, which passed every check. The caller closes it.

    Raises FragmentTooShortError, FragmentTooLongError, another CorruptObjectError for damage, NotFoundError and
    StoreError.
    """
    kept = SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115  # the caller closes it
    try:
        for chunk in check_content(store, fragment):
            kept.write(chunk)
        kept.seek(0)
    except BaseException:
        kept.close()
        raise
    return kept


def check_content(store: ObjectStore, fragment: Fragment) -> Iterator[bytes]:
    """Yield the content of a fragment. Only at its end is it known to be right. Raises as ``open_content``."""
    expected, size, sha1 = fragment.end - fragment.begin, 0, hashlib.sha1(usedforsecurity=False)
    with store.open(fragment.key) as file:
        try:
            for chunk in _decompress(file, fragment.codec):
                size += len(chunk)
                if size > expected:
                    raise FragmentTooLongError(fragment.key, expected)
                sha1.update(chunk)
                yield chunk
        except (ValueError, zlib.error, EOFError) as error:
            raise CorruptObjectError(fragment.key, f"damaged {fragment.codec.value} content: {error}") from None
    if size < expected:
        raise FragmentTooShortError(fragment.key, expected, size)
    if sha1.hexdigest() != fragment.sha1:
        raise CorruptObjectError(fragment.key, "SHA-1 of the content", fragment.sha1, sha1.hexdigest())


def _decompress(file: BinaryIO, codec: Codec) -> Iterator[bytes]:
    """The content, in chunks of up to CHUNK_BYTES. Raises ValueError, zlib.error or EOFError for damage."""
    if codec is Codec.ZSTANDARD:
        return open_zstd(file, CHUNK_BYTES, EXTRA)
    if codec is Codec.SNAPPY:
        return _read_snappy(file)
    head = file.read(CHUNK_BYTES)
    if codec is Codec.GZIP or (codec is Codec.OFFLOADED and head.startswith(_GZIP_MAGIC)):
        return _read_gzip(head, file)
    return _read_plain(head, file)


def _read_plain(head: bytes, file: BinaryIO) -> Iterator[bytes]:
    while head:
        yield head
        head = file.read(CHUNK_BYTES)


def _read_gzip(head: bytes, file: BinaryIO) -> Iterator[bytes]:
    """The content of all members of a gzip stream."""
    stream: Any = zlib.decompressobj(wbits=31)
    while head:
        if stream.eof:
            stream = zlib.decompressobj(wbits=31)
        if chunk := stream.decompress(head, CHUNK_BYTES):
            yield chunk
        head = (stream.unused_data if stream.eof else stream.unconsumed_tail) or file.read(CHUNK_BYTES)
    if not stream.eof:
        raise EOFError("a gzip stream that ends early")


def _read_snappy(file: BinaryIO) -> Iterator[bytes]:
    """The content of a stream of snappy's framing format, chunk by chunk."""
    if file.read(len(IDENTIFIER)) != IDENTIFIER:
        raise ValueError("no stream identifier of snappy")
    while head := file.read(4):
        length = int.from_bytes(head[1:], "little")
        if len(head) < 4 or length > _MAX_SNAPPY_CHUNK:
            raise ValueError(f"a chunk of snappy of {length} bytes")
        body = file.read(length)
        if chunk := decompress_framed_snappy(memoryview(IDENTIFIER + head + body), CHUNK_BYTES, EXTRA):
            yield chunk
