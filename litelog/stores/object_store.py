"""ObjectStore, the interface that every backend implements, and the ReplicaClient over it."""

from __future__ import annotations

import io
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from litelog.dataclass import dataclass
from litelog.encryption.chunks import MAGIC
from litelog.errors import (
    CorruptObjectError,
    DivergedError,
    NotEnoughMemoryError,
    PrunedError,
    StoreError,
)
from litelog.objects import layout
from litelog.objects.position import MAX_EPOCH, ClaimName, Generation, Position
from litelog.objects.position import generation as parse_generation
from litelog.objects.wal_segment import MAX_HEADER_BYTES, decode_header
from litelog.objects.wal_stream import StreamError
from litelog.stores.decryption import require_readable, undecrypted
from litelog.stores.replica_client import IndexedInfo, WalSegmentInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.objects.claim import Claim
    from litelog.objects.wal_segment import WalSegment
    from litelog.objects.wal_stream import MirrorEnd

MAX_OBJECT_BYTES = 80 << 20
"""The largest object that a reader accepts, in bytes: the largest commit, incompressible, and some room. A WAL segment
may be larger if its header says so: it holds one commit of a format with a higher limit."""

READ_BYTES = 4 << 20
"""How many bytes of an object one read requests, so that a small object does not cost a buffer for the largest one."""

MAX_KEY_CHARACTERS = 1024
"""The longest key in characters: S3 accepts 1,024 bytes. The layout's own keys have under 100, all ASCII."""


class NotSupportedError(StoreError):
    """The store does not support what a request needs (a condition, a link), and has done nothing."""

    def __init__(self, operation: str, key: str, reason: str) -> None:
        super().__init__(operation, key, reason, retryable=False)


@dataclass(frozen=True, slots=True, order=True)
class ObjectInfo:
    """An object as a listing shows it. ``size`` in bytes."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class ByteRange:
    """``length`` bytes from ``start`` on; to the object's end if ``length`` is None."""

    start: int
    length: int | None = None

    def __post_init__(self) -> None:
        if self.start < 0 or (self.length is not None and self.length < 0):
            raise ValueError(f"not a range: {self.length} bytes from {self.start}")


def require_key(key: str) -> None:
    """Raise ValueError unless ``key`` is valid: parts between ``/``, none empty, ``.`` or ``..``; UTF-8 without NUL."""
    has_parts = all(part.strip(".") for part in key.split("/") if len(part) < 3)
    is_text = key.isascii() or key == key.encode(errors="ignore").decode()  # no half of a pair of surrogates
    if not (has_parts and is_text) or "\0" in key:
        raise ValueError(f"not an object's key: {key!r}")
    if len(key) > MAX_KEY_CHARACTERS:
        raise ValueError(f"a key of {len(key)} characters is longer than {MAX_KEY_CHARACTERS}")


def require_prefix(prefix: str) -> str:
    """The folder that holds all keys with that prefix, empty or with its slash. ValueError if no key can have it."""
    parent, slash, _ = prefix.rpartition("/")
    if slash:
        require_key(parent)
    return parent + slash


class ObjectStore(Protocol):
    """A backend: keys and bytes under one root. Several threads call it at once.

    Keys are relative, with ``/`` between their parts. Methods raise NotFoundError, ExistsError, or StoreError for all
    other failures, and ValueError for an invalid key (``require_key``). A backend has no retries, metrics or checks:
    wrappers add them.
    """

    url: str
    """The destination without credentials: fit for logs and messages."""
    enforces_create_only: bool
    """Whether ``create_only`` holds against every other writer, wherever it runs. If not, a put checks the key first,
    and two writers that check at once both write."""

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        """Store an object, and return when it is durable. Nothing partial is ever visible.

        Args:
            key: The object's key.
            body: The object's bytes, as buffers. It may be iterated again for another attempt, and gives the same bytes
                each time. A body that is not a sequence may be far larger than memory, and makes its buffers as they
                are taken; the store holds only a few of them at a time. An error that its iteration raises is passed
                on, and nothing is stored.
            create_only: Refuse a key that is taken.

        Raises:
            ExistsError: ``create_only``, and the key is taken. Nothing changed, and the object there is durable.
            NotSupportedError: The store has no create-only put.
            StoreError: The request failed. It is open whether the object was stored.
            ValueError: The key is invalid.
        """

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        """Open an object for reading, once; the caller closes it.

        Args:
            key: The object's key.
            byte_range: The bytes to read, fewer if the object ends before; None for the whole object.

        Returns:
            A stream. Its ``read(n)`` may raise OSError or StoreError, and returns fewer than n bytes only at the end.

        Raises:
            NotFoundError: The object does not exist.
            StoreError: The request failed.
            ValueError: The key is invalid.
        """

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """List objects in the order of their keys (by code point), page by page as the iterator is consumed.

        Args:
            prefix: What the keys start with.
            start_after: List only keys that sort after this one.

        Returns:
            The objects. Foreign names may be among them, but no folders, and no put that has not finished.

        Raises:
            StoreError: A request failed; raised by the iterator.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. A missing object is not an error.

        Args:
            keys: The keys of the objects.

        Raises:
            StoreError: A request failed. Some objects may be deleted.
            ValueError: A key is invalid.
        """

    def close(self) -> None:
        """Release the store's resources. Idempotent."""


@runtime_checkable
class PartsAndPages(Protocol):
    """An optional capability of a store that puts large objects in parts and lists in pages: it does both on a small
    scale, so that they can be tried with a few bytes."""

    @property
    def is_known_to_list(self) -> bool:
        """Whether this is a service that is known to list any number of objects, to the end and in order. An owner then
        does not try a listing of more than a page before its first claim. Sends no request, and may depend on what
        earlier ones were answered."""

    def put_in_parts(self, key: str, body: Sequence[Buffer]) -> None:
        """Put as a create-only ``put`` does, in one part or more, no matter how few bytes there are."""

    def list_in_pages(self, prefix: str, keys: int) -> Iterator[Sequence[ObjectInfo]]:
        """List as ``list`` does, and yield each page. The store is asked for at most ``keys`` keys in a page."""


@runtime_checkable
class PassesWaiting(Protocol):
    """A wrapper of a store that may have the capability ``AwaitsKeys``."""

    @property
    def awaiting(self) -> ObjectStore:
        """The wrapped store."""


@runtime_checkable
class Signing(Protocol):
    """An optional capability of a store whose objects plain HTTP can read."""

    def sign(self, key: str, seconds: int) -> str | None:
        """A URL that gives the object, or a range of it, to a GET without credentials. Sends no request.

        Args:
            key: The object's key.
            seconds: How long the URL is valid, unless the credentials end before.

        Returns:
            The URL, which is a secret while it is valid; None if a GET needs more than a URL with these settings.

        Raises:
            StoreError: The store has no credentials to sign with.
            ValueError: The key is invalid.
        """


@runtime_checkable
class AwaitsKeys(Protocol):
    """An optional capability of a store that says when an object appears, so that followers do not poll."""

    def wait_for(self, key: str, seconds: float) -> None:
        """Return once the object is there, after ``seconds`` at the latest. Raises StoreError."""


@runtime_checkable
class KnowsFolder(Protocol):
    """An optional capability of a store that is the log of a daemon: it knows in which folder the log is."""

    def find_folder_id(self) -> str | None:
        """The ``folder_id`` of the log's folder on its machine; None if that is not known. Raises StoreError."""


@runtime_checkable
class StreamsWal(Protocol):
    """An optional capability of a store that is the log of a daemon: it sends WAL segments as soon as they are durable
    at the source, before they are in the replica."""

    def stream_wal(
        self, position: Position, seconds: float, limit: int, mirror: str | None, before: MirrorEnd | None
    ) -> Iterator[WalSegment | StreamError]:
        """Yield the WAL segments from ``position`` on, each checked, and last why the stream ended early, if it did.

        Args:
            position: Where the first one begins.
            seconds: How long to wait for the first one.
            limit: End after about this many bytes.
            mirror: The name of the mirror that asks, which is durable up to ``position``; None: nothing is mirrored.
            before: As for ``ReplicaClient.stream_wal``.

        Raises:
            StoreError: The request failed, or the stream broke off.
            CorruptObjectError: The stream is damaged.
        """


@runtime_checkable
class AwaitsMirrors(Protocol):
    """An optional capability of a store that is the log of a daemon: it knows where the log's mirrors are."""

    def wait_for_mirror(self, sequence: int, seconds: float) -> int | None:
        """Return the highest sequence before which a mirror has all records durably, once that is ``sequence`` or
        higher, and after ``seconds`` at the latest; None if no mirror is known. Raises StoreError."""

    def close(self) -> None:
        """Release the store's resources."""


@runtime_checkable
class ListsLogs(Protocol):
    """An optional capability of a store that is the log of a daemon: the log's name in its URL may be a pattern."""

    def list_logs(
        self, revision: str | None = None, seconds: float = 0.0
    ) -> tuple[str | None, Sequence[tuple[str, str]]]:
        """Return the revision of the daemon's logs, and the names and URLs of those that match.

        Args:
            revision: The revision of an earlier answer, None for the first one: wait until the daemon has another one.
            seconds: How many seconds to wait at most.

        Raises:
            StoreError: The daemon cannot be asked.
        """

    def close(self) -> None:
        """As ``ObjectStore.close``."""


Root: TypeAlias = "Hashable"
"""Distinguishes the current root from one that replaces it; None without a root."""


@runtime_checkable
class Rooted(Protocol):
    """An optional capability of a store whose root may go away and come back, as a mounted folder does.

    Without ``keep_to_root`` the first put creates a missing root. No later put creates it, or any folder above it.
    """

    def look_at_root(self) -> Root:
        """Identify the current root. Raises StoreError."""

    def keep_to_root(self, root: Root, anchor: str) -> None:
        """From now on, put and delete only in ``root``, and only while it holds the object ``anchor``.

        Otherwise they raise a retryable StoreError, and create nothing, neither folders nor temporary files.
        """


class Rootless:
    """In place of ``Rooted``, for a store whose root cannot go away."""

    def look_at_root(self) -> Root:
        """Return None: there is only one root."""
        return None

    def keep_to_root(self, root: Root, anchor: str) -> None:
        """Do nothing."""


class ObjectReplicaClient:
    """The ReplicaClient over any ObjectStore, and its only implementation: it maps names to keys."""

    def __init__(self, store: ObjectStore, *, deletes: bool = True) -> None:
        """``deletes``: whether it deletes objects. If not, each deletion raises a StoreError without a request."""
        self.store = store
        self.url = store.url
        self.enforces_create_only = store.enforces_create_only
        self._deletes = deletes

    def claims(self, since: int = 0) -> list[ClaimName]:
        # "-" sorts before ".": no other claim of its epoch sorts after this key.
        after = layout.claim_key(since - 1) if since > 0 else None
        found = (layout.parse_claim(info.key) for info in self.store.list(layout.CLAIMS, after))
        return sorted(filter(None, found), key=lambda name: (name.epoch, name.isolated or ""))

    def write_claim(self, name: ClaimName, body: bytes) -> None:
        self.store.put(_claim_key(name), [body])

    def read_claim(self, name: ClaimName) -> bytes:
        return self._read(_claim_key(name))

    def generations(self) -> list[Generation]:
        names: list[Generation] = []
        after: str | None = None
        while True:
            for info in ordered(self.store.list(layout.GENERATIONS, after)):
                if _is_ours(info.key) and (name := layout.parse_generation(info.key)):
                    names.append(name)
                    after = layout.after_generation(name)
                    break
            else:
                return names

    def wal_segments(self, generation: Generation, since: Position | None = None) -> Iterator[WalSegmentInfo]:
        _require(generation)
        after = None if since is None else layout.wal_key(since)[:-1]  # sorts after all earlier positions
        for info in ordered(self.store.list(layout.wal_prefix(generation), after)):
            position = layout.parse_wal(info.key)
            if position is not None:
                yield WalSegmentInfo(position, info.size)

    def write_wal_segment(self, position: Position, body: Iterable[Buffer]) -> None:
        _require(position.generation)
        self.store.put(layout.wal_key(position), body)

    def read_wal_segment(self, position: Position, start: int = 0, length: int | None = None) -> bytes:
        _require(position.generation)
        whole = start == 0 and length is None
        return self._read(layout.wal_key(position), None if whole else ByteRange(start, length))

    def await_wal_segment(self, position: Position, seconds: float, wait: Callable[[float], object]) -> None:
        store = self.store.awaiting if isinstance(self.store, PassesWaiting) else self.store
        if not isinstance(store, AwaitsKeys):
            wait(seconds)
            return
        try:
            store.wait_for(layout.wal_key(position), seconds)
        except StoreError:
            wait(seconds)

    def stream_wal(
        self, position: Position, seconds: float, limit: int, mirror: str | None = None, before: MirrorEnd | None = None
    ) -> Iterator[WalSegment]:
        store = self.store.awaiting if isinstance(self.store, PassesWaiting) else self.store
        if not isinstance(store, StreamsWal):
            raise NotSupportedError("stream", layout.wal_key(position), f"{self.url} is not a log that a daemon serves")
        for found in store.stream_wal(position, seconds, limit, mirror, before):
            if not isinstance(found, StreamError):
                yield found
            elif found.http_status == HTTPStatus.GONE:
                raise PrunedError(str(position))
            elif found.http_status == HTTPStatus.CONFLICT:
                raise DivergedError(self.url, found.message)
            else:
                raise StoreError("stream", self.url, found.message, retryable=found.http_status >= 500)

    def delete_wal_segments(self, positions: Iterable[Position]) -> None:
        def keys() -> Iterator[str]:
            for position in positions:
                _require(position.generation)
                yield layout.wal_key(position)

        self._delete(keys())

    def sealed_segments(self, generation: Generation, since: int = 0) -> Iterator[IndexedInfo]:
        _require(generation)
        after = layout.sealed_key(generation, since)[:-1] if since else None
        for info in ordered(self.store.list(layout.sealed_prefix(generation), after)):
            if (parsed := layout.parse_sealed(info.key)) is not None:
                yield IndexedInfo(*parsed, info.size)

    def write_sealed_segment(self, generation: Generation, index: int, body: Iterable[Buffer]) -> None:
        _require(generation)
        self.store.put(layout.sealed_key(generation, index), body)

    def read_sealed_segment(self, generation: Generation, index: int, start: int, length: int) -> bytes:
        _require(generation)
        return self._read(layout.sealed_key(generation, index), ByteRange(start, length))

    def open_sealed_segment(
        self, generation: Generation, index: int, start: int = 0, length: int | None = None
    ) -> BinaryIO:
        _require(generation)
        whole = start == 0 and length is None
        return self.store.open(layout.sealed_key(generation, index), None if whole else ByteRange(start, length))

    def delete_sealed_segments(self, places: Iterable[tuple[Generation, int]]) -> None:
        self._delete(_indexed_keys(places, layout.sealed_key))

    def snapshots(self, generation: Generation, since: int = 0) -> Iterator[IndexedInfo]:
        _require(generation)
        after = layout.snapshot_key(generation, since)[:-1] if since else None
        for info in ordered(self.store.list(layout.snapshot_prefix(generation), after)):
            if (parsed := layout.parse_snapshot(info.key)) is not None:
                yield IndexedInfo(*parsed, info.size)

    def newest_snapshots(self, generation: Generation, count: int) -> list[IndexedInfo]:
        return list(reversed(deque(self.snapshots(generation), maxlen=count)))

    def snapshots_and_wal_segments(
        self, generation: Generation, since: int = 0
    ) -> Iterator[IndexedInfo | WalSegmentInfo]:
        _require(generation)
        # Sealed segments sort before snapshots, and WAL segments after them.
        after = layout.snapshot_key(generation, since)[:-1] if since else layout.snapshot_prefix(generation)
        for info in ordered(self.store.list(layout.generation_prefix(generation), after)):
            if (position := layout.parse_wal(info.key)) is not None:
                yield WalSegmentInfo(position, info.size)
            elif (parsed := layout.parse_snapshot(info.key)) is not None:
                yield IndexedInfo(*parsed, info.size)

    def write_snapshot(self, generation: Generation, index: int, body: Iterable[Buffer]) -> None:
        _require(generation)
        self.store.put(layout.snapshot_key(generation, index), body)

    def read_snapshot(self, generation: Generation, index: int) -> bytes:
        _require(generation)
        return self._read(layout.snapshot_key(generation, index))

    def delete_snapshots(self, places: Iterable[tuple[Generation, int]]) -> None:
        self._delete(_indexed_keys(places, layout.snapshot_key))

    def _delete(self, keys: Iterable[str]) -> None:
        if not self._deletes:
            raise StoreError("delete", "", "this process deletes nothing (no-delete)", retryable=False)
        self.store.delete(keys)

    def checkpoints(self) -> Iterator[IndexedInfo]:
        for info in ordered(self.store.list(layout.CHECKPOINTS)):
            if (parsed := layout.parse_checkpoint(info.key)) is not None:
                yield IndexedInfo(*parsed, info.size)

    def require_readable(self, claim: Claim) -> None:
        require_readable(self.store, claim)

    def write_checkpoint(self, generation: Generation, number: int, body: Iterable[Buffer]) -> None:
        _require(generation)
        self.store.put(layout.checkpoint_key(generation, number), body)

    def read_checkpoint(self, generation: Generation, number: int) -> bytes:
        _require(generation)
        return self._read(layout.checkpoint_key(generation, number))

    def close(self) -> None:
        self.store.close()

    def _read(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        limit = MAX_OBJECT_BYTES
        if byte_range is not None and byte_range.length is not None:
            limit = min(limit, byte_range.length)
        data = read_bounded(self.store, key, byte_range, limit=limit)
        if len(data) > limit and (byte_range is not None or len(data) > _stated_limit(key, data)):
            raise CorruptObjectError(key, f"more than {limit} bytes")
        return data


def _stated_limit(key: str, head: bytes) -> int:
    """How many bytes the WAL segment that begins with ``head`` may have, as its header states. 0 if that is damaged,
    or the object is another one."""
    if layout.parse_wal(key) is None:
        return 0
    try:
        length = decode_header(key, head).length
    except CorruptObjectError:
        return 0
    return length + length // 64 + MAX_HEADER_BYTES


def _require(name: Generation) -> None:
    """Raise ValueError if ``name`` is not a generation. An empty name would be the prefix of every generation."""
    parse_generation(name)


def _indexed_keys(places: Iterable[tuple[Generation, int]], key_of: Callable[[Generation, int], str]) -> Iterator[str]:
    for generation, index in places:
        _require(generation)
        yield key_of(generation, index)


def _claim_key(name: ClaimName) -> str:
    """The claim's key. Raises ValueError for an invalid name: every reader would skip its key."""
    if not 0 <= name.epoch <= MAX_EPOCH:
        raise ValueError(f"epoch out of range: {name.epoch}")
    if name.isolated is not None:
        _require(name.isolated)
    return layout.claim_key(*name)


def _is_ours(key: str) -> bool:
    parsers = (layout.parse_wal, layout.parse_snapshot, layout.parse_sealed)
    return any(parse(key) is not None for parse in parsers)


def read_bounded(
    store: ObjectStore,
    key: str,
    byte_range: ByteRange | None = None,
    *,
    limit: int = MAX_OBJECT_BYTES,
    size: int = READ_BYTES,
) -> bytes:
    """Read an object, or a range of it: at most one byte more than ``limit``, or than the header of a whole WAL segment
    permits. ``size``: its expected size in bytes; the first read requests that many. Raises NotFoundError, StoreError,
    NotEnoughMemoryError, and EncryptedError if the object of a replica is encrypted, and ``store`` does not decrypt it.
    """
    pieces: list[bytes] = []
    room, extended = limit + 1, False
    with store.open(key, byte_range) as stream:
        try:
            while room and (piece := stream.read(min(room, size + 1))):
                pieces.append(piece)
                room -= len(piece)
                size = READ_BYTES
                if not room and byte_range is None and not extended:
                    room, extended = max(0, _stated_limit(key, b"".join(pieces)) - limit), True
        except OSError as error:
            raise StoreError("read", key, str(error)) from error
        except MemoryError as error:
            raise NotEnoughMemoryError(key) from error
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if (data.startswith(MAGIC) or data.endswith(MAGIC)) and layout.parse_generation(key) is not None:
        raise undecrypted(store, key)
    return data


def ordered(infos: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
    """The same listing, checked for order: a jump back would hide the objects between."""
    previous = ""
    for info in infos:
        if info.key <= previous:
            raise StoreError("list", info.key, f"the store lists it after {previous}: its listing is not in order")
        previous = info.key
        yield info


def bytes_left(stream: BinaryIO) -> int | None:
    """How many bytes are left to read in a stream of an object; None if the stream does not say."""
    if isinstance(stream, io.BytesIO):
        return len(stream.getbuffer()) - stream.tell()
    left = getattr(stream, "left", None)
    return left if isinstance(left, int) else None


class ByteStream(io.RawIOBase):
    """The base class of streams. Subclasses implement ``read(size)``: it returns ``size`` bytes, or all that are left
    if these are fewer, or if ``size`` is None or negative."""

    def readall(self) -> bytes:
        return self.read() or b""

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        piece = self.read(len(view)) or b""
        view[: len(piece)] = piece
        return len(piece)

    def readable(self) -> bool:
        return True
