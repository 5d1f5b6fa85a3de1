"""The routes under ``/logs``: facts about served logs, and their records as streams.

Specified in litelog/live/README.md.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from litelog.errors import ConfigError, CorruptionError, LitelogError, NotYetAvailableError, StoreError
from litelog.formats.columns import NAMES
from litelog.live.encoding import ENCODINGS, RecordEncoding
from litelog.live.record_feed import ForkedError, RecordFeed, RecordRequest
from litelog.live.served_log import LiveReader
from litelog.live.served_logs import IDLE_SECONDS, TooManyReadersError, UnknownLogError
from litelog.reading.combined_reader import OffsetJumpError
from litelog.server.error_answer import NO_STORE, make_error
from litelog.server.http_server import begin_stream
from litelog.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from starlette.requests import Request

    from litelog.live.served_log import ServedLog
    from litelog.live.served_logs import ServedLogs
    from litelog.log.read_bounds import Start
    from litelog.system.clock import Clock

MAX_WAIT_SECONDS = 600.0
"""The longest ``wait``."""

MAX_NUMBER = (1 << 63) - 1

PARAMETERS = ("from", "to", "follow", "wait", "limit", "columns")

STATUS: Mapping[type[LitelogError], int] = {
    UnknownLogError: 404,
    TooManyReadersError: 429,
    OffsetJumpError: 410,
    ForkedError: 409,
    NotYetAvailableError: 503,
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
        Route("/logs/{log:path}", handlers.show_log),
    ]


class LogHandlers:
    """The handlers."""

    def __init__(self, logs: ServedLogs, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock

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
            await pieces.aclose()  # type: ignore[attr-defined]
            leave()
            return answer_error(error)
        except BaseException:
            leave()
            raise
        begin_stream()
        body = _stream(first, pieces, encoding, leave)
        return StreamingResponse(body, media_type=encoding.media_type, headers=NO_STORE)

    def _leave(self, served: ServedLog, reader: LiveReader) -> None:
        """End a reader. Waits for nothing: the request may be cancelled."""
        self._logs.leave(served, reader)
        loop = asyncio.get_running_loop()
        loop.call_later(IDLE_SECONDS, loop.run_in_executor, None, self._logs.stop_idle)


async def _stream(
    first: bytes | None, pieces: AsyncIterator[bytes], encoding: RecordEncoding, leave: Callable[[], None]
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
        await pieces.aclose()  # type: ignore[attr-defined]


def read_request(request: Request) -> RecordRequest:
    """What a request asks for. BadRequestError."""
    query = request.query_params
    unknown = sorted(set(query) - set(PARAMETERS))
    if unknown:
        raise BadRequestError(f"{unknown[0]}: no such parameter; there are {', '.join(PARAMETERS)}")
    start = _read_start(query.get("from", "earliest"))
    if (seen := request.headers.get("last-event-id")) is not None:
        start = _read_number("Last-Event-ID", seen) + 1
    try:
        wait = parse_duration(query["wait"]) if "wait" in query else 0.0
    except ValueError as error:
        raise BadRequestError(f"wait: {error}") from None
    if wait > MAX_WAIT_SECONDS:
        raise BadRequestError(f"wait: must be at most {MAX_WAIT_SECONDS:g}s")
    return RecordRequest(
        start,
        _read_number("to", query["to"]) if "to" in query else None,
        _read_switch("follow", query.get("follow", "false")),
        wait,
        _read_number("limit", query["limit"]) if "limit" in query else None,
    )


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
    return _read_number("from", text)


def _read_number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > MAX_NUMBER:
        raise BadRequestError(f"{name}: {text} is not a sequence")
    return int(text)


def _read_switch(name: str, text: str) -> bool:
    if text not in ("true", "false", "1", "0", ""):
        raise BadRequestError(f"{name}: must be true or false")
    return text in ("true", "1", "")


def _answer(fields: dict[str, object]) -> JSONResponse:
    return JSONResponse({"version": 1, **fields}, headers=NO_STORE)
