"""Retries the requests to an object store, so that one failed request does not fail a whole restore."""

from __future__ import annotations

import logging
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from litelog.dataclass import dataclass
from litelog.errors import StoreError
from litelog.events import fields
from litelog.stores.capabilities import kept_versions
from litelog.stores.object_store import ByteRange, ByteStream, ObjectInfo, bytes_left
from litelog.system.clock import SystemClock
from litelog.system.memory import clear_error_frames

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO, TypeGuard

    from typing_extensions import Buffer

    from litelog.stores.capabilities import KeyVersions, VersionListing
    from litelog.stores.object_store import ObjectStore
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class _Keyed(Protocol):
    @property
    def key(self) -> str: ...


_Listed = TypeVar("_Listed", bound=_Keyed)

DELETE_KEYS = 1000
"""The most keys in one attempt to delete: as many as S3 takes in a request. After a failure these are retried."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long a request is tried. Waits have decorrelated jitter: each lasts between ``first_seconds``
    and three times as long as the one before."""

    attempts: int = 8
    total_seconds: float = 60.0
    """No attempt starts later than this after the first one: a person is waiting."""
    first_seconds: float = 0.05
    longest_seconds: float = 10.0
    together: bool = False
    """Whether ``total_seconds`` covers all requests that fail during one outage. Otherwise it covers each of them."""


READING = RetryPolicy(attempts=1000, total_seconds=20.0, together=True)
"""Reads of a replica wait until a server has restarted. The time limits them, not the attempts: as the waits are
random, a number of attempts may end soon or late."""


class RetryingStore:
    """An ObjectStore that retries when the inner one raises a StoreError that is ``retryable``.

    It waits for as long as the store asks (``retry_after``), within the policy's total, and logs that wait once per
    outage. NotFoundError and ExistsError are answers and are passed on. So a put whose answer was lost may raise
    ExistsError for an object that it wrote itself: the caller compares the object with what it sent (every attempt
    sends the same bytes).
    A stream that fails is resumed where it stopped, and a listing after its last key: objects never change.
    ``stop``: once it is set, nothing is retried, and a wait ends at once with the last error.
    """

    def __init__(
        self,
        inner: ObjectStore,
        stop: threading.Event,
        policy: RetryPolicy | None = None,
        random: Random | None = None,
        wait: Callable[[float], bool] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._inner = inner
        self._stop = stop
        self._policy = policy or READING
        self._random = random or Random()  # noqa: S311  spreads load, keeps no secret
        self._wait = wait or stop.wait
        self._clock = clock or SystemClock()
        self._outage: tuple[float, float] | None = None
        """The time of the first and of the last failure since a request was last answered, by the clock."""
        self._is_wait_logged = False
        self.url = inner.url
        self.enforces_create_only = inner.enforces_create_only

    @property
    def awaiting(self) -> ObjectStore:
        """The inner store: a wait is not repeated."""
        return self._inner

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self.attempt(lambda: self._inner.put(key, body, create_only=create_only))

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        stream = self.attempt(lambda: self._inner.open(key, byte_range))
        whole = byte_range or ByteRange(0)

        def open_from(given: int) -> BinaryIO:
            length = None if whole.length is None else whole.length - given
            return self._inner.open(key, ByteRange(whole.start + given, length))

        return cast("BinaryIO", _ResumingStream(key, stream, open_from, self.attempt))

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self.resumed(lambda after: self._inner.list(prefix, after), start_after)

    @property
    def kept_versions(self) -> VersionListing | None:
        listing = kept_versions(self._inner)
        return None if listing is None else _RetryingVersions(listing, self)

    def delete(self, keys: Iterable[str]) -> None:
        left = iter(keys)
        while some := tuple(islice(left, DELETE_KEYS)):
            self.attempt(lambda some=some: self._inner.delete(some))  # type: ignore[misc]

    def close(self) -> None:
        self._inner.close()

    def resumed(
        self, list_after: Callable[[str | None], Iterator[_Listed]], start_after: str | None
    ) -> Iterator[_Listed]:
        """Yield a listing of the inner store with these retries. ``list_after`` lists what sorts after a key."""
        listing = list_after(start_after)
        while True:
            try:
                for info in listing:
                    start_after = info.key
                    yield info
            except StoreError as error:
                failure = error
            else:
                return
            found, listing = self._next(list_after, start_after, failure)
            if found is None:
                return
            start_after = found.key
            yield found

    def _next(
        self,
        list_after: Callable[[str | None], Iterator[_Listed]],
        start_after: str | None,
        failure: StoreError,
    ) -> tuple[_Listed | None, Iterator[_Listed]]:
        """The next object after those that were given when a listing failed, and the listing to continue with."""
        failed: StoreError | None = failure
        listing: Iterator[_Listed] = iter(())

        def advance() -> _Listed | None:
            nonlocal failed, listing
            if failed is not None:  # the attempt that was already made
                error, failed = failed, None
                raise error
            listing = list_after(start_after)
            return next(listing, None)

        return self.attempt(advance), listing

    def attempt(self, call: Callable[[], _Result]) -> _Result:
        """Make a request of the inner store, with these retries. The request may be outside of the interface."""
        policy, now = self._policy, self._clock.monotonic
        end = self._began(now()) + policy.total_seconds
        attempts, wait = 0, policy.first_seconds
        while True:
            try:
                result = call()
            except BaseException as error:
                clear_error_frames(error)
                attempts += 1
                if not self._is_outage(error) or self._stop.is_set() or attempts >= policy.attempts or now() >= end:
                    raise
                wait = min(policy.longest_seconds, self._random.uniform(policy.first_seconds, wait * 3))
                seconds = max(0.0, min(max(wait, error.retry_after or 0.0), end - now()))
                self._log_wait(error, seconds)
                if self._wait(seconds):
                    raise
            else:
                self._outage, self._is_wait_logged = None, False
                return result

    def _is_outage(self, error: BaseException) -> TypeGuard[StoreError]:
        """Whether a request that failed with ``error`` may be retried. Any other error is an answer, and ends an
        outage."""
        if isinstance(error, StoreError) and error.retryable:
            now = self._clock.monotonic()
            self._outage = self._began(now), now
            return True
        self._outage, self._is_wait_logged = None, False
        return False

    def _log_wait(self, error: StoreError, seconds: float) -> None:
        asked = error.retry_after
        if asked and not self._is_wait_logged:
            self._is_wait_logged = True
            message = "%s: the store asks to wait %g s; trying again in %.1f s: %s"
            _logger.warning(
                message, self.url, asked, seconds, error, extra=fields("store-asks-to-wait", replica=self.url)
            )

    def _began(self, now: float) -> float:
        """The start of the time limit of a request that is tried ``now``: the start of the outage, if one lasts."""
        first, last = self._outage or (now, now)
        return first if self._policy.together and now - last <= self._policy.total_seconds else now


class _RetryingVersions:
    """A listing of versions that continues after its last key when a request fails."""

    def __init__(self, inner: VersionListing, store: RetryingStore) -> None:
        self._inner = inner
        self._store = store

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[KeyVersions]:
        return self._store.resumed(lambda after: self._inner.list(prefix, after), start_after)


class _ResumingStream(ByteStream):
    """A stream that is opened again when reading fails. It continues after the last byte that it returned."""

    def __init__(
        self,
        key: str,
        stream: BinaryIO,
        open_from: Callable[[int], BinaryIO],
        attempt: Callable[[Callable[[], bytes]], bytes],
    ) -> None:
        self._key = key
        self._stream: BinaryIO | None = stream
        self._open_from = open_from
        self._attempt = attempt
        self._given = 0

    def read(self, size: int | None = -1, /) -> bytes:
        piece = self._attempt(lambda: self._read_once(-1 if size is None else size))
        self._given += len(piece)
        return piece

    @property
    def left(self) -> int | None:
        """How many bytes are left to read; None if that is not known."""
        return None if self._stream is None else bytes_left(self._stream)

    def close(self) -> None:
        if not self.closed:
            self._drop()
            super().close()

    def _read_once(self, size: int) -> bytes:
        try:
            if self._stream is None:
                self._stream = self._open_from(self._given)
            return self._stream.read(size)
        except StoreError:
            self._drop()
            raise
        except OSError as error:
            self._drop()
            raise StoreError("read", self._key, str(error)) from error

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
