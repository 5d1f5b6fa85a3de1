"""The routes under ``/logs/{log}/consumers``: where the consumers of a served log are, and how they are moved.

Specified in litelog/live/README.md#consumers.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from litelog.errors import LitelogError
from litelog.live.log_consumers import position_of, read_consumers, unknown
from litelog.objects.consumer_position import ConsumerPosition, position_fields
from litelog.server.error_answer import NO_STORE
from litelog.server.log_errors import answer_error
from litelog.server.log_requests import name_of_log, read_move_request
from litelog.units import format_iso

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from litelog.live.served_logs import ServedLogs
    from litelog.server.log_requests import MoveRequest
    from litelog.system.clock import Clock


def consumer_routes(logs: ServedLogs, clock: Clock) -> list[Route]:
    """The routes. Names of logs may have slashes, and names of consumers have none."""
    handlers = ConsumerHandlers(logs, clock)
    one = "/logs/{log:path}/consumers/{consumer}"
    return [
        Route("/logs/{log:path}/consumers", handlers.list_all),
        Route(one, handlers.show),
        Route(one, handlers.move, methods=["PUT"]),
        Route(one, handlers.delete, methods=["DELETE"]),
    ]


def with_iso_time(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a consumer, with ``updated`` in ISO 8601 as all times of answers."""
    updated = fields["updated"]
    return {**fields, "updated": None if updated is None else format_iso(updated)}


class ConsumerHandlers:
    """The handlers."""

    def __init__(self, logs: ServedLogs, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock

    def list_all(self, request: Request) -> Response:
        """The consumers of a log, with their lag."""
        try:
            found = read_consumers(self._logs.get(name_of_log(request)))
        except LitelogError as error:
            return answer_error(error)
        return _answer({"consumers": [with_iso_time(asdict(each)) for each in found]})

    def show(self, request: Request) -> Response:
        """The position of a consumer."""
        name: str = request.path_params["consumer"]
        try:
            served = self._logs.get(name_of_log(request))
            position = position_of(served, name).read()
            if position is None:
                raise unknown(served, name)
        except LitelogError as error:
            return answer_error(error)
        return _answer({"consumer": name, **with_iso_time(position_fields(position))})

    async def move(self, request: Request) -> Response:
        """Move a consumer, if its position still has the revision that the request states."""
        try:
            asked = read_move_request(await request.body())
            position = await asyncio.to_thread(self._move, request, asked)
        except LitelogError as error:
            return answer_error(error)
        return _answer({"consumer": request.path_params["consumer"], **with_iso_time(position_fields(position))})

    def delete(self, request: Request) -> Response:
        """Delete the position of a consumer. A missing position is not an error: an earlier answer may be lost."""
        name: str = request.path_params["consumer"]
        try:
            deleted = position_of(self._logs.get(name_of_log(request)), name).delete()
        except LitelogError as error:
            return answer_error(error)
        return _answer({"consumer": name, "deleted": deleted})

    def _move(self, request: Request, asked: MoveRequest) -> ConsumerPosition:
        kept = position_of(self._logs.get(name_of_log(request)), request.path_params["consumer"])
        now = self._clock.now()
        if asked.revision is None:
            return kept.force(asked.next, now)
        held = ConsumerPosition(asked.revision, None, 0) if asked.revision else None
        return kept.move(held, asked.next, asked.evidence, now, asked.move)


def _answer(fields: dict[str, object]) -> JSONResponse:
    return JSONResponse({"version": 1, **fields}, headers=NO_STORE)
