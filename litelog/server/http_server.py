"""uvicorn's server, for a process that is idle: it wakes once a second, and not ten times, and ends when it is told."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import uvicorn

TICK_SECONDS = 1.0
"""How often the Date header is made anew."""


class QuietServer(uvicorn.Server):
    """``run`` in one thread, ``end`` from another."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()

    async def main_loop(self) -> None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
        while not self.should_exit:
            await self.on_tick(0)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), TICK_SECONDS)
        with self._lock:
            self._loop = None

    def end(self) -> None:
        """Take no more requests, and end. From any thread."""
        with self._lock:
            self.should_exit = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._ended.set)
