"""A simulated object store, reached through a simulated network.

A request is in transit for a while, is carried out at one moment, and is answered a while later. Its faults are drawn
from the current state of the network: a request may fail before or after it was carried out, be throttled, or come so
late that its sender has given up (a late put). A killed or paused sender changes nothing about a request under way.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any

from litelog.encryption.chunks import MAGIC
from litelog.errors import ExistsError, NotFoundError, StoreError
from litelog.objects import layout, wal_segment
from litelog.stores.capabilities import KeyVersions
from litelog.stores.object_store import ByteRange, NotSupportedError, ObjectInfo, require_key, require_prefix
from replica_clients.file import FileStore
from tests.simulation.scheduler import ViolationError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator
    from random import Random
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.capabilities import VersionListing
    from litelog.stores.object_store import Root
    from tests.simulation.scheduler import Scheduler

CLIENT_SECONDS = 30.0
"""Seconds that a sender waits for an answer."""

PAGE = 100
"""Keys that one answer to a listing holds."""


@dataclass(slots=True)
class NetworkConditions:
    """The faults of requests at the moment. Probabilities from 0 to 1, times in seconds."""

    before: float = 0.0
    """The request fails, and was not carried out."""
    after: float = 0.0
    """The request fails, but was carried out."""
    throttled: float = 0.0
    late: float = 0.0
    """The request takes longer than its sender waits. A late put may be carried out after that."""
    latency: float = 0.02
    down: bool = False
    """The store answers nothing. Half of the requests fail at once, and half when their time is over."""


@dataclass(slots=True)
class PlannedFault:
    """A fault of the next requests of one kind."""

    who: str
    request: str
    """As in ``plan.When``."""
    kind: str
    """``before``, ``after``, ``throttled``: as in NetworkConditions."""
    count: int
    retry_after: float | None = None


class Creation(StrEnum):
    """How a store treats a create-only put."""

    REFUSES = "refuses"
    """Refuses it if the key is taken, in one step."""
    LOOKS = "looks"
    """Looks, and then writes. Two puts may do so at once."""
    NONE = "none"
    """Has no such put."""
    OVERWRITES = "overwrites"
    """Accepts it, but ignores the condition."""
    RACES = "races"
    """Looks, and then writes, but claims to do it in one step."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an object."""

    body: bytes | None
    """None is a delete marker."""
    at: int
    """When it was put, by ``Bucket.changes``."""


@dataclass(slots=True)
class Bucket:
    """Objects, and what happened to them."""

    url: str
    counts: Counter[str]
    creation: Creation
    objects: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, list[Version]] = field(default_factory=dict)
    """All versions of each key, oldest first. What the store lost itself is not among them."""
    changes: int = 0
    """How many versions were put: the clock of the versions, in which no two have the same time."""
    is_locked: bool = True
    """Whether versions cannot be deleted, as with Object Lock."""
    network: NetworkConditions = field(default_factory=NetworkConditions)
    on_put: Callable[[str, bytes], None] = lambda _key, _body: None
    on_request: Callable[[str, str, str], None] = lambda _who, _moment, _request: None
    """Called before a request is sent, once it was carried out, and once its sender knows that (``answered``): who sent
    it, the moment, operation and key."""
    faults: list[PlannedFault] = field(default_factory=list)
    is_away = False

    @property
    def keeps_writers_apart(self) -> bool:
        """Whether exactly one of several create-only puts of one key succeeds."""
        return self.creation is Creation.REFUSES

    def keys(self) -> list[str]:
        """All keys, in order."""
        return sorted(self.objects)

    def connect(self) -> Bucket:
        """The connection of one process."""
        return self

    def leave(self) -> None:
        """Do nothing: a service has no root that could disappear."""

    def come_back(self) -> None:
        """Bring the root back, as it was."""

    def lose(self, key: str) -> None:
        """Lose an object."""
        del self.objects[key]
        del self.versions[key]
        self.counts[f"fault: lost {_kind(key)}"] += 1

    def put(self, key: str, body: bytes, *, create_only: bool) -> None:
        if create_only and self.creation is Creation.NONE:
            raise NotSupportedError("put", key, "no create-only puts here")
        if create_only and key in self.objects and self.creation is not Creation.OVERWRITES:
            self.counts[f"put refused: {_kind(key)}"] += 1
            raise ExistsError(key)
        if self.objects.get(key, body) != body and self.creation is Creation.REFUSES:
            raise ViolationError(f"P6: {key} was overwritten")
        self.objects[key] = body
        self._note(key, body)
        self.counts[f"put: {_kind(key, body)}"] += 1
        self.on_put(key, body)

    def get(self, key: str, byte_range: ByteRange | None) -> bytes:
        if key not in self.objects:
            raise NotFoundError(key)
        body = self.objects[key]
        if byte_range is None:
            return body
        end = None if byte_range.length is None else byte_range.start + byte_range.length
        return body[byte_range.start : end]

    def page_versions(self, prefix: str, after: str | None, limit: int) -> list[KeyVersions]:
        keys = sorted(key for key in self.versions if key.startswith(prefix) and (after is None or key > after))
        return [_summed_up(key, self.versions[key]) for key in keys[:limit]]

    def page(self, prefix: str, after: str | None, limit: int) -> list[ObjectInfo]:
        keys = sorted(key for key in self.objects if key.startswith(prefix) and (after is None or key > after))
        return [ObjectInfo(key, len(self.objects[key])) for key in keys[:limit]]

    def delete(self, keys: list[str]) -> None:
        for key in keys:
            self._note(key, None)
            if self.objects.pop(key, None) is not None:
                self.counts[f"deleted: {_kind(key)}"] += 1

    def overwrite(self, key: str, body: bytes) -> None:
        """Put a key again, as somebody does who has the right to write."""
        self.objects[key] = body
        self._note(key, body)

    def delete_versions(self, key: str) -> None:
        """Delete all versions of a key, so that nothing can bring it back. Raises StoreError if they are locked."""
        if self.is_locked:
            raise StoreError("delete", key, "simulated: AccessDenied: the version is locked", retryable=False)
        self.objects.pop(key, None)
        del self.versions[key]

    def _note(self, key: str, body: bytes | None) -> None:
        self.changes += 1
        self.versions.setdefault(key, []).append(Version(body, self.changes))


def _summed_up(key: str, versions: list[Version]) -> KeyVersions:
    contents = [version.body for version in versions if version.body is not None]
    markers = len(versions) - len(contents)
    is_hidden, is_same = versions[-1].body is None, len(set(contents)) < 2
    return KeyVersions(key, len(contents), markers, is_hidden, is_same, True, len(versions))


def _kind(key: str, body: bytes | None = None) -> str:
    """The kind of an object, for a printed line."""
    if body is not None and body.startswith(MAGIC):
        return "encrypted object"
    if body is not None and layout.parse_wal(key) is not None:
        header = wal_segment.decode(key, body).header
        if header.successor is not None:
            return "terminal"
        if header.sealed is not None:
            return "final for a sealed segment"
        return "final WAL segment" if header.final else "WAL segment"
    return next((kind for kind, parse in _PARSERS.items() if parse(key) is not None), "other object")


_PARSERS: dict[str, Callable[[str], object]] = {
    "claim": layout.parse_claim,
    "WAL segment": layout.parse_wal,
    "snapshot": layout.parse_snapshot,
    "sealed segment": layout.parse_sealed,
    "checkpoint": layout.parse_checkpoint,
}


class Folder:
    """A bucket in a folder on a disk that may be unmounted. The real file store uses it."""

    creation = Creation.REFUSES
    keeps_writers_apart = True

    def __init__(self, path: str, counts: Counter[str]) -> None:
        self.url = f"file://{path}"
        self.path = path
        self.counts = counts
        self.network = NetworkConditions()
        self.on_put: Callable[[str, bytes], None] = lambda _key, _body: None
        self.on_request: Callable[[str, str, str], None] = lambda _who, _moment, _request: None
        self.faults: list[PlannedFault] = []
        self.is_away = False

    def keys(self) -> list[str]:
        """All keys, in order."""
        if not os.path.isdir(self.path):
            return []
        return [info.key for info in FileStore(self.path).list("")]

    def connect(self) -> FolderConnection:
        """The connection of one process."""
        return FolderConnection(self)

    def leave(self) -> None:
        """Unmount the disk. The folder on which it was mounted remains."""
        if not self.is_away and os.path.isdir(self.path):
            os.rename(self.path, self.path + ".away")
            os.mkdir(self.path)
            self.is_away = True
            self.counts["fault: root away"] += 1

    def come_back(self) -> None:
        """Mount the disk again."""
        if self.is_away:
            if os.listdir(self.path):
                self.counts["a folder was made instead of the root"] += 1
            shutil.rmtree(self.path)
            os.rename(self.path + ".away", self.path)
            self.is_away = False

    def lose(self, key: str) -> None:
        """Lose an object."""
        os.unlink(os.path.join(self.path, key))
        self.counts[f"fault: lost {_kind(key)}"] += 1


class FolderConnection:
    """One process's file store."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._store = FileStore(folder.path)

    def put(self, key: str, body: bytes, *, create_only: bool) -> None:
        counts = self._folder.counts
        try:
            self._store.put(key, [body], create_only=create_only)
        except ExistsError:
            counts[f"put refused: {_kind(key)}"] += 1
            raise
        counts[f"put: {_kind(key, body)}"] += 1
        self._folder.on_put(key, body)

    def get(self, key: str, byte_range: ByteRange | None) -> bytes:
        with self._store.open(key, byte_range) as stream:
            return stream.read()

    def page(self, prefix: str, after: str | None, limit: int) -> list[ObjectInfo]:
        return list(islice(self._store.list(prefix, after), limit))

    def look_at_root(self) -> Root:
        return self._store.look_at_root()

    def keep_to_root(self, root: Root, anchor: str) -> None:
        self._store.keep_to_root(root, anchor)

    def delete(self, keys: list[str]) -> None:
        self._store.delete(keys)
        for key in keys:
            self._folder.counts[f"deleted: {_kind(key)}"] += 1


class SimulatedStore:
    """An ObjectStore over a bucket. Outside of all tasks its requests take no time, and none fails."""

    def __init__(
        self,
        bucket: Bucket | Folder,
        scheduler: Scheduler,
        random: Random,
        say: Callable[[str], None] = lambda _what: None,
    ) -> None:
        """``say`` is called for each request that is carried out."""
        self._say = say
        self.url = bucket.url
        self.enforces_create_only = bucket.creation is not Creation.LOOKS
        self.bucket = bucket
        self._there = bucket.connect()
        self._scheduler = scheduler
        self._random = random

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        require_key(key)
        whole = b"".join(bytes(piece) for piece in body)
        if create_only and self.bucket.creation in {Creation.LOOKS, Creation.RACES}:
            if self._request("list", key, lambda: self._there.page(key, None, 1)):
                raise ExistsError(key)
            create_only = False
        self._request("put", key, lambda: self._there.put(key, whole, create_only=create_only))

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        require_key(key)
        return io.BytesIO(self._request("open", key, lambda: self._there.get(key, byte_range)))

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        require_prefix(prefix)
        while True:
            after = start_after
            page = self._request("list", prefix, lambda: self._there.page(prefix, after, PAGE))  # noqa: B023
            yield from page
            if len(page) < PAGE:
                return
            start_after = page[-1].key

    def delete(self, keys: Iterable[str]) -> None:
        wanted = list(keys)
        self._request("delete", wanted[0] if wanted else "", lambda: self._there.delete(wanted))

    def close(self) -> None: ...

    @property
    def kept_versions(self) -> VersionListing | None:
        return _Versions(self) if isinstance(self.bucket, Bucket) else None

    def _request(self, operation: str, key: str, carry_out: Callable[[], Any]) -> Any:
        if self._scheduler.current is None:
            return carry_out()
        network, chance = self.bucket.network, self._random.random
        who, request = self._scheduler.current.process.name, f"{operation} {key}"
        self.bucket.on_request(who, "before", request)
        self._scheduler.seam()
        fault = self._find_fault(who, request)
        there, back = (network.latency * (0.5 + chance()) for _ in range(2))
        if network.down:
            self._scheduler.sleep(there + back if chance() < 0.5 else CLIENT_SECONDS)
            raise self._failure(operation, key, "down")
        if chance() < network.throttled or (fault is not None and fault.kind == "throttled"):
            self._scheduler.sleep(there + back)
            self._note("throttled")
            after = self._random.choice((None, 1.0, 5.0, 120.0)) if fault is None else fault.retry_after
            raise StoreError(operation, key, "simulated: slow down", retry_after=after)
        if chance() < network.before or (fault is not None and fault.kind == "before"):
            self._scheduler.sleep(there + back)
            raise self._failure(operation, key, "before")
        if chance() < network.late:
            there += CLIENT_SECONDS * self._random.choice((0.7, 1.0, 1.5, 20.0))
        outcome: list[tuple[Any, BaseException | None]] = []

        def arrive() -> None:
            outcome.append(self._arrive(f"{who}: {request}", carry_out))
            self.bucket.on_request(who, "done", request)

        self._scheduler.after(there, arrive)
        self._scheduler.sleep(min(there + back, CLIENT_SECONDS))
        self._scheduler.seam()
        if not outcome:
            raise self._failure(operation, key, "late")
        if chance() < network.after or (fault is not None and fault.kind == "after"):
            raise self._failure(operation, key, "after")
        result, error = outcome[0]
        if error is not None:
            raise error
        self.bucket.on_request(who, "answered", request)
        return result

    def _find_fault(self, who: str, request: str) -> PlannedFault | None:
        for fault in self.bucket.faults:
            if fault.count and fault.who == who and re.match(fault.request, request):
                fault.count -= 1
                return fault
        return None

    def _arrive(self, what: str, carry_out: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        self._say(what)
        try:
            return carry_out(), None
        except StoreError as error:
            return None, error
        except ViolationError as error:
            self._scheduler.fail(error)
            return None, error

    def _failure(self, operation: str, key: str, kind: str) -> StoreError:
        self._note(f"{operation} failed {kind}")
        return StoreError(operation, key, f"simulated: {kind}")

    def _note(self, what: str) -> None:
        self.bucket.counts[f"fault: {what}"] += 1


class _Versions:
    """The versions of a bucket's objects, listed page by page through the network."""

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[KeyVersions]:
        bucket = self._store.bucket
        assert isinstance(bucket, Bucket)
        while True:
            after = start_after
            page = self._store._request("list", prefix, lambda: bucket.page_versions(prefix, after, PAGE))  # noqa: B023
            yield from page
            if len(page) < PAGE:
                return
            start_after = page[-1].key


class RootedStore(SimulatedStore):
    """A simulated store over a folder, whose root may disappear."""

    def look_at_root(self) -> Root:
        """As a file store does."""
        assert isinstance(self._there, FolderConnection)
        return self._there.look_at_root()

    def keep_to_root(self, root: Root, anchor: str) -> None:
        """As a file store does."""
        assert isinstance(self._there, FolderConnection)
        self._there.keep_to_root(root, anchor)
