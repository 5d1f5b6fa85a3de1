"""ObjectStore: the five methods that a backend is, and the one ReplicaClient over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from litelog import layout
from litelog.errors import CorruptObjectError, StoreError
from litelog.position import MAX_EPOCH, Generation, Position
from litelog.replica_client import IndexedInfo, WalSegmentInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import BinaryIO

    from typing_extensions import Buffer

MAX_OBJECT_BYTES = 80 << 20
"""What a reader accepts as one object: a commit of the largest size, incompressible, and room."""

_PREFIX_END = "￿"


@dataclass(frozen=True, slots=True, order=True)
class ObjectInfo:
    """An object as a listing shows it. ``size`` in bytes."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class ByteRange:
    """``length`` bytes from ``start``; to the object's end where ``length`` is None."""

    start: int
    length: int | None = None


class ObjectStore(Protocol):
    """A backend: keys and bytes under one root. Calls come from several threads at once.

    Keys are relative, ``/`` between their parts. Errors are NotFoundError, ExistsError, or StoreError for all else.
    No retries, metrics or checks inside: they are wrappers around it.
    """

    url: str
    """Without credentials: fit for logs and messages."""

    def put(self, key: str, body: Sequence[Buffer], *, create_only: bool = True) -> None:
        """Store the buffers, put together, as ``key``; return when it is durable. Nothing partial is ever visible.

        ``create_only``: raise ExistsError, and change nothing, where the key is taken.
        """

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        """The object's bytes, or a range of them (short where the object ends), to be read once and closed."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """The objects whose key starts with ``prefix`` and sorts behind ``start_after``, in the order of their keys
        (by code point), page by page as it is consumed. Temporary and foreign files may show; folders never do."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; one that is not there is no error."""

    def close(self) -> None:
        """Release what the store holds. Idempotent."""


class ObjectReplicaClient:
    """The ReplicaClient over any ObjectStore: the layout's names, and nothing of storage."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.url = store.url

    def epochs(self) -> list[int]:
        found = (layout.parse_claim(info.key) for info in self.store.list(layout.CLAIMS))
        return sorted({claim[0] for claim in found if claim})

    def write_claim(self, epoch: int, body: bytes) -> None:
        if not 0 <= epoch <= MAX_EPOCH:
            raise ValueError(f"epoch out of range: {epoch}")
        self.store.put(layout.claim_key(epoch), [body])

    def read_claim(self, epoch: int) -> bytes:
        return self._read(layout.claim_key(epoch))

    def generations(self) -> list[Generation]:
        names: list[Generation] = []
        after: str | None = None
        while True:
            for info in self.store.list(layout.GENERATIONS, after):
                name = layout.parse_generation(info.key)
                after = info.key if name is None else layout.after_generation(name)
                if name is not None:
                    names.append(name)
                    break
            else:
                return names

    def wal_segments(self, generation: Generation, since: Position | None = None) -> Iterator[WalSegmentInfo]:
        _require(generation)
        after = None if since is None else _just_before(layout.wal_key(since))
        for info in self.store.list(layout.wal_prefix(generation), after):
            position = layout.parse_wal(info.key)
            if position is not None:
                yield WalSegmentInfo(position, info.size)

    def write_wal_segment(self, position: Position, body: Sequence[Buffer]) -> None:
        _require(position.generation)
        self.store.put(layout.wal_key(position), body)

    def read_wal_segment(self, position: Position, start: int = 0, length: int | None = None) -> bytes:
        _require(position.generation)
        whole = start == 0 and length is None
        return self._read(layout.wal_key(position), None if whole else ByteRange(start, length))

    def delete_wal_segments(self, positions: Iterable[Position]) -> None:
        self.store.delete(layout.wal_key(position) for position in positions)

    def sealed_segments(self, generation: Generation) -> Iterator[IndexedInfo]:
        _require(generation)
        for info in self.store.list(layout.sealed_prefix(generation)):
            if (parsed := layout.parse_sealed(info.key)) is not None:
                yield IndexedInfo(*parsed, info.size)

    def snapshots(self, generation: Generation) -> Iterator[IndexedInfo]:
        _require(generation)
        for info in self.store.list(layout.snapshot_prefix(generation)):
            if (parsed := layout.parse_snapshot(info.key)) is not None:
                yield IndexedInfo(*parsed, info.size)

    def write_snapshot(self, generation: Generation, index: int, body: Sequence[Buffer]) -> None:
        _require(generation)
        self.store.put(layout.snapshot_key(generation, index), body)

    def read_snapshot(self, generation: Generation, index: int) -> bytes:
        _require(generation)
        return self._read(layout.snapshot_key(generation, index))

    def close(self) -> None:
        self.store.close()

    def _read(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        limit = MAX_OBJECT_BYTES
        if byte_range is not None and byte_range.length is not None:
            limit = min(limit, byte_range.length)
        with self.store.open(key, byte_range) as stream:
            try:
                body = stream.read(limit + 1)
            except OSError as error:
                raise StoreError("read", key, str(error)) from error
        if len(body) > limit:
            raise CorruptObjectError(key, f"more than {limit} bytes")
        return body


def _require(generation: Generation) -> None:
    if not generation:
        raise ValueError("a generation's name may not be empty")


def _just_before(key: str) -> str:
    """A key that sorts before ``key`` and behind every key of the layout before it."""
    return key[:-1] + chr(ord(key[-1]) - 1) + _PREFIX_END
