"""Handshake: a connection before its TLS handshake has ended, which counts among the connections of the server.

asyncio's own server reports a connection once its handshake has ended. Before that, no limit could count it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import ssl


class HandshakeLimits(Protocol):
    """The limits of a server that a handshake needs."""

    request_seconds: float
    """How long it may take."""

    def admit(self, connection: Handshake) -> bool:
        """Count a connection, if there is room. Returns whether there is."""

    def dismiss(self, connection: Handshake) -> None:
        """Stop counting it."""


class Handshake(asyncio.Protocol):
    """Accepts TLS from a client within the time of a request, and passes the connection on to ``following``."""

    is_idle = True
    is_stalled = False
    is_stream = False

    def __init__(self, limits: HandshakeLimits, tls: ssl.SSLContext, following: asyncio.Protocol) -> None:
        self._limits = limits
        self._tls = tls
        self._following = following
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        """The bytes that the client sent with the end of its handshake."""
        self.waits_since = 0.0
        """When it began, in the event loop's seconds."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        loop = asyncio.get_running_loop()
        self.waits_since = loop.time()
        if not self._limits.admit(self):
            transport.abort()
            return
        transport.pause_reading()  # the handshake reads what arrives now
        self._task = loop.create_task(self._accept(transport))

    def data_received(self, data: bytes) -> None:
        self._early.append(data)

    def abort(self) -> None:
        """Close the connection at once."""
        assert self._transport is not None
        self._transport.abort()

    async def _accept(self, transport: asyncio.Transport) -> None:
        loop, secured = asyncio.get_running_loop(), None
        try:
            with suppress(OSError):  # the client left, speaks no TLS, or took too long
                secured = await loop.start_tls(
                    transport,
                    self,
                    self._tls,
                    server_side=True,
                    ssl_handshake_timeout=self._limits.request_seconds,
                )
        finally:
            self._limits.dismiss(self)
            if secured is None:
                transport.abort()
        if secured is None or secured.is_closing():
            return
        secured.set_protocol(self._following)
        self._following.connection_made(secured)
        for data in self._early:
            self._following.data_received(data)
