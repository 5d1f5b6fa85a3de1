"""A store as a thief reaches it who has some of its credentials."""

from __future__ import annotations

from enum import Flag, auto
from typing import TYPE_CHECKING

from litelog.errors import StoreError
from replica_clients.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore
    from tests.builders.versioned_store import VersionedStore


class Rights(Flag):
    """What the credentials permit."""

    READ = auto()
    WRITE = auto()
    DELETE = auto()


class StolenStore:
    """An ObjectStore that refuses what the rights do not permit. With WRITE, objects can be replaced."""

    enforces_create_only = True

    def __init__(self, inner: ObjectStore, rights: Rights) -> None:
        self.inner = inner
        self.rights = rights
        self.url = inner.url

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self._require(Rights.WRITE, "put", key)
        self.inner.put(key, body, create_only=create_only)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self._require(Rights.READ, "open", key)
        return self.inner.open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._require(Rights.READ, "list", prefix)
        return self.inner.list(prefix, start_after)

    def delete(self, keys: Iterable[str]) -> None:
        wanted = list(keys)
        self._require(Rights.DELETE, "delete", wanted[0] if wanted else "")
        self.inner.delete(wanted)

    def close(self) -> None:
        self.inner.close()

    def _require(self, right: Rights, operation: str, key: str) -> None:
        if right not in self.rights:
            raise StoreError(operation, key, "no permission", retryable=False)


def earlier(store: VersionedStore) -> MemoryStore:
    """What ``--as-of`` reads of a bucket with versions: the first version of each object, whatever came after it."""
    found = MemoryStore("earlier")
    for key, versions in store.versions.items():
        first = next((version.content for version in versions if version.content is not None), None)
        if first is not None:
            found.put(key, [first])
    return found
