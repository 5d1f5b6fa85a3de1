"""The answer with a stream: at the pace that the limits permit, and compressed if the client asks for that."""

from __future__ import annotations

import asyncio
import re
import zlib
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from litelog.errors import LitelogError
from litelog.server.error_answer import NO_STORE
from litelog.server.http_server import begin_stream
from litelog.server.log_errors import answer_error, error_fields

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from litelog.live.encoding import StreamFraming
    from litelog.live.reader_limits import LimitCounts, ReaderLimits

GZIP_LEVEL = 1
GZIP_WINDOW = 16 + zlib.MAX_WBITS
THREAD_BYTES = 32 << 10
"""A larger piece is compressed in a thread."""

_NONE = re.compile(r"\s*q=0(\.0*)?\s*")


class StreamPace:
    """Keeps one stream to the limits. Its methods run in one event loop."""

    def __init__(self, limits: ReaderLimits, counts: LimitCounts) -> None:
        self._limits = limits
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._sent = 0

    async def keep(self, sent: int) -> bool:
        """Count bytes that were sent, and wait until more may be sent. Returns False if the stream has to end.

        A stream that has been idle may catch up for a second, not for all of that time.
        """
        self._sent += sent
        limits = self._limits
        if limits.size is not None and self._sent >= limits.size:
            self._counts.add(ended=1)
            return False
        if limits.rate is not None:
            now = self._loop.time()
            due = max(self._began, now - 1.0) + sent / limits.rate
            self._began = due
            if due > now:
                self._counts.add(slowed_seconds=due - now)
                await asyncio.sleep(due - now)
        return True


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


async def answer_stream(
    pieces: AsyncGenerator[bytes, None],
    framing: StreamFraming,
    leave: Callable[[], None],
    pace: StreamPace,
    compressor: Compressor | None,
) -> Response:
    """Answer with a stream, or with the error that comes before its first piece. ``leave`` is called at its end."""
    try:
        first = await anext(pieces, None)
    except LitelogError as error:
        await pieces.aclose()
        leave()
        return answer_error(error)
    except BaseException:
        leave()
        raise
    begin_stream()
    body = _frame(first, pieces, framing, pace)
    headers = NO_STORE
    if compressor is not None:
        body, headers = _compress(body, compressor), {**NO_STORE, "content-encoding": "gzip", "vary": "accept-encoding"}

    async def end() -> None:
        leave()
        await body.aclose()
        await pieces.aclose()

    return _Stream(body, end, framing.media_type, headers)


class _Stream(StreamingResponse):
    """An answer that awaits ``end`` at its end, also if the client is gone before its body begins."""

    def __init__(
        self,
        body: AsyncGenerator[bytes, None],
        end: Callable[[], Awaitable[None]],
        media_type: str,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(body, media_type=media_type, headers=headers)
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._end()


async def _frame(
    first: bytes | None,
    pieces: AsyncGenerator[bytes, None],
    framing: StreamFraming,
    pace: StreamPace,
) -> AsyncGenerator[bytes, None]:
    yield framing.begin()
    if first:
        yield first
    try:
        if await pace.keep(len(first or b"")):
            async for piece in pieces:
                if piece:
                    yield piece
                    if not await pace.keep(len(piece)):
                        break
    except LitelogError as error:
        last = framing.fail(error_fields(error))
        if last is None:
            raise
        yield last
        return
    yield framing.end()


async def _compress(body: AsyncGenerator[bytes, None], compressor: Compressor) -> AsyncGenerator[bytes, None]:
    try:
        async for piece in body:
            if piece:
                yield await compressor.add(piece)
        yield compressor.end()
    finally:
        await body.aclose()
