"""The answer of the HTTP service to a request that it refuses: JSON, or text for a browser."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from litelog.server.found_reason import escape
from litelog.server.report import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

NO_STORE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


def make_error(status: int, message: str, headers: Mapping[str, str] | None = None, **more: object) -> JSONResponse:
    """The answer: the shape in which verbs print errors, with the status of HTTP in place of the exit code. ``more``:
    further fields of the error."""
    kind = HTTPStatus(status).phrase.lower().replace(" ", "-")
    error = {"kind": kind, "message": escape(message), "http_status": status, **more}
    return JSONResponse({"version": VERSION, "error": error}, status, {**NO_STORE, **(headers or {})})


def answer_unrouted(request: Request, error: Exception) -> Response:
    """The answer to a path or a method that does not exist here."""
    if not isinstance(error, HTTPException):
        raise error
    path = escape(request.scope["path"])
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = sorted((error.headers or {}).get("Allow", "").split(", "))
        said = f"{path} does not take {request.method}, but {' and '.join(allowed)}"
    elif error.status_code == HTTPStatus.NOT_FOUND:
        said = f"{path} is not here; the page is at /, and the status at /status"
    else:
        said = error.detail
    if "text/html" in request.headers.get("accept", ""):
        return PlainTextResponse(f"{said}\n", error.status_code, {**NO_STORE, **(error.headers or {})})
    return make_error(error.status_code, said, error.headers)
