"""The errors of requests under ``/logs``: their HTTP status, the answer, and the fields at the end of a stream.

Specified in litelog/live/README.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import (
    ConfigError,
    ConsumerMovedError,
    CorruptionError,
    NotFoundError,
    NotYetAvailableError,
    OffsetJumpError,
    PrunedError,
    SourceMissingError,
    StoreError,
)
from litelog.live.buffer_news import ForkedError
from litelog.live.log_consumers import UnknownConsumerError
from litelog.live.past_runs import GoneError
from litelog.live.served_logs import TooManyReadersError, UnknownLogError
from litelog.server.error_answer import make_error
from litelog.server.log_requests import BadRequestError, NotAcceptableError
from litelog.server.permits import RevokedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import JSONResponse

    from litelog.errors import LitelogError

STATUS: Mapping[type[Exception], int] = {
    BadRequestError: 400,
    NotAcceptableError: 406,
    UnknownLogError: 404,
    UnknownConsumerError: 404,
    RevokedError: 401,
    TooManyReadersError: 429,
    ConsumerMovedError: 409,
    OffsetJumpError: 410,
    PrunedError: 410,
    ForkedError: 409,
    NotYetAvailableError: 503,
    SourceMissingError: 503,
    NotFoundError: 404,
    StoreError: 502,
    CorruptionError: 500,
    ConfigError: 400,
    ValueError: 400,
}
"""The HTTP status of an error. A subclass has that of its nearest base. ValueError: no object can have that key."""


def error_fields(error: LitelogError) -> dict[str, object]:
    """An error in the middle of a stream, as JSON values."""
    return {"message": str(error), "http_status": status_of(error), **_more(error)}


def answer_error(error: LitelogError | ValueError) -> JSONResponse:
    """The answer to a request that cannot be served."""
    status = status_of(error)
    headers = {"retry-after": "1"} if status in (429, 502, 503) else None
    return make_error(status, str(error), headers, **_more(error))


def status_of(error: LitelogError | ValueError) -> int:
    """The HTTP status of an error."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def _more(error: LitelogError | ValueError) -> dict[str, object]:
    if isinstance(error, OffsetJumpError | ConsumerMovedError):
        return {"next": error.next}
    return {"next_position": error.next} if isinstance(error, GoneError) else {}
