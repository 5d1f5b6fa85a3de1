"""uvicorn's server, adapted to a mostly idle process, with limits on clients.

It wakes once a second instead of ten times, and stops on request. uvicorn itself limits neither the number of clients
nor how long one may take.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

TICK_SECONDS = 1.0
"""Seconds between updates of the Date header."""


class QuietServer(uvicorn.Server):
    """One thread calls ``run``; another one calls ``end``."""

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
        """Accept no more requests, and end. For use from any thread."""
        with self._lock:
            self.should_exit = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._ended.set)


MAX_CLIENTS = 64
"""Concurrent connections, so that clients cannot use up the daemon's descriptors. A further one replaces the connection
that has waited longest for its client: first those without a whole request, then those whose client does not read the
answer. If all of them are being answered, the new connection is closed."""
REQUEST_SECONDS = 10.0
"""Seconds for a request's line and headers, from when the connection is ready for them; so idle ones end, too."""
RESPONSE_SECONDS = 660.0
"""Seconds for the answer, including the longest wait of /sync, until the client has read it."""


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 on a connection whose client may be slow or hostile."""

    request_seconds = REQUEST_SECONDS
    _timer: asyncio.TimerHandle | None = None
    _answered: Any = None
    waits_since = 0.0
    """When it began to wait for its client, in the event loop's seconds."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= MAX_CLIENTS and not self._make_room():
            self.transport = transport
            transport.abort()
            return
        super().connection_made(transport)
        self._expect_within(self.request_seconds)

    @property
    def is_idle(self) -> bool:
        """Whether no request is waiting for its answer."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_stalled(self) -> bool:
        """Whether the client does not read its answer."""
        return self.flow is not None and self.flow.write_paused

    def _make_room(self) -> bool:
        """Close the connection that has waited longest for its client. Returns whether there was one."""
        others = [each for each in self.connections if isinstance(each, LimitedProtocol)]
        waiting = [each for each in others if each.is_idle] or [each for each in others if each.is_stalled]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda each: each.waits_since)
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and self.cycle is not self._answered and not self.cycle.response_complete:
            self._answered = self.cycle
            self._expect_within(RESPONSE_SECONDS)

    def on_response_complete(self) -> None:
        self._expect_within(self.request_seconds)
        super().on_response_complete()

    def _expect_within(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.waits_since = self.loop.time()
        self._timer = self.loop.call_later(seconds, self.transport.abort)


def patient_for(seconds: float) -> type[LimitedProtocol]:
    """The protocol with another time in which a request must arrive."""
    return type("PatientProtocol", (LimitedProtocol,), {"request_seconds": seconds})
