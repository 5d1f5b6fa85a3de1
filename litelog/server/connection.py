"""Limits on clients, in the place where uvicorn has none: how many there are, and how long each may take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

MAX_CLIENTS = 64
"""Connections at a time: what more come are closed at once, so that no client takes the daemon's descriptors."""
REQUEST_SECONDS = 10.0
"""How long a request's line and headers may take from when the connection is ready for them; so idle ones end, too."""
RESPONSE_SECONDS = 660.0
"""How long the answer may take, with the longest wait of /sync, until the client has read it."""


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 on a connection whose client may be slow, or hostile."""

    request_seconds = REQUEST_SECONDS
    _timer: asyncio.TimerHandle | None = None
    _answered: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= MAX_CLIENTS:
            self.transport = transport
            transport.abort()
            return
        super().connection_made(transport)
        self._expect_within(self.request_seconds)

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
        self._timer = self.loop.call_later(seconds, self.transport.abort)


def patient_for(seconds: float) -> type[LimitedProtocol]:
    """The protocol with another time in which a request must arrive."""
    return type("PatientProtocol", (LimitedProtocol,), {"request_seconds": seconds})
