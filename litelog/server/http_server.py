"""uvicorn's server, adapted to a mostly idle process, with limits on clients.

It does not wake ten times a second, and stops on request. uvicorn has no limit on the time that a client may take, and
its ``limit_concurrency`` answers 503 to everyone as long as idle connections are open. So this module puts its own
limits between the transport and uvicorn's protocol, behind asyncio's interface for both.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import termios
import threading
from array import array
from contextlib import suppress
from contextvars import ContextVar
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from litelog.server.handshake import Handshake
from litelog.server.lent_socket import LentSocket

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from typing_extensions import Buffer

    from litelog.live.encoding import Piece


END_SECONDS = 0.3
"""How long the answers of a server that ends may take, before they are given up."""


class QuietServer(uvicorn.Server):
    """One thread calls ``run``; another one calls ``end``."""

    def __init__(self, config: uvicorn.Config, on_end: Callable[[], None] = lambda: None) -> None:
        """``on_end``: ends the streams. Called in the event loop's thread when the server ends."""
        super().__init__(config)
        self._on_end = on_end
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's for given sockets."""
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(self._make_protocol, sock=each, backlog=self.config.backlog)
            for each in sockets or ()
        ]
        self.started = True

    def _make_protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state={}
        )

    async def main_loop(self) -> None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
        if not self.should_exit:
            await self._ended.wait()
        with self._lock:
            self._loop = None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which logs a traceback for each request that it gives up."""
        for each in (*self.servers, *(sockets or ())):
            each.close()
        state, loop = self.server_state, asyncio.get_running_loop()
        for connection in list(state.connections):
            connection.shutdown()
        self._on_end()
        deadline = loop.time() + END_SECONDS
        while (state.connections or state.tasks) and loop.time() < deadline:
            await asyncio.sleep(END_SECONDS / 10)
        for task in list(state.tasks):
            task.cancel()

    def end(self) -> None:
        """Accept no more requests, and end. Any thread may call this."""
        with self._lock:
            self.should_exit = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._ended.set)


MAX_CLIENTS = 64
"""The most concurrent connections, so that clients cannot use up the daemon's descriptors. A further connection
replaces the one that has waited longest for its client: first a connection without a whole request, then a connection
whose client does not read the answer. If the server is busy with all of them, the new connection is closed."""
REQUEST_SECONDS = 10.0
"""Seconds for a request's line and headers to arrive, from when the connection is ready for them. Idle connections end
after the same time."""
RESPONSE_SECONDS = 660.0
"""Seconds until the client has read the whole answer. They include the longest wait of /sync."""


_answering: ContextVar[LimitedConnection] = ContextVar("answering")
"""The connection whose bytes are being handled. The task of a request starts meanwhile, and inherits the variable."""


STALLED_SECONDS = 60.0
"""Seconds for which the client of a stream may read nothing."""

JOINED_BYTES = 16 << 10
"""A shorter piece of a stream is joined with its framing, so that one call sends it. A longer one is not copied."""

WRITTEN_BYTES = 512 << 10
"""How many bytes of a piece are given to a connection at a time: what the client does not take at once is copied."""


def current_connection() -> LimitedConnection | None:
    """The connection of the current request; None outside of a server."""
    return _answering.get(None)


def begin_stream() -> LimitedConnection | None:
    """Let the answer to the current request last as long as its client reads it. The connection no longer counts among
    MAX_CLIENTS: the caller that begins streams limits their number. Returns the connection; None outside of a server.
    """
    connection = current_connection()
    if connection is not None:
        connection.begin_stream()
    return connection


class ConnectionLimits:
    """The connections of a server. None may keep others out. For the event loop's thread."""

    def __init__(self, request_seconds: float = REQUEST_SECONDS, readers: int = 0) -> None:
        """``request_seconds``: the time for a request's line and headers to arrive. ``readers``: how many readers of
        logs may come at once, in addition to MAX_CLIENTS."""
        self.request_seconds = request_seconds
        self._most = MAX_CLIENTS + readers
        self.connections: set[LimitedConnection | Handshake] = set()

    def install(self, config: uvicorn.Config, tls: ssl.SSLContext | None = None) -> None:
        """Apply these limits to each connection of a server. Its app must come from ``observe``. ``tls``: the server's
        side of TLS; None: plain HTTP."""
        config.load()
        inner: Callable[..., asyncio.Protocol] = config.http_protocol_class

        def make_connection(**arguments: Any) -> LimitedConnection | Handshake:
            connection = LimitedConnection(self, inner(**arguments))
            return connection if tls is None else Handshake(self, tls, connection)

        config.http_protocol_class = make_connection  # type: ignore[assignment]

    def observe(self, app: ASGIApp) -> ASGIApp:
        """Wrap ``app``, so that each connection knows when a request of its client waits for an answer. Answers get the
        date here: uvicorn would wake each second to set it."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            connection = _answering.get()
            connection.begin_answer()

            async def send_dated(message: Message) -> None:
                if message["type"] == "http.response.start":
                    date = (b"date", formatdate(usegmt=True).encode())
                    message = {**message, "headers": [date, *message.get("headers", ())]}
                await send(message)

            try:
                await app(scope, receive, send_dated)
            except asyncio.CancelledError:  # only the end of the server gives a request up
                connection.give_up()
            finally:
                connection.end_answer()

        return answer

    @property
    def is_full(self) -> bool:
        """Whether there are as many connections as may be. Streams do not count."""
        return sum(not each.is_stream for each in self.connections) >= self._most

    def admit(self, connection: LimitedConnection | Handshake) -> bool:
        """Count a new connection, if there is room. Returns whether there is."""
        if self.is_full and not self.make_room():
            return False
        self.connections.add(connection)
        return True

    def dismiss(self, connection: LimitedConnection | Handshake) -> None:
        """Stop counting a connection. Idempotent."""
        self.connections.discard(connection)

    def make_room(self) -> bool:
        """Close the connection that has waited longest for its client. Returns whether there was one."""
        counted = [each for each in self.connections if not each.is_stream]
        waiting = [each for each in counted if each.is_idle] or [each for each in counted if each.is_stalled]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda each: each.waits_since)
        self.dismiss(oldest)
        oldest.abort()
        return True


class LimitedConnection(asyncio.Protocol):
    """A connection whose client may be slow or hostile. Passes everything to ``inner``, which speaks HTTP."""

    def __init__(self, limits: ConnectionLimits, inner: asyncio.Protocol) -> None:
        self._limits = limits
        self._inner = inner
        self._transport: asyncio.BaseTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.is_idle = True
        """Whether no request is waiting for its answer."""
        self.is_stalled = False
        """Whether the client does not read its answer."""
        self.is_stream = False
        """Whether its answer lasts as long as the client reads it."""
        self.waits_since = 0.0
        """When it began to wait for its client, in the event loop's seconds."""
        self._lost = asyncio.Event()
        """Set once the connection has ended."""
        self._is_chunked = False
        """Whether the pieces of the answer are sent as chunks, as was seen with its first one."""
        self._lent: LentSocket | None = None
        """On which other threads send pieces of a stream; None without a stream, and with TLS."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if not self._limits.admit(self):
            self.abort()
            return
        self._inner.connection_made(transport)
        self._expect_within(self._limits.request_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        self.take_back()  # the transport closes the socket after this call
        if self._timer is None:  # there was no room for this connection
            return
        self._timer.cancel()
        self._limits.dismiss(self)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        _answering.set(self)
        self.take_back()  # there may be an answer to it
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self.is_stalled = True
        if self.is_stream:
            self._expect_within(STALLED_SECONDS)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self.is_stalled = False
        if self.is_stream and self._timer is not None:
            self._timer.cancel()
        self._inner.resume_writing()

    def begin_answer(self) -> None:
        """A request has arrived: give the client RESPONSE_SECONDS to read the answer."""
        self.is_idle = self._is_chunked = False
        self._expect_within(RESPONSE_SECONDS)

    def begin_stream(self) -> None:
        """The answer is a stream: it ends when the client leaves, or reads nothing for STALLED_SECONDS."""
        self.is_stream = True
        if self._timer is not None:
            self._timer.cancel()
        transport = self._transport
        assert isinstance(transport, asyncio.Transport)
        if transport.get_extra_info("ssl_object") is None:
            self._lent = LentSocket(transport, asyncio.get_running_loop())

    async def send_piece(self, buffers: Sequence[Buffer]) -> None:
        """Send a piece of a stream's body, after its head, as one chunk. Waits for a client that is slow.

        uvicorn's own way copies each piece, and takes three times as long for a small one.
        """
        inner = self._inner
        assert isinstance(inner, H11Protocol)
        if len(buffers) == 1 and isinstance(piece := buffers[0], bytes) and self._write_short(inner, piece):
            return
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        size = sum(map(len, views))
        if not size or inner.transport.is_closing():
            return
        framed = self._frame(inner, size)
        for buffer in _fill(framed, views) if size >= JOINED_BYTES else [b"".join(_fill(framed, views))]:
            if inner.flow.write_paused:
                await inner.flow.drain()
            if inner.transport.is_closing():
                return
            inner.transport.write(buffer)

    def lend(self) -> None:
        """As ``ReaderConnection`` has it."""
        if self._lent is not None and self._is_chunked:
            self._lent.lend()

    def send(self, piece: Piece) -> bool:
        """As ``ReaderConnection`` has it: the piece is one chunk."""
        if self._lent is None:
            return False
        body = piece if isinstance(piece, bytes) else b"".join(piece)
        return 0 < len(body) < JOINED_BYTES and self._lent.send(_chunk(body))

    def take_back(self) -> None:
        """As ``ReaderConnection`` has it."""
        if self._lent is not None:
            self._lent.take_back()

    def send_sign(self, piece: bytes) -> bool:
        """As ``ReaderConnection`` has it."""
        inner = self._inner
        assert isinstance(inner, H11Protocol)
        if self.send(piece):
            return True
        self.take_back()
        return self._write_short(inner, piece)

    def _write_short(self, inner: H11Protocol, piece: bytes) -> bool:
        """Send a short piece of a stream's body, if chunks were sent before, and the client is not slow. Returns
        whether it did."""
        size = len(piece)
        if (
            not (self._is_chunked and 0 < size < JOINED_BYTES)
            or inner.flow.write_paused
            or inner.transport.is_closing()
        ):
            return False
        inner.transport.write(_chunk(piece))
        return True

    def _frame(self, inner: H11Protocol, size: int) -> Sequence[object]:
        """The framing of a piece, with a ``_Sized`` in its place. h11 decides on the first one: a chunk changes nothing
        of its state, so it is not asked for the others."""
        if self._is_chunked:
            return b"%x\r\n" % size, _Sized(size), b"\r\n"
        framed = inner.conn.send_with_data_passthrough(h11.Data(data=_Sized(size)))  # type: ignore[arg-type]
        assert framed is not None
        self._is_chunked = [each for each in framed if not isinstance(each, _Sized)] == [b"%x\r\n" % size, b"\r\n"]
        return framed

    @property
    def is_local(self) -> bool:
        """Whether the other end of the connection has an address of this machine."""
        transport = self._transport
        assert transport is not None
        channel = transport.get_extra_info("socket")
        if channel is not None and channel.family == socket.AF_UNIX:
            return True
        here, there = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        return bool(here and there and here[0] == there[0])

    def unsent_bytes(self) -> int:
        """How many bytes were written that the client's machine has not taken yet: here, and in the system's buffer.
        Any thread may call it."""
        transport = self._transport
        assert isinstance(transport, asyncio.Transport)
        held = transport.get_write_buffer_size()
        channel = transport.get_extra_info("socket")
        descriptor = -1 if channel is None else channel.fileno()  # once: the event loop may close it meanwhile
        if held or descriptor < 0:
            return held
        queued = array("i", [0])
        with suppress(OSError):  # a system without this request
            fcntl.ioctl(descriptor, termios.TIOCOUTQ, queued)
        return queued[0]

    async def break_off(self) -> None:
        """Close the connection in the middle of an answer, once what was sent has left, and wait for that. The client
        sees that the answer is not whole."""
        assert isinstance(self._transport, asyncio.Transport)
        self.take_back()
        self._transport.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._lost.wait(), STALLED_SECONDS)
        self.abort()

    def end_answer(self) -> None:
        """The answer was sent: wait for the next request."""
        self.is_idle, self.is_stream, self._lent = True, False, None
        self._expect_within(self._limits.request_seconds)

    def give_up(self) -> None:
        """Close the connection at once, in the middle of an answer that will not be continued."""
        inner = self._inner
        assert isinstance(inner, H11Protocol)
        if inner.cycle is not None:
            inner.cycle.disconnected = True  # otherwise, uvicorn answers with an error, and logs that
        self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        assert isinstance(self._transport, asyncio.Transport)
        self._transport.abort()

    def _expect_within(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self in self._limits.connections:
            loop = asyncio.get_running_loop()
            self.waits_since = loop.time()
            self._timer = loop.call_later(seconds, self.abort)


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


class _Sized:
    """Stands for a piece of a body, of which HTTP's framing needs only the size."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


def _fill(framed: Sequence[object], views: Sequence[memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the framing of a piece, and the piece in its place."""
    for each in framed:
        if not isinstance(each, _Sized):
            yield each  # type: ignore[misc]
            continue
        for view in views:
            for at in range(0, len(view), WRITTEN_BYTES):
                yield view[at : at + WRITTEN_BYTES]
