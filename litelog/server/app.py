"""The routes of the HTTP API. Each ``POST /sync`` waits in its own thread, and the number of these is limited."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from litelog.errors import ConfigError
from litelog.server.auth import BARE, RequestGuard
from litelog.server.error_answer import NO_STORE, answer_unrouted, make_error
from litelog.server.exposition import write_metrics
from litelog.server.make_report import describe_reasons, make_report, write_with_history
from litelog.server.page.filter import choose, read_first
from litelog.server.page.page import page_headers, read_histories, render_page, sum_up
from litelog.server.report import SyncReport, UnreachedReport
from litelog.server.verdict import judge
from litelog.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from starlette.requests import Request

    from litelog.live.reader_limits import ServingStatus
    from litelog.live.served_logs import ServedLogs
    from litelog.replicator.barrier import Barrier
    from litelog.server.daemon_view import Daemon, StatusCache
    from litelog.server.found_reason import FoundReason
    from litelog.server.heartbeat import Heartbeat
    from litelog.server.permits import Tokens
    from litelog.server.report import StatusReport
    from litelog.server.status_view import StatusView
    from litelog.server.verdict import Judgement

_OPENMETRICS = "application/openmetrics-text"
_FORMATS = (_OPENMETRICS, "text/plain")
_VERSION = re.compile(r"([0-9]{1,9}(\.[0-9]{1,9}){0,3})?")
STALLS = ("loop_stopped", "status_stalled")
"""Kinds of reasons that a restart of the daemon may cure."""


class Handlers:
    """The handlers. All except ``sync`` run in threads, since they may briefly wait for the daemon."""

    def __init__(
        self, daemon: Daemon, status_cache: StatusCache, heartbeat: Heartbeat | None, logs: ServedLogs | None
    ) -> None:
        self._status_cache = status_cache
        self._heartbeat = heartbeat
        self._logs = logs
        self._barriers = Barriers(daemon)
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)

    def index(self, request: Request) -> Response:
        """The page."""
        query = request.query_params
        wanted = query.get("q", "")
        snapshot = self._status_cache.read()
        judgement = judge(snapshot, self._status_cache.rules)
        choice = choose(judgement.replicas, wanted, read_first(query.get("from", "")))
        report = self._report(snapshot, judgement, choice.logs)
        histories = read_histories(snapshot, choice.logs)
        verdicts = self._status_cache.verdicts
        totals = sum_up(snapshot, verdicts)
        page = render_page(report, histories, judgement, choice, wanted, verdicts=verdicts, totals=totals)
        return HTMLResponse(page, headers=page_headers())

    def status(self, request: Request) -> Response:
        """The report."""
        history = request.query_params.get("history", "0") not in ("", "0")
        log = request.query_params.get("log")
        snapshot = self._status_cache.read()
        judgement = judge(snapshot, self._status_cache.rules)
        logs = None if log is None else (log,)
        report = self._report(snapshot, judgement, logs)
        if log is not None and snapshot.opened and not report.logs and not report.not_replicated:
            return make_error(404, f"{log}: is not replicated here")
        body = write_with_history(report, snapshot, logs) if history else report.model_dump_json().encode()
        return Response(body, media_type="application/json", headers=NO_STORE)

    def openapi(self, _: Request) -> Response:
        """The OpenAPI document."""
        from litelog.server.openapi import make_openapi  # noqa: PLC0415 - it is rarely asked for

        return JSONResponse(make_openapi(), headers=NO_STORE)

    def metrics(self, request: Request) -> Response:
        """The metrics, in the Prometheus format that the request asks for."""
        accept = request.headers.get("accept", "")
        if not all(map(_VERSION.fullmatch, _read_versions(accept))):
            return make_error(400, "the Accept header is malformed: it asks for a version that is not a number")
        encode, content_type = choose_encoder(accept)
        openmetrics = content_type.startswith(_OPENMETRICS)
        text = write_metrics(self._status_cache, self._heartbeat, self._serving(), openmetrics=openmetrics)
        body = text.encode() + encode(self._process)  # the client's part has the end that OpenMetrics wants
        return Response(body, headers={**NO_STORE, "content-type": content_type})

    def healthz(self, request: Request) -> Response:
        """Whether nothing is late or unsafe."""
        found = self._status_cache.judge()
        return _answer(request, found.reasons, found.verdict.value, is_well=found.healthy)

    def readyz(self, request: Request) -> Response:
        """Whether the daemon runs, and has synced the logs that exist."""
        unready = self._status_cache.judge().unready
        return _answer(request, unready, "starting" if unready else "ready", is_well=not unready)

    def livez(self, request: Request) -> Response:
        """Whether the daemon's main loop runs. If not, a restart helps."""
        found = self._status_cache.judge()
        stalls = [each for each in found.reasons if each.kind in STALLS]
        return _answer(request, stalls, "stalled" if stalls else "running", is_well=not stalls)

    async def sync(self, request: Request) -> Response:
        """Wait until the current data of the logs is durable."""
        query = request.query_params
        try:
            seconds = parse_duration(query["wait"]) if "wait" in query else DEFAULT_WAIT_SECONDS
        except ValueError as error:
            return make_error(400, f"wait: {error}")
        if seconds > MAX_WAIT_SECONDS:
            return make_error(400, f"wait: must be at most {MAX_WAIT_SECONDS:g}s")
        began = time.monotonic()
        try:
            barrier = await self._barriers.wait(query.get("log"), query.get("replica"), seconds)
        except TooManyWaitingError:
            return make_error(503, "too many wait already", {"retry-after": "1"})
        except ConfigError as error:
            return make_error(404, str(error))
        self._status_cache.expire()
        report = SyncReport(
            reached=barrier.reached,
            replica_count=barrier.replicas,
            seconds=round(time.monotonic() - began, 3),
            unreached=[
                UnreachedReport(log=each.log, replica=each.replica, phase=each.phase, sync_error=each.error)
                for each in barrier.unreached
            ],
        )
        return JSONResponse(report.model_dump(), 200 if report.reached else 504, NO_STORE)

    def _report(self, snapshot: StatusView, judgement: Judgement, logs: Container[str] | None) -> StatusReport:
        beats = self._heartbeat.report() if self._heartbeat is not None else None
        serving = self._serving()
        return make_report(self._status_cache, snapshot, judgement, heartbeat=beats, logs=logs, serving=serving)

    def _serving(self) -> ServingStatus | None:
        """The readers and mirrors of the served logs."""
        return None if self._logs is None else self._logs.status()


def make_app(
    daemon: Daemon,
    status_cache: StatusCache,
    *,
    heartbeat: Heartbeat | None = None,
    tokens: Tokens | None = None,
    hosts: Iterable[str] | None = (),
    logs: ServedLogs | None = None,
) -> Starlette:
    """Make the application. ``hosts``: as for ``RequestGuard``. ``logs``: the logs that it serves; None: none."""
    handlers = Handlers(daemon, status_cache, heartbeat, logs)
    routes = [
        Route("/", handlers.index),
        Route("/status", handlers.status),
        Route("/metrics", handlers.metrics),
        Route("/healthz", handlers.healthz),
        Route("/readyz", handlers.readyz),
        Route("/livez", handlers.livez),
        Route("/openapi.json", handlers.openapi),
        Route("/sync", handlers.sync, methods=["POST"]),
    ]
    if logs is not None:
        from litelog.server.log_routes import log_routes  # noqa: PLC0415 - only a daemon that serves logs needs it

        routes += log_routes(logs, status_cache.clock)
    guard = Middleware(RequestGuard, tokens=tokens, hosts=hosts)
    return Starlette(routes=routes, middleware=[guard], exception_handlers={HTTPException: answer_unrouted})


def _read_versions(accept: str) -> Iterator[str]:
    """The versions of metrics formats that an Accept header asks for."""
    for each in accept.split(","):
        kind, *parameters = each.split(";")
        if kind.strip() in _FORMATS:
            pairs = (parameter.partition("=") for parameter in parameters)
            yield from (value.strip() for name, _, value in pairs if name.strip() == "version")


def _answer(request: Request, reasons: Iterable[FoundReason], verdict: str, *, is_well: bool) -> Response:
    body: dict[str, object] = {"status": "ok" if is_well else "failing"}
    if not request.scope.get(BARE):
        body["verdict"] = verdict
        body["reasons"] = [reason.model_dump() for reason in describe_reasons(reasons)]
    return JSONResponse(body, 200 if is_well else 503, NO_STORE)


MAX_WAITING = 16
MAX_WAIT_SECONDS = 600.0
DEFAULT_WAIT_SECONDS = 30.0


class TooManyWaitingError(Exception):
    """MAX_WAITING requests wait already."""


class Barriers:
    """Runs the daemon's blocking waits in threads. For one event loop."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._waiting = 0

    async def wait(self, log: str | None, replica: str | None, seconds: float) -> Barrier:
        """As ``Daemon.barrier``. Raises TooManyWaitingError. If the client disconnects, its thread still waits to the
        end."""
        if self._waiting >= MAX_WAITING:
            raise TooManyWaitingError
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Barrier] = loop.create_future()

        def settle(barrier: Barrier | None, error: BaseException | None) -> None:
            self._waiting -= 1
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            elif barrier is not None:
                answer.set_result(barrier)

        def work() -> None:
            barrier, failure = None, None
            try:
                barrier = self._daemon.barrier(log, replica, seconds)
            except BaseException as error:  # noqa: BLE001 - reported in the loop
                failure = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, barrier, failure)

        self._waiting += 1
        threading.Thread(target=work, name="barrier", daemon=True).start()
        return await answer
