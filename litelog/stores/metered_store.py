"""Counts the requests to an object store, by kind and result, and measures how long they took, in histograms."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from litelog.dataclass import dataclass
from litelog.errors import ExistsError, NotFoundError
from litelog.stores.capabilities import kept_versions
from litelog.stores.object_store import NotSupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.capabilities import KeyVersions, ObjectLocks, VersionListing
    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore
    from litelog.system.clock import Clock


_Listed = TypeVar("_Listed")

BOUNDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)
"""Seconds: from a local disk's fsync to a store that is almost unusable."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Observed durations. ``counts`` has one more entry than BOUNDS, for durations above the last bound."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    total: float = 0.0
    """The sum in seconds."""

    @property
    def observed(self) -> int:
        """The number of observations."""
        return sum(self.counts)

    def __add__(self, other: Durations) -> Durations:
        return Durations(tuple(map(sum, zip(self.counts, other.counts, strict=True))), self.total + other.total)


class Histogram:
    """Observes durations, in constant memory. Safe from any thread."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0.0
        self._lock = threading.Lock()

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        with self._lock:
            self._counts[bisect_left(BOUNDS, seconds)] += 1
            self._total += seconds

    def read(self) -> Durations:
        """All observations."""
        with self._lock:
            return Durations(tuple(self._counts), self._total)


KINDS = ("put", "get", "list", "delete", "lock")
RESULTS = ("ok", "exists", "not_found", "not_offered", "error")


class RequestMeter:
    """The requests to one replica's store. Safe from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests: Counter[tuple[str, str]] = Counter()
        self._durations = {kind: Histogram() for kind in KINDS}
        self._lock = threading.Lock()

    @property
    def requests(self) -> Mapping[tuple[str, str], int]:
        """How many requests there were, by (kind, result), with KINDS and RESULTS."""
        with self._lock:
            return dict(self._requests)

    @property
    def durations(self) -> Mapping[str, Durations]:
        """Durations by kind, for all results."""
        return {kind: histogram.read() for kind, histogram in self._durations.items()}

    @contextmanager
    def request(self, kind: str) -> Iterator[None]:
        """Count one request, which lasts as long as the context."""
        started = self._clock.monotonic()
        result = "error"
        try:
            yield
            result = "ok"
        except BaseException as error:
            result = _result_of(error)
            raise
        finally:
            self._durations[kind].observe(self._clock.monotonic() - started)
            with self._lock:
                self._requests[kind, result] += 1


class MeteredStore:
    """An ObjectStore whose requests to the inner store are counted by a meter.

    It counts what callers request: parts and retries that the inner store makes by itself are one request. A get ends
    with the first byte of the answer, and a listing with its first object.
    """

    def __init__(self, inner: ObjectStore, meter: RequestMeter) -> None:
        self._inner = inner
        self._meter = meter
        self.url = inner.url
        self.enforces_create_only = inner.enforces_create_only

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        with self._meter.request("put"):
            self._inner.put(key, body, create_only=create_only)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        with self._meter.request("get"):
            return self._inner.open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return _metered(self._meter, lambda: self._inner.list(prefix, start_after))

    @property
    def kept_versions(self) -> VersionListing | None:
        listing = kept_versions(self._inner)
        return None if listing is None else _MeteredVersions(listing, self._meter)

    def delete(self, keys: Iterable[str]) -> None:
        with self._meter.request("delete"):
            self._inner.delete(keys)

    def close(self) -> None:
        self._inner.close()


class _MeteredVersions:
    def __init__(self, inner: VersionListing, meter: RequestMeter) -> None:
        self._inner = inner
        self._meter = meter

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[KeyVersions]:
        return _metered(self._meter, lambda: self._inner.list(prefix, start_after))


class MeteredLocks:
    """ObjectLocks whose requests to the inner store are counted by a meter: listings, and extensions as ``lock``."""

    def __init__(self, inner: ObjectLocks, meter: RequestMeter) -> None:
        self._inner = inner
        self._meter = meter
        self.retain = inner.retain

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        return _metered(self._meter, lambda: self._inner.list(prefix))

    def extend(self, key: str) -> None:
        with self._meter.request("lock"):
            self._inner.extend(key)


def _metered(meter: RequestMeter, start: Callable[[], Iterator[_Listed]]) -> Iterator[_Listed]:
    """Yield the listing that ``start`` begins. The meter counts it up to its first object."""
    with meter.request("list"):
        listing = start()
        first = next(listing, None)
    if first is not None:
        yield first
        yield from listing


def _result_of(error: BaseException) -> str:
    if isinstance(error, ExistsError):
        return "exists"
    if isinstance(error, NotFoundError):
        return "not_found"
    return "not_offered" if isinstance(error, NotSupportedError) else "error"
