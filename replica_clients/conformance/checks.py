"""Helpers of the suites: functions that read, list and fill a store, and make foreign names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from litelog.stores.object_store import ByteRange, ObjectStore

THREADS = 8
"""Concurrent callers in the tests of concurrency: more than litelog uses for one replica."""


def foreign_names(*keys: str) -> list[str]:
    """Names that other programs might leave next to each of ``keys``: leftovers, copies, other spellings."""
    names = []
    for key in keys:
        folder, _, name = key.rpartition("/")
        names += [f"{key}.tmp", f"{key}~", f"{folder}/.{name}.swp", f"{folder}/junk", f"{folder}/{name.upper()}"]
        names += [f"{folder}/{name[1:]}", f"{folder}/0{name}", f"{folder}/sub/{name}", f"{folder}/{name}.partial"]
    return sorted(set(names))


def read(store: ObjectStore, key: str, byte_range: ByteRange | None = None) -> bytes:
    """An object's bytes, or a range of them."""
    with closing(store.open(key, byte_range)) as stream:
        return stream.read()


def digest(store: ObjectStore, key: str) -> str:
    """The SHA-256 of an object, which is read a MiB at a time."""
    found = sha256()
    with closing(store.open(key)) as stream:
        while piece := stream.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def digest_of(buffers: Iterable[bytes]) -> str:
    """The SHA-256 of buffers, one after the other."""
    found = sha256()
    for buffer in buffers:
        found.update(buffer)
    return found.hexdigest()


def listed(store: ObjectStore, prefix: str = "", start_after: str | None = None) -> list[str]:
    """The keys of a listing."""
    return [info.key for info in store.list(prefix, start_after)]


def fill(store: ObjectStore, keys: Iterable[str]) -> None:
    """Put a small object under each key, from several threads, since a request may take long."""
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda key: store.put(key, [key.encode()]), keys))


class Stream:
    """A body that is not a sequence: each iteration produces its buffers again, one by one.

    ``fails``: raised after the last buffer.
    """

    def __init__(self, buffers: Callable[[], Iterable[bytes]], fails: Exception | None = None) -> None:
        self._buffers = buffers
        self._fails = fails

    def __iter__(self) -> Iterator[bytes]:
        yield from self._buffers()
        if self._fails is not None:
            raise self._fails


def assert_raises(kind: type[Exception], call: Callable[[], object]) -> None:
    """Assert that ``call`` raises ``kind``."""
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")
