"""The memory store: objects in this process's memory. Stores of one name share them. Replaces the file store in
tests."""

from __future__ import annotations

import io
import threading
from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from litelog.errors import ConfigError, ExistsError, NotFoundError
from litelog.stores.object_store import ByteRange, ObjectInfo, require_key, require_prefix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

    from typing_extensions import Buffer

PAGE_OBJECTS = 1000
"""Objects in a page of a listing, as with S3: changes between two pages are visible."""

_named: dict[str, MemoryStore] = {}
"""The stores of this process, keyed by name. Names belong to the process, so this is module state."""
_named_lock = threading.Lock()


def open_store(url: str, options: Mapping[str, object]) -> MemoryStore:
    """Open the store of that name (``memory://name``). Opening a name again returns the same store with its objects."""
    if options:
        raise ConfigError(f"a memory replica takes no options, but was given {', '.join(sorted(options))}")
    name = unquote(url.removeprefix("memory://"))
    if not name or not set("?#@").isdisjoint(url):
        raise ConfigError("memory:// needs a name and nothing else: memory://name (%3F for ?, %23 for #, %40 for @)")
    with _named_lock:
        return _named.setdefault(name, MemoryStore(name))


class MemoryStore:
    """An ObjectStore in memory. If it is created directly, without ``open_store``, no other caller can open it."""

    enforces_create_only = True

    def __init__(self, name: str = "") -> None:
        self.url = f"memory://{quote(name)}"
        self._objects: dict[str, bytes] = {}
        self._keys: list[str] = []
        self._lock = threading.Lock()

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        require_key(key)
        content = b"".join(body)
        with self._lock:
            if key not in self._objects:
                insort(self._keys, key)
            elif create_only:
                raise ExistsError(key)
            self._objects[key] = content

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        require_key(key)
        with self._lock:
            content = self._objects.get(key)
        if content is None:
            raise NotFoundError(key)
        if byte_range is not None:
            end = None if byte_range.length is None else byte_range.start + byte_range.length
            content = content[byte_range.start : end]
        return io.BytesIO(content)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        require_prefix(prefix)
        return self._walk(prefix, start_after or "")

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            require_key(key)
            with self._lock:
                if self._objects.pop(key, None) is not None:
                    del self._keys[bisect_right(self._keys, key) - 1]

    def close(self) -> None:
        """Do nothing: objects stay, as on a disk."""

    def _walk(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        while page := self._page(prefix, after):
            yield from page
            after = page[-1].key

    def _page(self, prefix: str, after: str) -> Sequence[ObjectInfo]:
        page = []
        with self._lock:
            at = max(bisect_right(self._keys, after), bisect_left(self._keys, prefix))
            for key in self._keys[at : at + PAGE_OBJECTS]:
                if not key.startswith(prefix):
                    break
                page.append(ObjectInfo(key, len(self._objects[key])))
        return page
