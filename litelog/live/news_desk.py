"""NewsDesk: wakes the readers of one buffer that wait in an event loop.

A change wakes the loop once for all of them, and they have one timer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from litelog.system.change_signal import ChangeSignal

KEEP_ALIVE_SECONDS = 15.0
"""At most how many seconds pass without news before something is sent that keeps the connection alive."""


class WaitingReader(Protocol):
    """A reader that may wait."""

    def wake(self) -> None:
        """There is news."""

    def pass_time(self) -> None:
        """A sign of life is due."""


class NewsDesk:
    """Wakes the readers of one buffer. One event loop at a time calls the methods."""

    def __init__(self, changes: ChangeSignal) -> None:
        self._changes = changes
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers: set[WaitingReader] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_told = False

    def join(self, reader: WaitingReader) -> None:
        """Wake a reader after each change of the buffer."""
        if not self._readers:
            self._loop = asyncio.get_running_loop()
            self._is_told = False
            self._changes.listen(self._tell)
            self._timer = self._loop.call_later(KEEP_ALIVE_SECONDS, self._tick)
        self._readers.add(reader)

    def leave(self, reader: WaitingReader) -> None:
        """Stop waking it."""
        self._readers.discard(reader)
        if not self._readers and self._timer is not None:
            self._changes.forget(self._tell)
            self._timer.cancel()

    def _tell(self) -> None:
        """Called by the buffer's thread."""
        loop = self._loop
        if not self._is_told and loop is not None and not loop.is_closed():
            self._is_told = True
            with suppress(RuntimeError):  # the loop ends just now
                loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        self._is_told = False  # what changes from now on wakes them again
        for reader in list(self._readers):
            reader.wake()

    def _tick(self) -> None:
        for reader in list(self._readers):
            reader.pass_time()
        if self._readers and self._loop is not None:
            self._timer = self._loop.call_later(KEEP_ALIVE_SECONDS, self._tick)
