"""The answer with a stream: at the pace that the limits permit, and compressed if the client asks for that."""

from __future__ import annotations

import asyncio
import logging
import re
import zlib
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from litelog.errors import LitelogError
from litelog.events import fields
from litelog.live.encoding import piece_size
from litelog.live.news_desk import KEEP_ALIVE_SECONDS
from litelog.server.error_answer import NO_STORE
from litelog.server.http_server import begin_stream, current_connection
from litelog.server.log_errors import answer_error, error_fields

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from litelog.live.encoding import Piece, StreamFraming
    from litelog.live.reader_limits import LimitCounts, ReaderLimits
    from litelog.live.served_log import LiveReader

_logger = logging.getLogger(__name__)

GZIP_LEVEL = 1
GZIP_WINDOW = 16 + zlib.MAX_WBITS
THREAD_BYTES = 32 << 10
"""A larger piece is compressed in a thread."""

_PROXY_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-real-ip")
"""A request with one of them came through a proxy."""

_NONE = re.compile(r"\s*q=0(\.0*)?\s*")


class StreamPace:
    """Keeps one stream to the limits. Its methods run in one event loop."""

    def __init__(self, limits: ReaderLimits, counts: LimitCounts) -> None:
        self._limits = limits
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._sent = 0

    @property
    def is_unlimited(self) -> bool:
        """Whether nothing that is sent has to be counted."""
        return self._limits.size is None and self._limits.rate is None

    @property
    def has_ended(self) -> bool:
        """Whether the stream has to end: it has reached the limit of its size."""
        return self._limits.size is not None and self._sent >= self._limits.size

    def count(self, sent: int) -> bool:
        """Count bytes that were sent. Returns whether to wait before more is sent."""
        self._sent += sent
        if self.has_ended:
            self._counts.add(ended=1)
            return False
        if self._limits.rate is None:
            return False
        now = self._loop.time()
        self._began = max(self._began, now - 1.0) + sent / self._limits.rate
        self._counts.add(slowed_seconds=max(0.0, self._began - now))
        return self._began > now

    async def wait(self) -> AsyncIterator[None]:
        """Wait until more may be sent. Yields whenever a sign of life is due meanwhile.

        A stream that has been idle may catch up for a second, not for all of that time.
        """
        due = self._began
        while (left := due - self._loop.time()) > 0:
            await asyncio.sleep(min(left, KEEP_ALIVE_SECONDS))
            if left > KEEP_ALIVE_SECONDS:
                yield


class Compressor:
    """Compresses a stream as gzip, so that each piece can be read as soon as it is there."""

    def __init__(self) -> None:
        self._gzip = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW)

    async def add(self, piece: bytes) -> bytes:
        """Return the compressed piece."""
        if len(piece) < THREAD_BYTES:
            return self._compress(piece)
        return await asyncio.to_thread(self._compress, piece)

    def end(self) -> bytes:
        """Return what comes last."""
        return self._gzip.flush(zlib.Z_FINISH)

    def _compress(self, piece: bytes) -> bytes:
        return self._gzip.compress(piece) + self._gzip.flush(zlib.Z_SYNC_FLUSH)


def make_compressor(request: Request) -> Compressor | None:
    """Make what compresses the answer; None if the Accept-Encoding header does not ask for gzip."""
    for each in request.headers.get("accept-encoding", "").split(","):
        name, *parameters = each.split(";")
        if name.strip().lower() in ("gzip", "x-gzip"):
            return None if any(map(_NONE.fullmatch, parameters)) else Compressor()
    return None


def find_unsent(request: Request) -> Callable[[], int] | None:
    """Return what tells how many bytes of the answer its client's network has not taken yet; None if that is unknown.

    A client on this machine is behind no network. What it has not read waits for its processor or its disk, and
    compressing would take the same processor. A proxy passes the bytes on through a network.
    """
    connection = current_connection()
    if connection is None:
        return None
    if connection.is_local and not any(name in request.headers for name in _PROXY_HEADERS):
        return _nothing
    return connection.unsent_bytes


def _nothing() -> int:
    return 0


async def answer_stream(
    pieces: AsyncGenerator[Piece, None],
    framing: StreamFraming,
    leave: Callable[[], None],
    pace: StreamPace,
    compressor: Compressor | None,
    reader: LiveReader | None = None,
) -> Response:
    """Answer with a stream, or with the error that comes before its first piece. ``leave`` is called at its end.
    ``reader``: gets the connection, if that takes the pieces as they are."""
    try:
        first = await anext(pieces, None)
    except LitelogError as error:
        await pieces.aclose()
        leave()
        return answer_error(error)
    except BaseException:
        leave()
        raise
    body: AsyncGenerator[Piece, None] = _frame(first, pieces, framing, pace)
    headers = NO_STORE
    if compressor is not None:
        body, headers = _compress(body, compressor), {**NO_STORE, "content-encoding": "gzip", "vary": "accept-encoding"}

    async def end() -> None:
        leave()
        await body.aclose()
        await pieces.aclose()

    stream = PieceStream(body, end, {**headers, "content-type": framing.media_type})
    if reader is not None and compressor is None and pace.is_unlimited:
        reader.connection = stream.connection
    return stream


class PieceStream(StreamingResponse):
    """An answer whose body is pieces, each of which is sent at once. It awaits ``end`` at its end, also if the client
    is gone before its body begins."""

    def __init__(
        self,
        body: AsyncGenerator[Piece, None],
        end: Callable[[], Awaitable[None]],
        headers: Mapping[str, str],
        status: int = 200,
    ) -> None:
        super().__init__((), status, headers)
        self._pieces = body
        self._end = end
        self.connection = begin_stream()
        """The connection of the answer; None outside of a server."""

    async def stream_response(self, send: Send) -> None:
        """Send the answer. A piece of the body takes the short way to the connection."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for piece in self._pieces:
                buffers = (piece,) if isinstance(piece, bytes) else piece
                if self.connection is not None:
                    await self.connection.send_piece(buffers)
                else:
                    await send({"type": "http.response.body", "body": b"".join(buffers), "more_body": True})
        except LitelogError as error:  # the body has no place for it
            if self.connection is None:
                raise
            _logger.warning("an answer broke off: %s", error, extra=fields("answer-broken-off"))
            await self.connection.break_off()
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            self._pieces = _no_pieces()
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._end()


async def _no_pieces() -> AsyncGenerator[Piece, None]:
    return
    yield


async def _frame(
    first: Piece | None,
    pieces: AsyncGenerator[Piece, None],
    framing: StreamFraming,
    pace: StreamPace,
) -> AsyncGenerator[Piece, None]:
    yield framing.begin()
    if first:
        yield first
    try:
        if pace.count(piece_size(first or b"")):
            async for _ in pace.wait():
                yield framing.keep_alive()
        while not pace.has_ended and (piece := await anext(pieces, None)) is not None:
            if piece:
                yield piece
                if pace.count(piece_size(piece)):
                    async for _ in pace.wait():
                        yield framing.keep_alive()
    except LitelogError as error:
        last = framing.fail(error_fields(error))
        if last is None:
            raise
        yield last
        return
    yield framing.end()


async def _compress(body: AsyncGenerator[Piece, None], compressor: Compressor) -> AsyncGenerator[Piece, None]:
    try:
        async for piece in body:
            if piece:
                yield await compressor.add(piece if isinstance(piece, bytes) else b"".join(piece))
        yield compressor.end()
    finally:
        await body.aclose()
