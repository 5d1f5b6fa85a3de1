"""LentSocket: the socket of a connection, while another thread than the event loop's may send on it.

The loop lends it when nothing is unsent and the stream of the connection waits. It takes the socket back before it
writes, closes, or passes on what the client sent. So two threads never send at the same time, and a closed socket,
whose descriptor may be another file's, is not lent.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    import socket


class LentSocket:
    """Any thread calls ``send``, and the thread of the event loop the other methods."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """``transport``: of a connection without TLS, whose bytes are those on the socket."""
        self._transport = transport
        self._loop = loop
        self._lock = threading.Lock()
        """Guards the two fields below."""
        self._descriptor = -1
        """-1 while it is not lent."""
        self._rest = b""
        """What the client did not take of the last bytes."""

    @property
    def is_lent(self) -> bool:
        return self._descriptor >= 0

    def lend(self) -> None:
        """Let ``send`` send from now on, unless something is unsent."""
        transport = self._transport
        channel: socket.socket | None = transport.get_extra_info("socket")
        if channel is not None and not transport.is_closing() and not transport.get_write_buffer_size():
            with self._lock:
                self._descriptor = channel.fileno()

    def send(self, data: bytes) -> bool:
        """Send bytes if the socket is lent, without waiting for the client. Returns whether it did. The event loop
        sends what the client does not take at once, and the loan ends."""
        with self._lock:
            if self._descriptor < 0:
                return False
            sent = 0
            with suppress(OSError):  # the client takes nothing now, or has left, which the event loop notices
                sent = os.write(self._descriptor, data)
            if sent < len(data):
                self._descriptor = -1
                if not sent:
                    return False
                self._rest = data[sent:]
                with suppress(RuntimeError):  # the loop ends just now
                    self._loop.call_soon_threadsafe(self.take_back)
            return True

    def take_back(self) -> None:
        """End the loan. What the client did not take comes before everything that is written after this."""
        with self._lock:
            rest, self._descriptor, self._rest = self._rest, -1, b""
        if rest:
            self._transport.write(rest)
