"""The routes: what is asked for, and what is answered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from litelog.errors import ConfigError
from litelog.quantities import parse_duration
from litelog.server.barriers import DEFAULT_WAIT_SECONDS, MAX_WAIT_SECONDS, Barriers, TooManyWaitingError
from litelog.server.guard import BARE, Guard
from litelog.server.health import find_unhealthy, find_unready
from litelog.server.metrics import make_registry
from litelog.server.report import SyncReport, UnreachedReport
from litelog.server.reporting import make_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.requests import Request

    from litelog.server.board import Board
    from litelog.server.daemon import Daemon
    from litelog.server.heartbeat import Heartbeat
    from litelog.server.report import Reason, Report
    from litelog.server.token_file import TokenFile

    Page = Callable[[Report], str]
    """Makes the page at / of a report, with the history: HTML that needs nothing else."""

_NO_STORE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_PAGE_HEADERS = _NO_STORE | {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}

_INDEX = (
    "litelog\n\n/status  JSON\n/metrics Prometheus\n/healthz\n/readyz\nPOST /sync?wait=30s[&log=FOLDER][&replica=URL]\n"
)


class Handlers:
    """What answers. ``status`` and the like run in threads, as they may wait for the daemon for a moment."""

    def __init__(self, daemon: Daemon, board: Board, heartbeat: Heartbeat | None, page: Page | None) -> None:
        self._board = board
        self._heartbeat = heartbeat
        self._page = page
        self._barriers = Barriers(daemon)
        self._registry = make_registry(board, heartbeat)

    def index(self, _request: Request) -> Response:
        """The page, or what there is."""
        if self._page is None:
            return PlainTextResponse(_INDEX, headers=_NO_STORE)
        return HTMLResponse(self._page(self._report(history=True)), headers=_PAGE_HEADERS)

    def status(self, request: Request) -> Response:
        """The report."""
        history = request.query_params.get("history", "0") not in ("", "0")
        report = self._report(history=history, log=request.query_params.get("log"))
        return Response(report.model_dump_json(), media_type="application/json", headers=_NO_STORE)

    def metrics(self, request: Request) -> Response:
        """As Prometheus reads them, in the format that it asks for."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(self._registry), headers={**_NO_STORE, "content-type": content_type})

    def healthz(self, request: Request) -> Response:
        """Whether all is safe."""
        return _verdict(request, find_unhealthy(self._board.read(), self._board.rules))

    def readyz(self, request: Request) -> Response:
        """Whether all is safe, and was synced."""
        return _verdict(request, find_unready(self._board.read(), self._board.rules))

    async def sync(self, request: Request) -> Response:
        """Wait until what the logs hold is durable."""
        query = request.query_params
        try:
            seconds = parse_duration(query["wait"]) if "wait" in query else DEFAULT_WAIT_SECONDS
        except ValueError as error:
            return _error(400, f"wait: {error}")
        if seconds > MAX_WAIT_SECONDS:
            return _error(400, f"wait: must be at most {MAX_WAIT_SECONDS:g}s")
        began = time.monotonic()
        try:
            barrier = await self._barriers.wait(query.get("log"), query.get("replica"), seconds)
        except TooManyWaitingError:
            return _error(503, "too many wait already", {"retry-after": "1"})
        except ConfigError as error:
            return _error(404, str(error))
        self._board.expire()
        report = SyncReport(
            reached=barrier.reached,
            replicas=barrier.replicas,
            waited_seconds=round(time.monotonic() - began, 3),
            unreached=[
                UnreachedReport(log=each.log, replica=each.replica, phase=each.phase, error=each.error)
                for each in barrier.unreached
            ],
        )
        return JSONResponse(report.model_dump(), 200 if report.reached else 504, _NO_STORE)

    def _report(self, *, history: bool, log: str | None = None) -> Report:
        beats = self._heartbeat.report() if self._heartbeat is not None else None
        return make_report(self._board, self._board.read(), heartbeat=beats, history=history, log=log)


def make_app(
    daemon: Daemon,
    board: Board,
    *,
    heartbeat: Heartbeat | None = None,
    token: TokenFile | None = None,
    hosts: Iterable[str] | None = (),
    page: Page | None = None,
) -> Starlette:
    """The application. ``hosts``: as ``Guard`` takes them; ``page``: what / shows."""
    handlers = Handlers(daemon, board, heartbeat, page)
    routes = [
        Route("/", handlers.index),
        Route("/status", handlers.status),
        Route("/metrics", handlers.metrics),
        Route("/healthz", handlers.healthz),
        Route("/readyz", handlers.readyz),
        Route("/sync", handlers.sync, methods=["POST"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, token=token, hosts=hosts)])


def _verdict(request: Request, reasons: list[Reason]) -> Response:
    body: dict[str, object] = {"status": "failing" if reasons else "ok"}
    if not request.scope.get(BARE):
        body["reasons"] = [reason.model_dump() for reason in reasons]
    return JSONResponse(body, 503 if reasons else 200, _NO_STORE)


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, {**_NO_STORE, **(headers or {})})
