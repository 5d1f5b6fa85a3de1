"""WriteBehind: writes the bytes of a growing copy in a thread of its own, in order, while the next ones are received.

One sync covers all that waits when the thread is free: many small runs while the copy catches up, and each run at once
when it has caught up.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

HELD_BYTES = 32 << 20
"""The most bytes that wait to be durable; a single larger run waits alone."""


class WriteBehind:
    """Runs of bytes that wait to be written and synced. One thread calls the methods.

    After a failure nothing more is written: all further calls raise the same error.
    """

    def __init__(self, write: Callable[[str, int, Sequence[memoryview]], None]) -> None:
        """``write``: writes runs that follow each other into the file of that name, from an offset on, durably."""
        self._write = write
        self._executor = ThreadPoolExecutor(1, "write-behind")
        self._lock = threading.Lock()
        self._queue: deque[tuple[str, int, memoryview]] = deque()
        """The runs that the thread has not taken yet."""
        self._waiting: deque[tuple[str, int, Future[None]]] = deque()
        """The file and the size of each run that may not be durable yet."""
        self._held = 0
        self._failure: BaseException | None = None

    def put(self, name: str, start: int, data: memoryview) -> None:
        """Take the bytes of a file from ``start`` on. Waits for room. Raises the error of an earlier write."""
        if self._failure is not None:
            raise self._failure
        while self._waiting and (self._waiting[0][2].done() or self._held + len(data) > HELD_BYTES):
            self._await_first()
        with self._lock:
            self._queue.append((name, start, data))
        self._held += len(data)
        self._waiting.append((name, len(data), self._executor.submit(self._work)))

    def flush(self) -> None:
        """Wait until all is durable. Raises the error of an earlier write."""
        while self._waiting:
            self._await_first()
        if self._failure is not None:
            raise self._failure

    def holds(self, name: str) -> bool:
        """Whether bytes of that file may not be durable yet."""
        return any(name == waiting for waiting, _, _ in self._waiting)

    def close(self) -> None:
        """End the thread. What it has not begun to write is not written."""
        self._executor.shutdown(cancel_futures=True)

    def _await_first(self) -> None:
        _, size, future = self._waiting.popleft()
        self._held -= size
        future.result()

    def _work(self) -> None:
        """Write the first run that waits, and those after it that are of the same file."""
        if self._failure is not None:
            raise self._failure
        runs: list[memoryview] = []
        with self._lock:
            if not self._queue:
                return  # an earlier call wrote this run
            name, start, _ = self._queue[0]
            while self._queue and self._queue[0][0] == name:
                runs.append(self._queue.popleft()[2])
        try:
            self._write(name, start, runs)
        except BaseException as error:
            self._failure = error
            raise
