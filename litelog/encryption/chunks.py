"""The bytes of an encrypted object: chunks that are authenticated one by one, so that any range can be read alone.

Specified in litelog/encryption/README.md#encrypted-objects.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from litelog.dataclass import dataclass
from litelog.encryption.libraries import import_cryptography
from litelog.errors import CorruptObjectError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer

MAGIC = b"LLOGENC1"
"""The first and the last bytes of an encrypted object."""

CHUNK_BYTES = 64 << 10
"""Bytes of an object in one chunk; the last one is shorter, and may be empty only if it is the only one."""

PREFIX_BYTES = 8
TAG_BYTES = 16
OVERHEAD_BYTES = PREFIX_BYTES + TAG_BYTES
RECORD_BYTES = CHUNK_BYTES + OVERHEAD_BYTES
"""Bytes of a whole chunk in the encrypted object."""

_LAST, _MORE = b"\1", b"\0"


def encrypted_size(size: int) -> int:
    """Bytes of the encrypted object that holds ``size`` bytes."""
    return 2 * len(MAGIC) + size + OVERHEAD_BYTES * max(1, -(-size // CHUNK_BYTES))


def decrypted_size(key: str, size: int) -> int:
    """Bytes that an encrypted object of ``size`` bytes holds. CorruptObjectError if no object has that size."""
    records = size - 2 * len(MAGIC)
    plain = records - OVERHEAD_BYTES * -(-records // RECORD_BYTES)
    if plain < 0 or encrypted_size(plain) != size:
        raise CorruptObjectError(key, f"no encrypted object has {size} bytes")
    return plain


class EncryptedRange(NamedTuple):
    """The bytes of an encrypted object that hold a range of its content."""

    chunk: int
    """The number of the first chunk."""
    skip: int
    """Bytes of that chunk before the range."""
    start: int
    """Where the first chunk begins in the encrypted object."""
    length: int | None
    """Bytes of the encrypted object to read, with those that show whether the last chunk ends it; None: all."""


def locate(start: int, length: int | None) -> EncryptedRange:
    """Find the chunks that hold ``length`` bytes from ``start`` on, or all bytes from ``start`` on."""
    chunk, skip = divmod(start, CHUNK_BYTES)
    chunks = None if length is None else max(1, -(-(skip + length) // CHUNK_BYTES))
    records = None if chunks is None else chunks * RECORD_BYTES + len(MAGIC)
    return EncryptedRange(chunk, skip, len(MAGIC) + chunk * RECORD_BYTES, records)


@dataclass(frozen=True, slots=True)
class ObjectCipher:
    """The cipher of one object."""

    key: str
    """The object's key, for errors."""
    secret: bytes = field(repr=False)
    """The object's own secret key of 32 bytes."""

    def encrypt(self, body: Iterable[Buffer]) -> EncryptedBody:
        """The encrypted object that holds ``body``. Its bytes are the same each time that it is iterated."""
        prefix = os.urandom(PREFIX_BYTES)
        while prefix == MAGIC:
            prefix = os.urandom(PREFIX_BYTES)
        return EncryptedBody(body, self._open(), prefix)

    def decrypter(self, chunk: int) -> Decrypter:
        """Make the decryptor of the chunks from number ``chunk`` on."""
        return Decrypter(self.key, self._open(), chunk)

    def _open(self) -> Any:
        return import_cryptography().aead.AESGCM(self.secret)


class EncryptedBody:
    """The body of an encrypted object: buffers that are made as they are taken."""

    def __init__(self, body: Iterable[Buffer], cipher: Any, prefix: bytes) -> None:
        self._body = body
        self._cipher = cipher
        self._prefix = prefix

    def __iter__(self) -> Iterator[bytes]:
        yield MAGIC
        held: Buffer | None = None
        number = 0
        for chunk in _chunks(self._body):
            if held is not None:
                yield from self._seal(number, held, _MORE)
                number += 1
            held = chunk
        yield from self._seal(number, held if held is not None else b"", _LAST)
        yield MAGIC

    def _seal(self, number: int, chunk: Buffer, flag: bytes) -> tuple[bytes, bytes]:
        return self._prefix, self._cipher.encrypt(_nonce(self._prefix, number), chunk, flag)


class Decrypter:
    """Decrypts the chunks of an object in order."""

    def __init__(self, key: str, cipher: Any, chunk: int) -> None:
        self._key = key
        self._cipher = cipher
        self._number = chunk
        self._prefix: bytes | None = None
        self.is_done = False
        """Whether the object's last chunk was decrypted."""

    def decrypt(self, record: Buffer, *, last: bool) -> bytes:
        """The content of the next chunk. Raises CorruptObjectError."""
        view = memoryview(record)
        if len(view) < OVERHEAD_BYTES:
            raise self._error("is cut off")
        prefix = bytes(view[:PREFIX_BYTES])
        if self._prefix not in (None, prefix):
            raise self._error("is of another object, or of another version of this one")
        self._prefix = prefix
        try:
            content: bytes = self._cipher.decrypt(
                _nonce(prefix, self._number), view[PREFIX_BYTES:], _LAST if last else _MORE
            )
        except import_cryptography().invalid_tag as error:
            raise self._error("is not authentic") from error
        self._number += 1
        self.is_done = last
        return content

    def _error(self, what: str) -> CorruptObjectError:
        return CorruptObjectError(self._key, f"encrypted chunk {self._number} {what}")


def _nonce(prefix: bytes, number: int) -> bytes:
    return prefix + number.to_bytes(4, "big")


def _chunks(body: Iterable[Buffer]) -> Iterator[Buffer]:
    """``body`` in buffers of CHUNK_BYTES; the last one is shorter. A buffer that is cut is not copied."""
    held: list[memoryview] = []
    size = 0
    for buffer in body:
        view = memoryview(buffer).cast("B")
        while len(view) >= CHUNK_BYTES - size:
            held.append(view[: CHUNK_BYTES - size])
            view = view[CHUNK_BYTES - size :]
            yield _join(held)
            held, size = [], 0
        if len(view):
            held.append(view)
            size += len(view)
    if size:
        yield _join(held)


def _join(views: list[memoryview]) -> Buffer:
    return views[0] if len(views) == 1 else b"".join(views)
