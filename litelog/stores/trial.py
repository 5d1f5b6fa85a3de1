"""Trials of a store before it is used: a race of writers, and a listing, with objects of their own.

A store may refuse a second create-only put and still accept two that come at the same moment, if it checks whether the
key is free and then writes. It may also hold more objects than it can list. Ordinary use shows neither until it is too
late. So ``litelog check`` tries both, and so does an owner before its first claim at a destination.

Specified in litelog/stores/README.md#trials.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.errors import ExistsError, NotFoundError, StoreError
from litelog.objects.layout import Fencing, trial_prefix
from litelog.stores.object_store import PartsAndPages
from litelog.stores.registry import destination_of, scheme_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from litelog.stores.object_store import ObjectInfo, ObjectStore

RACERS = 8
"""Writers of one key at a time. With eight, stores that were found not to be atomic accepted two to eight."""

ROUNDS = 3
"""Races of one kind, each for another key: a single one may pass by chance."""

START_SECONDS = 10.0
"""How long the writers wait for each other, in seconds. After that they begin, even if a writer did not start."""

LISTED = 1001
"""Objects in a long listing: one more than S3 gives in a page, and than some stores can list at all."""

PAGED, PAGE_KEYS = 5, 2
"""Objects in a short listing, and in each of its pages if the page size can be chosen: there are three pages.

The short listing finds a store that fails after a page, with few requests, however long the store's own pages are. It
does not find a store that fails only after a page of 1,000 keys. So the long listing follows, except at a service that
is known to list (``is_known_to_list``).
"""

LISTING_TRIES = 4
"""Attempts of a listing. If one request in three fails, a listing of a few requests often fails as a whole."""

LISTING_THREADS = 16
"""Concurrent puts and deletions of a long listing's objects: over a network each waits for an answer."""

_Place = tuple[str, Fencing]
"""A destination, and the fencing that is configured for it."""

_DECIDED_HERE = frozenset({"file", "local", "memory"})
"""Schemes of stores in which the kernel or the interpreter keeps writers apart: they need no trial."""

ISOLATED_INSTEAD = (
    "Choose a store that refuses a second create-only put of a key; or set fencing: isolated for this replica, which "
    "gives up that only one daemon writes at a time: then a default restore or read may lack data of the other daemon, "
    "even if it was acknowledged"
)
CANNOT_LIST = "shipped objects could not be found by restore; choose another store"


class TrialError(Exception):
    """The store does not do what replication relies on."""


class UnfitStoreError(StoreError):
    """The store cannot hold a replica, or not with the configured fencing. Trying again does not help."""

    def __init__(self, operation: str, key: str, reason: str) -> None:
        super().__init__(operation, key, reason, retryable=False)


class NotCreateOnlyError(UnfitStoreError):
    """The store has no create-only put, so it cannot keep two writers apart. ``evidence`` says how litelog knows."""

    def __init__(self, key: str, evidence: str) -> None:
        reason = f"{evidence}: this store cannot fence writers, as fencing: required demands. {ISOLATED_INSTEAD}"
        super().__init__("put", key, reason)


def try_race(store: ObjectStore, keys: Sequence[str], put: Callable[[str, bytes], None] | None = None) -> None:
    """Have RACERS put the same key at the same moment, for each of the keys. Raise TrialError unless one is accepted.

    ``put`` replaces the store's own. Raises StoreError if requests failed and none was accepted. A put that failed may
    still have stored the object. The objects are deleted afterwards, if the store can delete.
    """
    put = put or (lambda key, body: store.put(key, [body]))
    try:
        with ThreadPoolExecutor(RACERS, "trial") as pool:
            for key in keys:
                _race(pool, store, key, put)
    finally:
        _delete(store, keys)


def try_listing(
    store: ObjectStore, prefix: str, count: int, listing: Callable[[str], Iterator[ObjectInfo]] | None = None
) -> None:
    """List ``count`` new objects, in order and to the end. They are deleted afterwards.

    Raises TrialError if the store cannot do that, and StoreError if it may have been unavailable. ``listing`` replaces
    the store's own.
    """
    keys = [f"{prefix}{number:04d}" for number in range(count)]
    mixed = [*keys[1::2], *keys[::2]]  # a store that lists in the order of puts, or in reverse, is found
    with ThreadPoolExecutor(LISTING_THREADS if count > LISTING_THREADS else 1, "trial") as pool:
        try:
            for _ in pool.map(lambda key: store.put(key, [b"x"], create_only=False), mixed):
                pass
            found = _list(listing or store.list, prefix, count)
            if sorted(found) != keys:
                raise TrialError(f"{count} objects are there, and their listing shows {len(found)}")
            if found != keys:
                raise TrialError(f"the listing of {count} objects is not in the order of their keys")
        finally:
            for _ in pool.map(lambda start: _delete(store, keys[start::LISTING_THREADS]), range(LISTING_THREADS)):
                pass


def _list(listing: Callable[[str], Iterator[ObjectInfo]], prefix: str, count: int) -> list[str]:
    """The keys in a listing of ``count`` objects. Raises TrialError and StoreError as ``try_listing`` does."""
    failure = StoreError("list", prefix, "")
    for _ in range(LISTING_TRIES):
        try:
            return [info.key for info in listing(prefix)]
        except StoreError as error:
            failure = error
            if not error.retryable:
                break
    reason = f"{count} objects are there, and their listing fails: {failure.reason}"
    if not failure.retryable:
        raise TrialError(reason) from failure
    lasting = f"{reason}. If that lasts, {CANNOT_LIST}"  # an outage says nothing about the store
    raise StoreError("list", prefix, lasting, retry_after=failure.retry_after) from failure


class StoreTrials:
    """Tries each destination once in this process, no matter how many logs use it, and keeps the result."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._verdicts: dict[_Place, UnfitStoreError | None] = {}
        self._passed: set[tuple[_Place, str]] = set()
        self._trying: defaultdict[_Place, threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.Lock()

    def require_fit(
        self, destination: str, fencing: Fencing, store: ObjectStore, parts_and_pages: PartsAndPages | None
    ) -> None:
        """Raise UnfitStoreError if the store at the destination cannot be used with that fencing.

        ``parts_and_pages``: the same store without wrappers, if it has that capability. Makes up to about 120 requests
        for objects of a few bytes, and up to about 1,010 more unless the store is known to list. Raises StoreError if
        requests failed before the result is known.
        """
        place = (destination, fencing)
        with self._lock:
            trying = self._trying[place]
        with trying:
            if place not in self._verdicts:
                prefix = trial_prefix(self._random.getrandbits(64))
                self._verdicts[place] = self._find_unfit(place, prefix, store, parts_and_pages)
        if (unfit := self._verdicts[place]) is not None:
            raise unfit

    def _find_unfit(
        self, place: _Place, prefix: str, store: ObjectStore, parts_and_pages: PartsAndPages | None
    ) -> UnfitStoreError | None:
        try:
            if place[1] is Fencing.REQUIRED:
                self._once(place, "race", lambda: try_race(store, race_keys(f"{prefix}race-")))
                if parts_and_pages is not None:
                    put = in_parts(parts_and_pages)
                    self._once(place, "parts", lambda: try_race(store, race_keys(f"{prefix}parts-"), put))
        except TrialError as error:
            return NotCreateOnlyError(prefix, str(error))
        if parts_and_pages is not None:
            try:
                self._once(place, "pages", lambda: _try_pages(store, f"{prefix}page-", parts_and_pages))
                if not parts_and_pages.is_known_to_list:
                    self._once(place, "listing", lambda: _try_long_listing(store, prefix))
            except TrialError as error:
                return UnfitStoreError("list", prefix, f"{error}: {CANNOT_LIST}")
        return None

    def _once(self, place: _Place, step: str, work: Callable[[], None]) -> None:
        """Run a step of the trial, unless it has passed before: after an outage only the failed steps are repeated."""
        if (place, step) not in self._passed:
            work()
            self._passed.add((place, step))


def _try_pages(store: ObjectStore, prefix: str, parts_and_pages: PartsAndPages) -> None:
    """List a few objects in short pages, as ``try_listing``."""

    def listing(prefix: str) -> Iterator[ObjectInfo]:
        for page in parts_and_pages.list_in_pages(prefix, PAGE_KEYS):
            yield from page

    try_listing(store, prefix, PAGED, listing)


def _try_long_listing(store: ObjectStore, prefix: str) -> None:
    """List more objects than are in a page, as ``try_listing``; unless the store deletes nothing, so that they would
    stay."""
    if next(store.list(prefix), None) is None:  # it deleted what was put before
        try_listing(store, f"{prefix}long-", LISTED)


def try_store(trials: StoreTrials, fencing: Fencing, store: ObjectStore, plain: ObjectStore) -> None:
    """Try the store as ``require_fit`` does, and raise its errors. A store in which this machine itself keeps writers
    apart needs no trial. ``plain``: the store without wrappers."""
    if scheme_of(plain.url) in _DECIDED_HERE:
        return
    small = plain if isinstance(plain, PartsAndPages) else None
    trials.require_fit(destination_of(plain.url), fencing, store, small)


def race_keys(prefix: str) -> list[str]:
    """The keys of ROUNDS races."""
    return [f"{prefix}{number}" for number in range(ROUNDS)]


def in_parts(store: PartsAndPages) -> Callable[[str, bytes], None]:
    """A put for a race of uploads in parts."""
    return lambda key, body: store.put_in_parts(key, [body])


def _race(pool: ThreadPoolExecutor, store: ObjectStore, key: str, put: Callable[[str, bytes], None]) -> None:
    start = threading.Barrier(RACERS, timeout=START_SECONDS)
    bodies = [f"writer {racer}".encode() for racer in range(RACERS)]

    def run(body: bytes) -> StoreError | None:
        with suppress(threading.BrokenBarrierError):
            start.wait()
        try:
            put(key, body)
        except StoreError as error:  # among others: the key is taken
            return error
        return None

    answers = list(pool.map(run, bodies))
    accepted = [body for body, error in zip(bodies, answers, strict=True) if error is None]
    if len(accepted) > 1:
        raise TrialError(f"{len(accepted)} of {RACERS} concurrent create-only puts of one key were accepted")
    try:
        with store.open(key) as stream:
            there = stream.read()
    except NotFoundError:
        failures = (error for error in answers if error is not None and not isinstance(error, ExistsError))
        raise next(failures, TrialError(f"none of {RACERS} create-only puts of a free key was accepted")) from None
    if there not in bodies:  # no put of the race explains that, but a bit that flipped on the way does
        raise StoreError("open", key, "the store gave other bytes than any that were put")
    if there not in (accepted or bodies):
        raise TrialError("the store accepted one of several concurrent create-only puts of a key, and holds another")


def _delete(store: ObjectStore, keys: Sequence[str]) -> None:
    with suppress(StoreError):  # without the permission to delete, a few small objects stay; no reader uses them
        store.delete(keys)
