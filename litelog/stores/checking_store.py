"""The store under isolated fencing: it checks that a key is free, and then puts.

Specified in litelog/shipping/README.md#isolated-fencing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import ExistsError, NotFoundError
from litelog.stores.capabilities import kept_versions
from litelog.stores.object_store import ByteRange, NotSupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.capabilities import VersionListing
    from litelog.stores.object_store import ObjectInfo, ObjectStore

_FIRST_BYTE = ByteRange(0, 1)


class CheckingStore:
    """An ObjectStore over a store that ignores the condition of a create-only put, or has no such condition.

    It checks the key before each create-only put, which costs one more request. So an owner finds the objects that it
    wrote itself before a crash, and any object that has been there for a while. Two writers that put at the same moment
    are both accepted. A condition that the inner store supports is still sent.
    """

    enforces_create_only = False

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.url = inner.url
        self._checks = inner.enforces_create_only  # a store that says it does not enforce the condition checks the key
        self._conditional = True

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        if create_only and (self._checks or not self._conditional):
            self._require_free(key)
        if create_only and self._conditional:
            try:
                self._inner.put(key, body)
            except NotSupportedError:
                self._conditional = False
            else:
                return
        self._inner.put(key, body, create_only=False)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        return self._inner.open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._inner.list(prefix, start_after)

    @property
    def kept_versions(self) -> VersionListing | None:
        return kept_versions(self._inner)

    def delete(self, keys: Iterable[str]) -> None:
        self._inner.delete(keys)

    def close(self) -> None:
        self._inner.close()

    def _require_free(self, key: str) -> None:
        try:
            self._inner.open(key, _FIRST_BYTE).close()
        except NotFoundError:
            return
        raise ExistsError(key)
