"""A store that distinguishes an empty listing from an unavailable root, such as an unmounted disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.objects.layout import CLAIMS, parse_claim
from litelog.reading.generations import away
from litelog.stores.decryption import generation_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.decryption import GenerationKeys
    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore


class AnchoredStore:
    """Raises StoreError for a listing without objects if no claim is there any more: claims are kept. For that it makes
    one listing more. Verification lists before it reports an object as missing."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.url = inner.url
        self.enforces_create_only = inner.enforces_create_only
        self._has_claim = False

    @property
    def generation_keys(self) -> GenerationKeys | None:
        return generation_keys(self._inner)

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self._inner.put(key, body, create_only=create_only)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        return self._inner.open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        is_empty = True
        for info in self._inner.list(prefix, start_after):
            self._has_claim = self._has_claim or parse_claim(info.key) is not None
            is_empty = False
            yield info
        if is_empty and self._has_claim and next(iter(self._inner.list(CLAIMS)), None) is None:
            raise away()

    def delete(self, keys: Iterable[str]) -> None:
        self._inner.delete(keys)

    def close(self) -> None:
        self._inner.close()
