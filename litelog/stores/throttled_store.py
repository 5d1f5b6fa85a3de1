"""A store that is read at a set rate, so that background reads do not slow shipping down."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from litelog.stores.capabilities import kept_versions
from litelog.stores.object_store import ByteStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.capabilities import KeyVersions, VersionListing
    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore
    from litelog.system.clock import Clock

REQUEST_BYTES = 16 << 10
"""The cost of a request in addition to its bytes: small objects are not free."""

LISTED_BYTES = 100
"""The cost of an object in a listing, in bytes."""

READ_BYTES = 1 << 20
"""The most bytes that one read requests: a wait is never longer than these take."""


class ThrottledStore:
    """An ObjectStore that delays reads so that they stay below a rate. It passes on all other calls at once."""

    def __init__(self, inner: ObjectStore, rate: int, clock: Clock, wait: Callable[[float], object]) -> None:
        """``rate``: bytes a second. ``wait`` waits for that number of seconds, or for less if litelog is stopping."""
        self._inner = inner
        self._rate = rate
        self._clock = clock
        self._wait = wait
        self._lock = threading.Lock()
        self._free_at = clock.monotonic()
        self.url = inner.url
        self.enforces_create_only = inner.enforces_create_only

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self._inner.put(key, body, create_only=create_only)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self._take(REQUEST_BYTES)
        return cast("BinaryIO", _ThrottledStream(self._inner.open(key, byte_range), self._take))

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._take(REQUEST_BYTES)
        for info in self._inner.list(prefix, start_after):
            self._take(LISTED_BYTES)
            yield info

    @property
    def kept_versions(self) -> VersionListing | None:
        listing = kept_versions(self._inner)
        return None if listing is None else _ThrottledVersions(listing, self._take)

    def delete(self, keys: Iterable[str]) -> None:
        self._inner.delete(keys)

    def close(self) -> None:
        self._inner.close()

    def _take(self, size: int) -> None:
        """Account for ``size`` bytes, and wait until the rate allows them."""
        with self._lock:
            now = self._clock.monotonic()
            delay = self._free_at - now
            self._free_at = max(now, self._free_at) + size / self._rate
        if delay > 0:
            self._wait(delay)


class _ThrottledVersions:
    def __init__(self, inner: VersionListing, take: Callable[[int], None]) -> None:
        self._inner = inner
        self._take = take

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[KeyVersions]:
        self._take(REQUEST_BYTES)
        for found in self._inner.list(prefix, start_after):
            self._take(LISTED_BYTES * (found.contents + found.markers))
            yield found


class _ThrottledStream(ByteStream):
    def __init__(self, inner: BinaryIO, take: Callable[[int], None]) -> None:
        self._inner = inner
        self._take = take

    def read(self, size: int | None = -1, /) -> bytes:
        pieces: list[bytes] = []
        left = -1 if size is None else size
        while left:
            size = READ_BYTES if left < 0 else min(left, READ_BYTES)
            piece = self._inner.read(size)
            self._take(len(piece))
            pieces.append(piece)
            if len(piece) < size:
                break
            left = left - len(piece) if left > 0 else left
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        self._inner.close()
        super().close()
