"""NewsDesk: brings the changes of one buffer to its readers, which wait in an event loop.

The thread that publishes a run sends it to those readers that wait for just that run. A change wakes the loop once for
all others, and they have one timer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from litelog.live.live_buffer import LiveRun
    from litelog.system.change_signal import ChangeSignal

KEEP_ALIVE_SECONDS = 15.0
"""At most how many seconds pass without news before something is sent that keeps the connection alive."""


class ReadBuffer(Protocol):
    """What its readers need of a buffer."""

    changes: ChangeSignal

    def newest(self) -> LiveRun | None:
        """The newest run."""


class WaitingReader(Protocol):
    """A reader that may wait."""

    def take(self, run: LiveRun | None) -> bool:
        """Send the newest run, if the reader waits for just that. Returns False if the event loop has to wake it. For
        the buffer's threads."""

    def hear(self) -> None:
        """Wake it, if there was news that it did not take."""

    def pass_time(self) -> None:
        """A sign of life is due."""


class NewsDesk:
    """Wakes the readers of one buffer. One event loop at a time calls the methods."""

    def __init__(self, buffer: ReadBuffer) -> None:
        self._buffer = buffer
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers: frozenset[WaitingReader] = frozenset()
        """Replaced at each change: the buffer's threads go through it as well."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_told = False

    def join(self, reader: WaitingReader) -> None:
        """Wake a reader after each change of the buffer."""
        is_first = not self._readers
        self._readers |= {reader}
        if is_first:
            self._loop = asyncio.get_running_loop()
            self._is_told = False
            self._buffer.changes.listen(self._tell)
            self._timer = self._loop.call_later(KEEP_ALIVE_SECONDS, self._tick)

    def leave(self, reader: WaitingReader) -> None:
        """Stop waking it."""
        self._readers -= {reader}
        if not self._readers and self._timer is not None:
            self._buffer.changes.forget(self._tell)
            self._timer.cancel()

    def _tell(self) -> None:
        """Called by the buffer's threads."""
        run, is_taken = self._buffer.newest(), True
        for reader in self._readers:
            is_taken = reader.take(run) and is_taken
        loop = self._loop
        if not (is_taken or self._is_told) and loop is not None and not loop.is_closed():
            self._is_told = True
            with suppress(RuntimeError):  # the loop ends just now
                loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        self._is_told = False  # what changes from now on wakes them again
        for reader in self._readers:
            reader.hear()

    def _tick(self) -> None:
        for reader in self._readers:
            reader.pass_time()
        if self._readers and self._loop is not None:
            self._timer = self._loop.call_later(KEEP_ALIVE_SECONDS, self._tick)
