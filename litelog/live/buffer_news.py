"""BufferNews: lets a reader in an event loop wait for a buffer, and notices when the buffer begins again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from litelog.errors import DivergedError, NotYetAvailableError

if TYPE_CHECKING:
    from types import TracebackType

    from litelog.live.live_buffer import BufferView
    from litelog.live.served_log import LiveReader, ServedLog

PLACE_SECONDS = 10.0
"""How many seconds a request waits for the buffer of its log to begin."""

KEEP_ALIVE_SECONDS = 15.0
"""How many seconds pass without news before something is sent that keeps the connection alive."""


class ForkedError(DivergedError):
    """The log's history forked while it was read: what was sent may not exist any more."""


class BufferNews:
    """A context manager. Its methods run in one event loop, and the buffer's thread wakes them."""

    def __init__(self, served: ServedLog, reader: LiveReader) -> None:
        self._reader = reader
        self._name = served.name
        self._buffer = served.buffer
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._history = -1

    def __enter__(self) -> Self:
        self._buffer.changes.listen(self._wake)
        self._reader.wake = self._news.set
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._buffer.changes.forget(self._wake)

    def _wake(self) -> None:
        """Called by the buffer's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    async def require_begun(self) -> None:
        """Wait until the buffer has begun. Raises NotYetAvailableError if the daemon has not begun a generation."""
        deadline = self._loop.time() + PLACE_SECONDS
        while self._buffer.view.generation is None:
            left = deadline - self._loop.time()
            if left <= 0:
                reason = self._buffer.view.error or "its daemon has not begun a generation yet"
                raise NotYetAvailableError(f"{self._name}: {reason}")
            self.clear()
            await self.wait(min(left, 1.0))
        self._history = self._buffer.view.history

    def require_same(self, view: BufferView) -> None:
        """Raise ForkedError if what was sent may be of another history than ``view``, and the error that the reader's
        stream has to end with."""
        if self._reader.ended_by is not None:
            raise self._reader.ended_by
        if view.history != self._history:
            reason = f"its history forked; generation {view.generation} continues at sequence {view.first}"
            raise ForkedError(self._name, reason)

    @property
    def is_set(self) -> bool:
        """Whether there was news since ``clear``."""
        return self._news.is_set()

    def clear(self) -> None:
        """Forget the news. Call it before the buffer is looked at."""
        self._news.clear()

    async def wait(self, seconds: float) -> bool:
        """Wait for news; return whether there was any."""
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            return False
        return True
