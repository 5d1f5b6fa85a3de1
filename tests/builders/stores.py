"""Object stores for tests: wrappers of a real store that count requests, fail on purpose, or wait."""

from __future__ import annotations

import io
import itertools
import math
import threading
from collections import Counter
from contextlib import closing
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, cast

from litelog.errors import ExistsError, NotFoundError, StoreError
from litelog.objects.layout import parse_wal
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore


class CountingStore:
    """Counts requests by operation, and remembers the keys that were put. A listing is counted when it begins."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.url = inner.url
        self.enforces_create_only = inner.enforces_create_only
        self.requests: Counter[str] = Counter()
        self.put_keys: list[str] = []
        self._lock = threading.Lock()
        self._meanwhile: dict[str, tuple[str, Callable[[], None]]] = {}

    def before_put(self, prefix: str, meanwhile: Callable[[], None]) -> None:
        """Call ``meanwhile`` before the next put to a key that starts with ``prefix``."""
        self._meanwhile["put"] = (prefix, meanwhile)

    def after_list(self, prefix: str, meanwhile: Callable[[], None]) -> None:
        """Call ``meanwhile`` after the next listing of a prefix that starts with ``prefix``, before it is read."""
        self._meanwhile["list"] = (prefix, meanwhile)

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self._call_meanwhile("put", key)
        self._count("put")
        with self._lock:
            self.put_keys.append(key)
        self.inner.put(key, body, create_only=create_only)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self._count("open")
        return self.inner.open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._count("list")
        found = list(self.inner.list(prefix, start_after)) if "list" in self._meanwhile else None
        self._call_meanwhile("list", prefix)
        return self.inner.list(prefix, start_after) if found is None else iter(found)

    def delete(self, keys: Iterable[str]) -> None:
        self._count("delete")
        self.inner.delete(keys)

    def close(self) -> None:
        self.inner.close()

    def total(self) -> int:
        """The number of all requests."""
        with self._lock:
            return self.requests.total()

    def _count(self, operation: str) -> None:
        with self._lock:
            self.requests[operation] += 1

    def _call_meanwhile(self, operation: str, key: str) -> None:
        prefix, meanwhile = self._meanwhile.get(operation, ("", None))
        if meanwhile is not None and key.startswith(prefix):
            del self._meanwhile[operation]
            meanwhile()


class Fault(Enum):
    """A fault of one request."""

    NONE = "none"
    BEFORE = "before"
    """The request fails without any effect."""
    AFTER = "after"
    """The request is carried out and then fails: its answer was lost."""
    TRUNCATE = "truncate"
    """A read ends early, without an error."""
    FLIP = "flip"
    """A read has one wrong bit."""
    BREAK = "break"
    """A read raises OSError half-way; a listing raises StoreError after one object."""


class FaultyStore:
    """Makes requests fail by a script, or at a rate, from a seed.

    ``script``: for each operation, the faults of its requests, in order; later requests have none. ``rates``: for each
    operation, the faults to choose from and the chance of any. ``enabled``: whether any request fails.
    """

    def __init__(
        self,
        inner: ObjectStore,
        script: dict[str, Sequence[Fault]] | None = None,
        rates: dict[str, tuple[Sequence[Fault], float]] | None = None,
        seed: int = 0,
    ) -> None:
        self.inner = inner
        self.url = inner.url
        self.enforces_create_only = inner.enforces_create_only
        self.enabled = True
        self.injected: Counter[tuple[str, Fault]] = Counter()
        self._script = {operation: list(faults) for operation, faults in (script or {}).items()}
        self._rates = rates or {}
        self._random = Random(seed)
        self._lock = threading.Lock()

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self._carry_out("put", key, lambda: self.inner.put(key, body, create_only=create_only))

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        fault = self._next("open")
        if fault in {Fault.BEFORE, Fault.AFTER}:
            raise StoreError("open", key, f"injected: {fault.value}")
        stream = self.inner.open(key, byte_range)
        if fault is Fault.NONE:
            return stream
        with closing(stream):
            body = bytearray(stream.read())
        if fault is Fault.FLIP and body:
            bit = self._pick(len(body) * 8)
            body[bit // 8] ^= 1 << bit % 8
        elif fault is Fault.TRUNCATE and body:
            del body[self._pick(len(body)) :]
        elif fault is Fault.BREAK:
            return cast("BinaryIO", BreakingStream(bytes(body[: len(body) // 2])))
        return io.BytesIO(body)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        fault = self._next("list")
        if fault in {Fault.BEFORE, Fault.AFTER}:
            raise StoreError("list", prefix, f"injected: {fault.value}")
        for info in self.inner.list(prefix, start_after):
            yield info
            if fault is Fault.BREAK:
                raise StoreError("list", prefix, "injected: break")

    def delete(self, keys: Iterable[str]) -> None:
        wanted = list(keys)
        self._carry_out("delete", ", ".join(wanted[:3]), lambda: self.inner.delete(wanted))

    def close(self) -> None:
        self.inner.close()

    def _carry_out(self, operation: str, key: str, call: Callable[[], None]) -> None:
        fault = self._next(operation)
        if fault is not Fault.BEFORE:
            call()
        if fault in {Fault.BEFORE, Fault.AFTER}:
            raise StoreError(operation, key, f"injected: {fault.value}")

    def _next(self, operation: str) -> Fault:
        with self._lock:
            if not self.enabled:
                return Fault.NONE
            fault = Fault.NONE
            if scripted := self._script.get(operation):
                fault = scripted.pop(0)
            elif operation in self._rates:
                faults, chance = self._rates[operation]
                if self._random.random() < chance:
                    fault = self._random.choice(faults)
            if fault is not Fault.NONE:
                self.injected[operation, fault] += 1
            return fault

    def _pick(self, limit: int) -> int:
        with self._lock:
            return self._random.randrange(limit)


class CarelessStore(CountingStore):
    """Accepts create-only puts and overwrites in spite of it, as stores do that ignore the header If-None-Match."""

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        super().put(key, body, create_only=False)


class DisappearingStore(CountingStore):
    """A store whose root goes away, as a folder's disk does that is unmounted: it then seems to be empty."""

    def __init__(self, inner: ObjectStore, leaves_at: int, back_at: float = math.inf) -> None:
        """``leaves_at`` and ``back_at``: the numbers of the first requests without and with the root again."""
        super().__init__(inner)
        self.leaves_at, self.back_at = leaves_at, back_at

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        if self.is_away:
            self._count("open")
            raise NotFoundError(key)
        return super().open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        if self.is_away:
            self._count("list")
            return iter(())
        return super().list(prefix, start_after)

    @property
    def is_away(self) -> bool:
        """Whether the root is away at the next request."""
        return self.leaves_at <= self.total() < self.back_at


class RacyStore(CountingStore):
    """Looks whether a key is free and then writes, so that several writers at once are all accepted.

    ``meets``: the keys to which ``writers`` puts come at once. Each of these puts writes after all of them have looked.
    """

    def __init__(self, inner: ObjectStore, meets: Callable[[str], bool], writers: int) -> None:
        super().__init__(inner)
        self._meets = meets
        self._writers = writers
        self._looked: dict[str, threading.Barrier] = {}

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        if not create_only or not self._meets(key):
            super().put(key, body, create_only=create_only)
            return
        with self._lock:
            met = self._looked.setdefault(key, threading.Barrier(self._writers))
        met.wait(WAIT_SECONDS)
        super().put(key, body, create_only=False)


class InPartsStore(CountingStore):
    """A store with the methods of stores that put in parts. It puts the whole object at once."""

    is_known_to_list = False

    def put_in_parts(self, key: str, body: Iterable[Buffer]) -> None:
        self.put(key, body)

    def list_in_pages(self, prefix: str, keys: int) -> Iterator[Sequence[ObjectInfo]]:
        found = self.list(prefix)
        while page := list(itertools.islice(found, keys)):
            yield page


class AnswerLosingStore(CountingStore):
    """Loses the answer to each create-only put that it takes, so that the client's next try is refused."""

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        super().put(key, body, create_only=create_only)
        if create_only:
            raise ExistsError(key)


class UnsortedStore(CountingStore):
    """Lists its last object first."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        found = list(super().list(prefix, start_after))
        return iter(found[-1:] + found[:-1])


class ShortListingStore(CountingStore):
    """Lists ``limit`` objects, and then fails; with ``silent``, the listing ends without an error."""

    def __init__(self, inner: ObjectStore, limit: int, *, silent: bool = False) -> None:
        super().__init__(inner)
        self._limit = limit
        self._silent = silent

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for number, info in enumerate(super().list(prefix, start_after)):
            if number == self._limit:
                if self._silent:
                    return
                raise StoreError("list", prefix, "We encountered an internal error (InternalError)")
            yield info


class BreakingStream(io.RawIOBase):
    """Gives its bytes, and at their end raises OSError, as a connection that is reset does."""

    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def read(self, size: int | None = -1, /) -> bytes:
        piece = self._content.read(size)
        if not piece or size is None or size < 0:
            raise OSError("injected: connection reset")
        return piece

    def readable(self) -> bool:
        return True


class PausingStore:
    """Holds the requests of one operation at a gate. ``reached`` is set when a request waits there.

    ``after``: a request waits after it was carried out, before it is answered.
    """

    def __init__(self, inner: ObjectStore, operation: str, *, after: bool = False) -> None:
        self.inner = inner
        self.url = inner.url
        self.enforces_create_only = inner.enforces_create_only
        self.reached = threading.Event()
        self._gate = threading.Event()
        self._operation = operation
        self._after = after

    def release(self) -> None:
        """Open the gate for the requests that wait and for all later ones."""
        self._gate.set()

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self._pause("put", after=False)
        self.inner.put(key, body, create_only=create_only)
        self._pause("put", after=True)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self._pause("open", after=False)
        stream = self.inner.open(key, byte_range)
        self._pause("open", after=True)
        return stream

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._pause("list", after=False)
        found = self.inner.list(prefix, start_after)
        self._pause("list", after=True)
        return found

    def delete(self, keys: Iterable[str]) -> None:
        self._pause("delete", after=False)
        self.inner.delete(keys)
        self._pause("delete", after=True)

    def close(self) -> None:
        self.release()
        self.inner.close()

    def _pause(self, operation: str, *, after: bool) -> None:
        if operation == self._operation and after == self._after:
            self.reached.set()
            if not self._gate.wait(WAIT_SECONDS):
                raise StoreError(operation, "", f"the gate was not released within {WAIT_SECONDS} s")


class KilledError(BaseException):
    """The process ends here."""


class KillingStore(CountingStore):
    """Ends the process before or after the n-th put."""

    def __init__(self, inner: ObjectStore, at: int, *, after: bool) -> None:
        super().__init__(inner)
        self.at = at
        self.after = after
        self._numbers = itertools.count(1)

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        killed = next(self._numbers) == self.at  # puts come from several threads
        if killed and not self.after:
            raise KilledError
        try:
            super().put(key, body, create_only=create_only)
        finally:
            if killed:
                raise KilledError


def keys_of(store: ObjectStore, parse: Callable[[str], object] = parse_wal) -> list[str]:
    """The keys in a store that ``parse`` takes: by default, those of WAL segments."""
    return [info.key for info in store.list("") if parse(info.key) is not None]
