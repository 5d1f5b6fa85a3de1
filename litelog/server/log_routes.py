"""The routes under ``/logs``: facts about served logs, their records as streams, and the objects of their replicas.

Specified in litelog/live/README.md.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from litelog.errors import (
    ConfigError,
    CorruptionError,
    LitelogError,
    NotFoundError,
    NotYetAvailableError,
    OffsetJumpError,
    StoreError,
)
from litelog.formats.columns import NAMES
from litelog.live.encoding import ENCODINGS, RecordEncoding
from litelog.live.record_feed import ForkedError, RecordFeed, RecordRequest
from litelog.live.served_log import LiveReader
from litelog.live.served_logs import IDLE_SECONDS, TooManyReadersError, UnknownLogError
from litelog.objects.layout import parse_wal
from litelog.server.error_answer import NO_STORE, make_error
from litelog.server.http_server import begin_stream
from litelog.stores.object_store import ByteRange, require_key
from litelog.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
    from typing import BinaryIO

    from starlette.requests import Request

    from litelog.live.served_log import ServedLog
    from litelog.live.served_logs import ServedLogs
    from litelog.log.read_bounds import Start
    from litelog.objects.position import Position
    from litelog.system.clock import Clock

MAX_WAIT_SECONDS = 600.0
"""The longest ``wait``."""

MAX_PAGE = 1000
"""The most objects in a page of a listing."""

CHUNK_BYTES = 256 << 10
"""How many bytes of an object are sent at a time."""

_RANGE = re.compile("bytes=([0-9]{1,18})-([0-9]{1,18})?")

MAX_NUMBER = (1 << 63) - 1

PARAMETERS = ("from", "to", "follow", "wait", "limit", "columns")

STATUS: Mapping[type[LitelogError], int] = {
    UnknownLogError: 404,
    TooManyReadersError: 429,
    OffsetJumpError: 410,
    ForkedError: 409,
    NotYetAvailableError: 503,
    NotFoundError: 404,
    StoreError: 502,
    CorruptionError: 500,
    ConfigError: 400,
}
"""The HTTP status of an error. A subclass has that of its nearest base."""


class BadRequestError(LitelogError):
    """A parameter of the request has no meaning."""


def log_routes(logs: ServedLogs, clock: Clock) -> list[Route]:
    """The routes. Names of logs may have slashes."""
    handlers = LogHandlers(logs, clock)
    return [
        Route("/logs", handlers.list_logs),
        Route("/logs/{log:path}/records", handlers.records),
        Route("/logs/{log:path}/replica", handlers.list_objects),
        Route("/logs/{log:path}/replica/{key:path}", handlers.open_object),
        Route("/logs/{log:path}", handlers.show_log),
    ]


class LogHandlers:
    """The handlers."""

    def __init__(self, logs: ServedLogs, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self._stops_idle = False
        """Whether idle logs are to be stopped soon."""

    def list_logs(self, _: Request) -> Response:
        """The served logs."""
        return _answer({"logs": [asdict(self._logs.get(name).facts()) for name in self._logs.names()]})

    def show_log(self, request: Request) -> Response:
        """One served log, and who reads it."""
        try:
            served = self._logs.get(request.path_params["log"])
        except LitelogError as error:
            return answer_error(error)
        now = self._clock.monotonic()
        readers = [
            {"kind": each.kind, "seconds": round(now - each.since, 3), "next": each.next, "sent_bytes": each.sent_bytes}
            for each in served.all_readers()
        ]
        return _answer({**asdict(served.facts()), "readers": readers, "sent_bytes": served.sent_bytes})

    async def records(self, request: Request) -> Response:
        """The records of a log as a stream."""
        try:
            encoding = choose_encoding(request)
            asked = read_request(request)
            reader = LiveReader(f"records {encoding.kind}", self._clock.monotonic())
            served = await asyncio.to_thread(self._logs.enter, request.path_params["log"], reader)
        except LitelogError as error:
            return answer_error(error)
        pieces = RecordFeed(served, asked, encoding, reader).pieces()
        leave = partial(self._leave, served, reader)
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
        body = _stream(first, pieces, encoding, leave)
        return StreamingResponse(body, media_type=encoding.media_type, headers=NO_STORE)

    async def list_objects(self, request: Request) -> Response:
        """A page of the objects of a log's replica."""
        query = request.query_params
        try:
            limit = min(read_number("limit", query.get("limit", str(MAX_PAGE))), MAX_PAGE)
            async with self._reading(request, "objects") as served:
                arguments = (query.get("prefix", ""), query.get("start-after"), limit)
                found = await asyncio.to_thread(served.objects.list, *arguments)
        except (LitelogError, ValueError) as error:
            return answer_error(error if isinstance(error, LitelogError) else BadRequestError(str(error)))
        return _answer({"objects": [[info.key, info.size] for info in found]})

    async def open_object(self, request: Request) -> Response:
        """An object of a log's replica, or a range of it. With ``wait``, once it is there."""
        key = request.path_params["key"]
        try:
            require_key(key)
            byte_range = read_range(request.headers.get("range"))
            seconds = read_wait(request.query_params.get("wait", "0s"))
            async with self._reading(request, "objects") as served:
                position = parse_wal(key)
                if seconds and position is not None and not await _is_shipped(served, position, seconds):
                    return make_error(404, f"{key}: is not there yet")
                if request.method == "HEAD" and seconds and position is not None:
                    return Response(headers=NO_STORE)
                stream = await asyncio.to_thread(served.objects.open, key, byte_range)
        except (LitelogError, ValueError) as error:
            return answer_error(error if isinstance(error, LitelogError) else BadRequestError(str(error)))
        headers = {**NO_STORE, "content-type": "application/octet-stream"}
        begin_stream()
        return StreamingResponse(_chunks(stream), 200 if byte_range is None else 206, headers)

    @asynccontextmanager
    async def _reading(self, request: Request, kind: str) -> AsyncIterator[ServedLog]:
        """Count a reader while a request for a log lasts."""
        reader = LiveReader(kind, self._clock.monotonic())
        served = await asyncio.to_thread(partial(self._logs.enter, request.path_params["log"], reader, live=False))
        try:
            yield served
        finally:
            self._leave(served, reader)

    def _leave(self, served: ServedLog, reader: LiveReader) -> None:
        """End a reader. Waits for nothing: the request may be cancelled."""
        self._logs.leave(served, reader)
        if not self._stops_idle:
            self._stops_idle = True
            asyncio.get_running_loop().call_later(IDLE_SECONDS, self._stop_idle)

    def _stop_idle(self) -> None:
        self._stops_idle = False
        asyncio.get_running_loop().run_in_executor(None, self._logs.stop_idle)


async def _chunks(stream: BinaryIO) -> AsyncIterator[bytes]:
    try:
        while piece := await asyncio.to_thread(stream.read, CHUNK_BYTES):
            yield piece
    finally:
        stream.close()


async def _is_shipped(served: ServedLog, position: Position, seconds: float) -> bool:
    """Wait until a WAL segment is acknowledged; whether it is."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(news.set)

    deadline = loop.time() + seconds
    served.log.signals.listen(wake)
    try:
        while not served.is_acknowledged(position):
            left = deadline - loop.time()
            if left <= 0:
                return False
            news.clear()
            if not served.is_acknowledged(position):
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), left)
        return True
    finally:
        served.log.signals.forget(wake)


async def _stream(
    first: bytes | None, pieces: AsyncGenerator[bytes, None], encoding: RecordEncoding, leave: Callable[[], None]
) -> AsyncIterator[bytes]:
    try:
        yield encoding.begin()
        if first:
            yield first
        try:
            async for piece in pieces:
                if piece:
                    yield piece
        except LitelogError as error:
            last = encoding.fail(error_fields(error))
            if last is None:
                raise
            yield last
            return
        yield encoding.end()
    finally:
        leave()
        await pieces.aclose()


def read_request(request: Request) -> RecordRequest:
    """What a request asks for. BadRequestError."""
    query = request.query_params
    unknown = sorted(set(query) - set(PARAMETERS))
    if unknown:
        raise BadRequestError(f"{unknown[0]}: no such parameter; there are {', '.join(PARAMETERS)}")
    start = _read_start(query.get("from", "earliest"))
    if (seen := request.headers.get("last-event-id")) is not None:
        start = read_number("Last-Event-ID", seen) + 1
    wait = read_wait(query.get("wait", "0s"))
    return RecordRequest(
        start,
        read_number("to", query["to"]) if "to" in query else None,
        _read_switch("follow", query.get("follow", "false")),
        wait,
        read_number("limit", query["limit"]) if "limit" in query else None,
    )


def read_wait(text: str) -> float:
    """Seconds to wait. BadRequestError."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise BadRequestError(f"wait: {error}") from None
    if seconds > MAX_WAIT_SECONDS:
        raise BadRequestError(f"wait: must be at most {MAX_WAIT_SECONDS:g}s")
    return seconds


def read_range(text: str | None) -> ByteRange | None:
    """The bytes that a Range header asks for; None for all. BadRequestError for anything but one range from a place."""
    if text is None:
        return None
    match = _RANGE.fullmatch(text)
    if match is None or (match[2] and int(match[2]) < int(match[1])):
        raise BadRequestError("Range: must be bytes=FIRST-LAST or bytes=FIRST-")
    first = int(match[1])
    return ByteRange(first, int(match[2]) - first + 1 if match[2] else None)


def choose_encoding(request: Request) -> RecordEncoding:
    """The encoding that the Accept header asks for. BadRequestError; ConfigError if pyarrow is missing."""
    given = request.query_params.get("columns")
    names = NAMES if given is None else [name for name in NAMES if name in given.split(",")]
    if given is not None and sorted(given.split(",")) != sorted(names):
        raise BadRequestError(f"columns: {given} are not of {', '.join(NAMES)}")
    accepted = [each.partition(";")[0].strip().lower() for each in request.headers.get("accept", "*/*").split(",")]
    for wanted in accepted:
        for kind, make in ENCODINGS.items():
            if wanted in (kind, f"{kind.partition('/')[0]}/*", "*/*", ""):
                return make(names)
    raise NotAcceptableError(f"Accept names none of {', '.join(ENCODINGS)}")


class NotAcceptableError(BadRequestError):
    """No encoding that the request accepts is there."""


def error_fields(error: LitelogError) -> dict[str, object]:
    """An error in the middle of a stream, as JSON values."""
    return {"message": str(error), "http_status": status_of(error), **_more(error)}


def answer_error(error: LitelogError) -> JSONResponse:
    """The answer to a request that cannot be served."""
    status = status_of(error)
    headers = {"retry-after": "1"} if status in (429, 502, 503) else None
    return make_error(status, str(error), headers, **_more(error))


def _more(error: LitelogError) -> dict[str, object]:
    return {"next": error.next} if isinstance(error, OffsetJumpError) else {}


def status_of(error: LitelogError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, NotAcceptableError):
        return 406
    if isinstance(error, BadRequestError):
        return 400
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def _read_start(text: str) -> int | Start:
    if text in ("earliest", "latest", "end"):
        return text  # type: ignore[return-value]
    return read_number("from", text)


def read_number(name: str, text: str) -> int:
    """A parameter that is a sequence or a count. BadRequestError."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > MAX_NUMBER:
        raise BadRequestError(f"{name}: {text} is not a sequence")
    return int(text)


def _read_switch(name: str, text: str) -> bool:
    if text not in ("true", "false", "1", "0", ""):
        raise BadRequestError(f"{name}: must be true or false")
    return text in ("true", "1", "")


def _answer(fields: dict[str, object]) -> JSONResponse:
    return JSONResponse({"version": 1, **fields}, headers=NO_STORE)
