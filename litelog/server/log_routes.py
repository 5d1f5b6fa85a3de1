"""The routes under ``/logs``: facts about served logs, their records as streams, and the objects of their replicas.

Specified in litelog/live/README.md.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from litelog.errors import LitelogError
from litelog.formats.columns import NAMES
from litelog.live.encoding import JsonLines
from litelog.live.held_records import find_held
from litelog.live.log_check import LogCheck, ReportFraming
from litelog.live.log_consumers import find_consumer, find_time, read_consumers
from litelog.live.record_feed import RecordFeed, RecordRequest
from litelog.live.served_log import LiveReader
from litelog.live.served_logs import IDLE_SECONDS, TooManyReadersError
from litelog.live.wal_feed import WalFeed, WalFraming
from litelog.objects.layout import parse_wal
from litelog.server.consumer_routes import consumer_routes, with_iso_time
from litelog.server.error_answer import NO_STORE, make_error
from litelog.server.log_errors import answer_error
from litelog.server.log_requests import (
    choose_encoding,
    may_read,
    name_of_log,
    read_logs_request,
    read_mirrors_request,
    read_number,
    read_range,
    read_request,
    read_wait,
    read_wal_request,
    require_no_parameters,
    revision_of,
)
from litelog.server.permits import StreamPermits, permit_of
from litelog.server.stream_answer import PieceStream, StreamPace, answer_stream, find_unsent, make_compressor
from litelog.stores.object_store import bytes_left, require_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
    from typing import BinaryIO

    from starlette.requests import Request

    from litelog.live.encoding import Piece, StreamFraming
    from litelog.live.served_log import ServedLog
    from litelog.live.served_logs import ServedLogs
    from litelog.objects.position import Position
    from litelog.server.permits import Permit
    from litelog.system.change_signal import ChangeSignal
    from litelog.system.clock import Clock

MAX_PAGE = 1000
"""The most objects in a page of a listing."""

LOOK_SECONDS = 1.0
"""How often a request that waits for a mirror looks for the log's buffer, which runs only while there are readers."""

LIST_SECONDS = 15.0
"""How often a request that waits for other logs looks whether its client and its token are still there."""

SETTLE_SECONDS = 0.05
"""How long after a change such a request is answered: logs often come many at a time."""

CHUNK_BYTES = 1 << 20
"""How many bytes of an object are sent at a time."""


def log_routes(logs: ServedLogs, clock: Clock) -> list[Route]:
    """The routes. Names of logs may have slashes."""
    handlers = LogHandlers(logs, clock)
    return [
        Route("/logs", handlers.list_logs),
        Route("/logs/{log:path}/records", handlers.records),
        Route("/logs/{log:path}/records/{sequence}", handlers.record),
        Route("/logs/{log:path}/wal", handlers.wal),
        Route("/logs/{log:path}/check", handlers.check),
        Route("/logs/{log:path}/mirrors", handlers.mirrors),
        Route("/logs/{log:path}/replica", handlers.list_objects),
        Route("/logs/{log:path}/replica/{key:path}", handlers.open_object),
        *consumer_routes(logs, clock),
        Route("/logs/{log:path}", handlers.show_log),
    ]


class LogHandlers:
    """The handlers."""

    def __init__(self, logs: ServedLogs, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self._permits = StreamPermits()
        self._is_checking = False
        """Whether a log is being checked."""
        self._stops_idle = False
        """Whether the loop will stop idle logs soon."""

    async def list_logs(self, request: Request) -> Response:
        """The served logs that the request's token permits to read. With the ``revision`` of an earlier answer, once
        they have changed, or after a while."""
        permit, loop = permit_of(request), asyncio.get_running_loop()
        try:
            revision, seconds = read_logs_request(request)
            deadline = loop.time() + seconds
            with _listening(self._logs.changes) as news:
                while True:
                    news.clear()
                    names = [name for name in await asyncio.to_thread(self._logs.names) if may_read(permit, name)]
                    found, left = revision_of(names), deadline - loop.time()
                    if found != revision or left <= 0 or await request.is_disconnected():
                        break
                    with suppress(TimeoutError):
                        await asyncio.wait_for(news.wait(), min(left, LIST_SECONDS))
                        await asyncio.sleep(SETTLE_SECONDS)
                    if permit is not None:
                        permit.require()
            facts = await asyncio.to_thread(lambda: [asdict(log.facts()) for log in self._logs.get_all(names)])
        except LitelogError as error:
            return answer_error(error)
        return _answer({"revision": found, "logs": facts})

    def show_log(self, request: Request) -> Response:
        """One served log, who reads it, and where its consumers are."""
        try:
            served = self._logs.get(name_of_log(request))
            consumers = [with_iso_time(asdict(each)) for each in read_consumers(served)]
        except LitelogError as error:
            return answer_error(error)
        now = self._clock.monotonic()
        readers = [
            {"kind": each.kind, "seconds": round(now - each.since, 3), "next": each.next, "sent_bytes": each.sent_bytes}
            for each in served.all_readers()
        ]
        mirrors = [asdict(each) for each in served.mirrors.status(served.durable_end(), now)]
        facts = asdict(served.facts())
        lists = {"readers": readers, "mirrors": mirrors, "consumers": consumers}
        return _answer({**facts, **asdict(find_held(served)), **lists, "sent_bytes": served.sent_bytes})

    async def records(self, request: Request) -> Response:
        """The records of a log as a stream."""
        try:
            encoding = choose_encoding(request)
            asked = read_request(request)
            asked = await self._located(request, asked)
            reader = LiveReader(f"records {encoding.kind}", self._clock.monotonic())
            served = await asyncio.to_thread(self._logs.enter, name_of_log(request), reader)
        except LitelogError as error:
            return answer_error(error)
        self._permits.watch(reader, permit_of(request))
        pieces = RecordFeed(served, asked, encoding, reader).pieces()
        return await self._stream(request, pieces, encoding, partial(self._leave, served, reader), reader)

    async def record(self, request: Request) -> Response:
        """One record of a log."""
        reader = LiveReader("record", self._clock.monotonic())
        try:
            sequence = read_number("sequence", request.path_params["sequence"])
            asked = RecordRequest(sequence, sequence + 1, limit=1)
            served = await asyncio.to_thread(self._logs.enter, name_of_log(request), reader)
            try:
                pieces = RecordFeed(served, asked, JsonLines(NAMES), reader).pieces()
                found = b"".join([piece async for piece in pieces]).strip()
            finally:
                self._leave(served, reader)
        except LitelogError as error:
            return answer_error(error)
        if not found:
            return make_error(404, f"{served.name}: no record has the sequence {sequence}, or none yet")
        return Response(found, headers=NO_STORE, media_type="application/json")

    async def _located(self, request: Request, asked: RecordRequest) -> RecordRequest:
        """The request with the place that a consumer or a time stands for."""
        if asked.consumer is None and asked.start_time is None:
            return asked
        served = await asyncio.to_thread(self._logs.get, name_of_log(request))
        if asked.consumer is not None:
            return replace(asked, start=await asyncio.to_thread(find_consumer, served, asked.consumer))
        return replace(asked, start=await asyncio.to_thread(find_time, served, asked.start_time or 0))

    async def wal(self, request: Request) -> Response:
        """The bytes of a log as a stream of WAL segments."""
        try:
            asked = read_wal_request(request)
            reader = LiveReader("wal", self._clock.monotonic())
            served = await asyncio.to_thread(self._logs.enter, name_of_log(request), reader)
        except LitelogError as error:
            return answer_error(error)
        self._permits.watch(reader, permit_of(request))
        # With a rate, the connection is never full, but each byte takes the reader's time: all is compressed.
        unsent = None if self._logs.limits.rate is not None else find_unsent(request)
        pieces = WalFeed(served, asked, reader, self._clock, unsent).pieces()
        return await self._stream(request, pieces, WalFraming(), partial(self._leave, served, reader), reader)

    async def check(self, request: Request) -> Response:
        """A check of a log's own files. The daemon checks one log at a time."""
        try:
            require_no_parameters(request)
            name = name_of_log(request)
            if self._is_checking:
                raise TooManyReadersError(
                    "a log is being checked, and the daemon checks one at a time: ask again later"
                )
            reader = LiveReader("check", self._clock.monotonic())
            self._is_checking = True
            try:
                served = await asyncio.to_thread(partial(self._logs.enter, name, reader, live=False))
            except BaseException:
                self._end_check()
                raise
        except LitelogError as error:
            return answer_error(error)
        self._permits.watch(reader, permit_of(request))

        check = LogCheck(served, reader, self._logs.limits.rate, self._end_check)

        def leave() -> None:
            check.end()
            self._leave(served, reader)

        return await self._stream(request, check.pieces(), ReportFraming(), leave)

    def _end_check(self) -> None:
        self._is_checking = False

    async def mirrors(self, request: Request) -> Response:
        """The mirrors of a log, once any of them has reached a sequence, or after a while."""
        try:
            sequence, seconds = read_mirrors_request(request)
            found = partial(self._logs.get, name_of_log(request))
            served = await asyncio.to_thread(found)
            deadline = asyncio.get_running_loop().time() + seconds
            while not await _is_mirrored(served, sequence, deadline):
                if asyncio.get_running_loop().time() >= deadline:
                    break
                served = await asyncio.to_thread(found)
            if (permit := permit_of(request)) is not None:
                permit.require()
        except LitelogError as error:
            return answer_error(error)
        mirrors = [asdict(each) for each in served.mirrors.status(served.durable_end(), self._clock.monotonic())]
        return _answer({"next": served.mirrored_next(), "mirrors": mirrors})

    async def list_objects(self, request: Request) -> Response:
        """A page of the objects of a log's replica."""
        query = request.query_params
        try:
            limit = min(read_number("limit", query.get("limit", str(MAX_PAGE))), MAX_PAGE)
            async with self._reading(request, "objects") as served:
                arguments = (query.get("prefix", ""), query.get("start-after"), limit)
                found = await asyncio.to_thread(served.objects.list, *arguments)
        except (LitelogError, ValueError) as error:
            return answer_error(error)
        return _answer({"objects": [[info.key, info.size] for info in found]})

    async def open_object(self, request: Request) -> Response:
        """An object of a log's replica, or a range of it. With ``wait``, once it is there."""
        key = request.path_params["key"]
        async with AsyncExitStack() as stack:
            try:
                require_key(key)
                byte_range = read_range(request.headers.get("range"))
                seconds = read_wait(request.query_params.get("wait", "0s"))
                served = await stack.enter_async_context(self._reading(request, "objects"))
                position = parse_wal(key)
                if seconds and position is not None and not await _is_shipped(served, position, seconds):
                    return make_error(404, f"{key}: is not there yet")
                if (permit := permit_of(request)) is not None:
                    permit.require()
                if request.method == "HEAD" and seconds and position is not None:
                    return Response(headers=NO_STORE)
                stream = await asyncio.to_thread(served.objects.open, key, byte_range)
                stack.callback(stream.close)
            except (LitelogError, ValueError) as error:
                return answer_error(error)
            chunks = self._chunks(stream, permit_of(request))
            headers = {**NO_STORE, "content-type": "application/octet-stream"}
            if (size := bytes_left(stream)) is not None:
                headers["content-length"] = str(size)
            # The reader is counted until the answer has ended.
            return PieceStream(chunks, stack.pop_all().aclose, headers, 200 if byte_range is None else 206)

    @asynccontextmanager
    async def _reading(self, request: Request, kind: str) -> AsyncIterator[ServedLog]:
        """Count a reader while a request for a log lasts."""
        reader = LiveReader(kind, self._clock.monotonic())
        served = await asyncio.to_thread(partial(self._logs.enter, name_of_log(request), reader, live=False))
        try:
            yield served
        finally:
            self._leave(served, reader)

    async def _chunks(self, stream: BinaryIO, permit: Permit | None) -> AsyncGenerator[Piece, None]:
        limits = self._logs.limits.without_size()
        pace, size = StreamPace(limits, self._logs.counts), min(CHUNK_BYTES, limits.rate or CHUNK_BYTES)
        while piece := await asyncio.to_thread(stream.read, size):
            if permit is not None:
                permit.require()
            yield piece
            if pace.count(len(piece)):
                async for _ in pace.wait():
                    """An object has no signs of life: a pause lasts about a second."""

    async def _stream(
        self,
        request: Request,
        pieces: AsyncGenerator[Piece, None],
        framing: StreamFraming,
        leave: Callable[[], None],
        reader: LiveReader | None = None,
    ) -> Response:
        pace = StreamPace(self._logs.limits, self._logs.counts)
        return await answer_stream(pieces, framing, leave, pace, make_compressor(request), reader)

    def _leave(self, served: ServedLog, reader: LiveReader) -> None:
        """End a reader. Waits for nothing: the request may be cancelled."""
        self._permits.forget(reader)
        self._logs.leave(served, reader)
        if not self._stops_idle:
            self._stops_idle = True
            asyncio.get_running_loop().call_later(IDLE_SECONDS, self._stop_idle)

    def _stop_idle(self) -> None:
        self._stops_idle = False
        asyncio.get_running_loop().run_in_executor(None, self._logs.stop_idle)


async def _is_shipped(served: ServedLog, position: Position, seconds: float) -> bool:
    """Wait until a WAL segment is acknowledged. Returns whether it is."""
    deadline = asyncio.get_running_loop().time() + seconds
    return await _await_change(served.log.shipped, lambda: served.is_acknowledged(position), deadline)


async def _is_mirrored(served: ServedLog, sequence: int, deadline: float) -> bool:
    """Wait until a mirror has all records before a sequence durably. Returns whether one has them.

    Waits for LOOK_SECONDS at most: after that, another buffer may serve the log.
    """

    def is_reached() -> bool:
        reached = served.mirrored_next()
        return reached is not None and reached >= sequence

    latest = min(deadline, asyncio.get_running_loop().time() + LOOK_SECONDS)
    return await _await_change(served.mirrors.changes, is_reached, latest)


async def _await_change(signal: ChangeSignal, is_true: Callable[[], bool], deadline: float) -> bool:
    """Wait until a condition is true that ``signal`` reports, until the loop's time ``deadline``. Returns whether it
    is."""
    loop = asyncio.get_running_loop()
    with _listening(signal) as news:
        while not is_true():
            left = deadline - loop.time()
            if left <= 0:
                return False
            news.clear()
            if not is_true():
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), left)
        return True


@contextmanager
def _listening(signal: ChangeSignal) -> Iterator[asyncio.Event]:
    """An event of the loop, which ``signal`` sets."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(news.set)

    signal.listen(wake)
    try:
        yield news
    finally:
        signal.forget(wake)


def _answer(fields: dict[str, object]) -> JSONResponse:
    return JSONResponse({"version": 1, **fields}, headers=NO_STORE)
