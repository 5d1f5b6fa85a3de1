"""Threads that run in turn. Each waits before every request to its store until it is chosen."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.builders.stores import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore


class Turns:
    """Runs a single thread of several at a time, from one request to the next. ``choose`` chooses the thread."""

    def __init__(self, choose: Callable[[list[int]], int]) -> None:
        self._choose = choose
        self._here = threading.local()
        self._reached = threading.Semaphore(0)
        self._gates: list[threading.Semaphore] = []
        self._alive: set[int] = set()
        self._errors: list[BaseException] = []
        self.points = 0

    def run(self, *actors: Callable[[], None]) -> None:
        self._gates = [threading.Semaphore(0) for _ in actors]
        self._alive = set(range(len(actors)))
        threads = [threading.Thread(target=self._act, args=item) for item in enumerate(actors)]
        for thread in threads:
            thread.start()
            assert self._reached.acquire(timeout=WAIT_SECONDS)
        while self._alive:
            self.points += 1
            self._gates[self._choose(sorted(self._alive))].release()
            assert self._reached.acquire(timeout=WAIT_SECONDS)
        for thread in threads:
            thread.join(WAIT_SECONDS)
        if self._errors:
            raise self._errors[0]

    def point(self) -> None:
        """Wait here until this thread is chosen."""
        number = getattr(self._here, "number", None)
        if number is not None:
            self._reached.release()
            assert self._gates[number].acquire(timeout=WAIT_SECONDS)

    def _act(self, number: int, actor: Callable[[], None]) -> None:
        self._here.number = number
        try:
            self.point()
            actor()
        except BaseException as error:  # noqa: BLE001
            self._errors.append(error)
        finally:
            self._alive.discard(number)
            self._reached.release()


class TurnStore:
    """Waits for its turn before every request."""

    def __init__(self, inner: ObjectStore, turns: Turns) -> None:
        self.inner = inner
        self.url = inner.url
        self.enforces_create_only = inner.enforces_create_only
        self._turns = turns

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        assert create_only
        self._turns.point()
        self.inner.put(key, body)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self._turns.point()
        return self.inner.open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._turns.point()
        return self.inner.list(prefix, start_after)

    def delete(self, keys: Iterable[str]) -> None:
        raise AssertionError(f"nothing is deleted: {keys}")

    def close(self) -> None:
        self.inner.close()
