"""Reads the objects of a replica as they are stored, and checks that the bytes are those that were written.

A sealed segment states checksums of all of its bytes. The other objects state checksums of what they hold, and LZ4 can
encode the same content in several ways. So a WAL segment also has to have the SHA-256 that the next one names, and an
object that nothing names is read until two reads agree. ``verify`` checks whether the objects fit each other.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, StoreError
from litelog.objects import claim as claims
from litelog.objects import layout, wal_segment
from litelog.objects import snapshot as snapshots
from litelog.objects.checkpoint_chain import decode_stored
from litelog.objects.frame_table import frames_of
from litelog.objects.sealed_decoding import decode_frames
from litelog.objects.sealed_segment import SealedFooter, decode_footer, read_footer
from litelog.reading.fetch import READ_ATTEMPTS, read_verified
from litelog.stores.object_store import ByteRange, ObjectInfo, read_bounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer

    from litelog.objects.wal_segment import WalHeader
    from litelog.stores.object_store import ObjectStore

GROUP_BYTES = 4 << 20
"""The approximate size of one ranged GET of a sealed segment, in bytes; more if a commit is larger."""

GROUP_LOG_BYTES = 12 << 20
"""The most bytes of the log in one ranged GET; more if a commit is larger. They are held while they are checked."""


@dataclass(frozen=True, slots=True)
class VerifiedObject:
    """An object to put elsewhere."""

    info: ObjectInfo
    body: Iterable[Buffer]
    """Its bytes. The body of a sealed segment reads and checks them as it is iterated, and raises CorruptObjectError,
    NotFoundError or StoreError before its end if they are not what its footer states."""
    digest: str = ""
    """SHA-256, hex, of the bytes; empty for a sealed segment."""
    names: tuple[str, ...] = ()
    """The keys of objects that it names. They must be there when it is read."""
    header: WalHeader | None = None
    """Of a WAL segment."""


def read_object(store: ObjectStore, info: ObjectInfo) -> VerifiedObject:
    """Read an object of a replica, and check it.

    Args:
        store: The replica's object store.
        info: The object's key and size in the listing. The key is in the layout.

    Returns:
        The object. A sealed segment is read when its body is iterated. A WAL segment still has to pass ``chained``.

    Raises:
        CorruptObjectError: The object is damaged.
        UnknownVersionError: A newer litelog wrote it.
        NotFoundError: It is gone.
        StoreError: A request failed.
    """
    if layout.parse_sealed(info.key) is not None:
        return VerifiedObject(info, SealedBody(store, info.key, info.size))
    found = _read_once(store, info)
    return found if found.header is not None else _agreed(store, found)


def chained(store: ObjectStore, objects: Iterable[VerifiedObject]) -> Iterator[VerifiedObject]:
    """Yield the snapshots and WAL segments of one generation, in the given order. Each WAL segment has the bytes whose
    SHA-256 the next one names.

    Raises CorruptObjectError if a WAL segment never has these bytes, NotFoundError and StoreError.
    """
    waiting: tuple[VerifiedObject, WalHeader] | None = None  # a WAL segment that the next one confirms
    snapshots: list[VerifiedObject] = []  # after that WAL segment
    for found in objects:
        if found.header is not None:
            if waiting is not None:
                yield _confirmed(store, *waiting, found.info.key, found.header)
                yield from snapshots
            waiting, snapshots = (found, found.header), []
        elif waiting is not None:
            snapshots.append(found)
        else:
            yield found
    if waiting is not None:
        yield _agreed(store, waiting[0])
        yield from snapshots


def _confirmed(
    store: ObjectStore, found: VerifiedObject, header: WalHeader, next_key: str, following: WalHeader
) -> VerifiedObject:
    """A WAL segment, read again if ``following``, the header of ``next_key``, names another SHA-256."""
    if following.position != header.next_slot:
        return _agreed(store, found)
    wanted, digest = following.previous, found.digest
    for _ in range(READ_ATTEMPTS - 1):
        if found.digest == wanted:
            break
        found = _read_once(store, found.info)
    if found.digest != wanted:
        raise CorruptObjectError(found.info.key, f"SHA-256, which {next_key} names,", wanted, digest)
    return found


def _agreed(store: ObjectStore, found: VerifiedObject) -> VerifiedObject:
    """The object as two reads give it."""
    seen = {found.digest}
    for _ in range(READ_ATTEMPTS - 1):
        again = _read_once(store, found.info)
        if again.digest in seen:
            return again
        seen.add(again.digest)
    raise CorruptObjectError(found.info.key, "each read gives other bytes")


def _read_once(store: ObjectStore, info: ObjectInfo) -> VerifiedObject:
    """Read a claim, a checkpoint, a snapshot or a WAL segment, up to three times if its checks fail."""

    def check(body: bytes) -> VerifiedObject:
        if len(body) != info.size:
            raise CorruptObjectError(info.key, "bytes of the object", info.size, len(body))
        if layout.parse_wal(info.key) is not None:
            segment = wal_segment.decode_checked(info.key, body)
            return VerifiedObject(info, (body,), segment.digest, _named_by(segment.header), segment.header)
        return VerifiedObject(info, (body,), wal_segment.digest([body]), _named_in(info.key, body))

    return read_verified(partial(read_bounded, store, info.key, size=info.size), check)


def _named_by(header: WalHeader) -> tuple[str, ...]:
    if header.sealed is not None:
        return (layout.sealed_key(header.generation, header.index),)
    if header.successor is not None and layout.parse_claim(header.successor) is not None:
        return (header.successor,)
    return ()


def _named_in(key: str, body: bytes) -> tuple[str, ...]:
    """Check a claim, a checkpoint or a snapshot, and return the keys of a snapshot's sealed segments."""
    if layout.parse_claim(key) is not None:
        claims.decode(key, body)
        return ()
    if layout.parse_checkpoint(key) is not None:
        decode_stored(key, body)
        return ()
    return tuple(entry.key for entry in snapshots.decode(key, body).segments)


class SealedBody:
    """The bytes of a sealed segment. Each iteration reads them by ranged GETs, and checks them against the footer: each
    frame, and at the end the SHA-256 of the log segment."""

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        self._store = store
        self._key = key
        self._size = size

    def __iter__(self) -> Iterator[Buffer]:
        footer = read_verified(lambda: None, lambda _: read_footer(self._key, self._read, self._size))
        sha = hashlib.sha256()
        for group in footer.frames.groups(footer.frames.runs(), GROUP_LOG_BYTES, GROUP_BYTES):
            stored = footer.frames.stored_range(frames_of(group))
            body, content = read_verified(
                partial(self._read, stored.start, len(stored)), partial(self._decode, footer, group)
            )
            for data in content:
                sha.update(data)
            yield body
        if (digest := sha.hexdigest()) != footer.digest:
            raise CorruptObjectError(self._key, "SHA-256 of the log segment", footer.digest, digest)
        yield read_verified(
            partial(self._read, footer.data_bytes, self._size - footer.data_bytes), partial(self._check_footer, footer)
        )

    def _decode(self, footer: SealedFooter, group: list[range], body: bytes) -> tuple[bytes, list[memoryview]]:
        """The bytes of some runs of frames, and what they hold."""
        whole = frames_of(group)
        if len(body) != (size := len(footer.frames.stored_range(whole))):
            raise CorruptObjectError(self._key, f"bytes of frames {whole.start} to {whole.stop - 1}", size, len(body))
        view = memoryview(body)
        parts = ((run, footer.frames.stored_part(view, whole, run)) for run in group)
        return body, [decode_frames(self._key, footer, run, part) for run, part in parts]

    def _check_footer(self, footer: SealedFooter, tail: bytes) -> bytes:
        if decode_footer(self._key, tail, self._size).digest != footer.digest:
            raise CorruptObjectError(self._key, "the footer changed between two reads")
        return tail

    def _read(self, start: int, length: int) -> bytes:
        return read_bounded(self._store, self._key, ByteRange(start, length), limit=length, size=length)


def is_same(store: ObjectStore, other: ObjectStore, key: str) -> bool:
    """Whether two stores hold the same bytes under a key. Raises NotFoundError and StoreError."""
    return _digest(store, key) == _digest(other, key)


def _digest(store: ObjectStore, key: str) -> str:
    sha = hashlib.sha256()
    with store.open(key) as stream:
        try:
            while piece := stream.read(GROUP_BYTES):
                sha.update(piece)
        except OSError as error:
            raise StoreError("read", key, str(error)) from error
    return sha.hexdigest()
