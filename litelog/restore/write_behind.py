"""WriteBehind: writes the bytes of a growing copy in its own thread, in order, while the next bytes are received.

The newest run stays with the caller until the next one comes. So a copy that has caught up writes and syncs in the
caller's thread, without a hand-over, and a copy that lags receives while the thread writes. One sync covers many runs
while the copy catches up: a sync waits for the disk, and nothing counts as durable before ``flush``.
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
"""The most bytes that wait to be written; a single larger run waits alone."""

SYNC_BYTES = 64 << 20
"""The most bytes of a file before a sync follows."""


class WriteBehind:
    """Runs of bytes that wait to be written and synced. One thread calls the methods.

    After a failure nothing more is written: all further calls raise the same error.
    """

    def __init__(self, write: Callable[[str, int, Sequence[memoryview]], None], sync: Callable[[str], None]) -> None:
        """Make it, with an idle thread.

        Args:
            write: Writes runs that follow each other into the file of that name, from an offset on.
            sync: Makes what was written to the file of that name durable.
        """
        self._write = write
        self._sync = sync
        self._executor = ThreadPoolExecutor(1, "write-behind")
        self._lock = threading.Lock()
        self._newest: tuple[str, int, memoryview] | None = None
        """The run that came last, which the caller's thread has."""
        self._queue: deque[tuple[str, int, memoryview]] = deque()
        """The runs that the thread has not taken yet."""
        self._waiting: deque[tuple[str, int, Future[None]]] = deque()
        """The file and the size of each run that the thread may not have written yet."""
        self._held = 0
        self._dirty = ""
        """The file that was written since its last sync. The thread has it while runs wait, and else the caller."""
        self._dirty_bytes = 0
        self._failure: BaseException | None = None

    def put(self, name: str, start: int, data: memoryview) -> None:
        """Take the bytes of a file from ``start`` on. Waits for room. Raises the error of an earlier write."""
        if self._failure is not None:
            raise self._failure
        before, self._newest = self._newest, (name, start, data)
        if before is None:
            return
        size = len(before[2])
        while self._waiting and (self._waiting[0][2].done() or self._held + size > HELD_BYTES):
            self._await_first()
        with self._lock:
            self._queue.append(before)
        self._held += size
        self._waiting.append((before[0], size, self._executor.submit(self._work)))

    def flush(self) -> None:
        """Wait until all is durable. Raises the error of an earlier write."""
        while self._waiting:
            self._await_first()
        if self._failure is not None:
            raise self._failure
        newest, self._newest = self._newest, None
        try:
            if newest is not None:
                self._write_runs(newest[0], newest[1], [newest[2]])
            self._sync_dirty()
        except BaseException as error:
            self._failure = error
            raise

    def holds(self, name: str) -> bool:
        """Whether bytes of that file may not be durable yet."""
        if self._newest is not None and self._newest[0] == name:
            return True
        return self._dirty == name or any(name == waiting for waiting, _, _ in self._waiting)

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
            self._write_runs(name, start, runs)
        except BaseException as error:
            self._failure = error
            raise

    def _write_runs(self, name: str, start: int, runs: Sequence[memoryview]) -> None:
        if self._dirty != name or self._dirty_bytes >= SYNC_BYTES:
            self._sync_dirty()
        self._dirty = name
        self._write(name, start, runs)
        self._dirty_bytes += sum(len(run) for run in runs)

    def _sync_dirty(self) -> None:
        if self._dirty:
            self._sync(self._dirty)
        self._dirty, self._dirty_bytes = "", 0
