"""A store in memory that remembers all versions of its objects, as a bucket with versions does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.stores.capabilities import KeyVersions
from replica_clients.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from typing_extensions import Buffer

    from litelog.errors import StoreError
    from litelog.stores.capabilities import VersionListing

SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Version:
    """A version of an object, or a delete marker: then ``content`` is None. ``time`` in microseconds since 1970."""

    content: bytes | None
    time: int


class VersionedStore(MemoryStore):
    """Each change takes a second of the store's own clock. ``refusal`` is raised by the listing of versions."""

    def __init__(self, name: str = "versioned") -> None:
        super().__init__(name)
        self.versions: dict[str, list[Version]] = {}
        self.refusal: StoreError | None = None
        self.listings = 0
        self._seconds = 0

    @property
    def kept_versions(self) -> VersionListing | None:
        return _Listing(self)

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        content = b"".join(body)
        super().put(key, [content], create_only=create_only)
        self._add(key, content)

    def delete(self, keys: Iterable[str]) -> None:
        wanted = list(keys)
        super().delete(wanted)
        for key in wanted:
            self._add(key, None)

    def _add(self, key: str, content: bytes | None) -> None:
        self._seconds += 1
        self.versions.setdefault(key, []).append(Version(content, self._seconds * SECOND))


class _Listing:
    def __init__(self, store: VersionedStore) -> None:
        self._store = store

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[KeyVersions]:
        self._store.listings += 1
        if self._store.refusal is not None:
            raise self._store.refusal
        for key in sorted(self._store.versions):
            if key.startswith(prefix) and key > (start_after or ""):
                yield _summed_up(key, self._store.versions[key])


def _summed_up(key: str, versions: list[Version]) -> KeyVersions:
    contents = [version.content for version in versions if version.content is not None]
    markers = len(versions) - len(contents)
    changed = versions[1].time if len(versions) > 1 else 0 if contents else versions[0].time
    return KeyVersions(key, len(contents), markers, versions[-1].content is None, len(set(contents)) < 2, True, changed)
