"""Parses requests under ``/logs``: parameters of the query, the range, the encoding.

Specified in litelog/live/README.md.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

from litelog.codec.decoding import parse_json, require_fields
from litelog.dataclass import dataclass
from litelog.errors import ConfigError, LitelogError
from litelog.formats.columns import NAMES
from litelog.formats.log_format import MAX_SEQUENCE
from litelog.live.encoding import ENCODINGS, RecordEncoding
from litelog.live.record_feed import RecordRequest
from litelog.live.served_logs import unknown_log
from litelog.live.wal_feed import WalRequest
from litelog.log.read_bounds import ReadBounds
from litelog.objects.consumer_position import LIMITS, read_evidence, read_move
from litelog.objects.fields import number, optional
from litelog.objects.layout import MAX_REVISION
from litelog.objects.position import Position
from litelog.objects.wal_stream import BEFORE_HEADER, DIGEST, SEGMENT_HEADER, MirrorEnd, SegmentBefore
from litelog.server.permits import permit_of
from litelog.stores.object_store import ByteRange
from litelog.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from starlette.requests import Request

    from litelog.log.read_bounds import Start
    from litelog.objects.consumer_position import Evidence
    from litelog.objects.fields import Reader
    from litelog.server.permits import Permit

MAX_WAIT_SECONDS = 600.0
"""The longest ``wait``."""

_RANGE = re.compile("bytes=([0-9]{1,18})-([0-9]{1,18})?")

LOGS_PARAMETERS = ("revision", "wait")
"""Parameters of the list of logs."""

PARAMETERS = ("from", "to", "follow", "wait", "limit", "columns")
"""Parameters of ``records``."""

CONSUMER = "consumer:"
"""``from`` has a consumer's name after this."""

WAL_PARAMETERS = ("from", "follow", "wait", "limit", "mirror")
"""Parameters of ``wal``."""

MIRRORS_PARAMETERS = ("sequence", "wait")
"""Parameters of ``mirrors``."""

MIRROR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}")
"""The name of a mirror."""

MOVE_FIELDS: Mapping[str, Reader[Any]] = {
    "revision": optional(number(0, MAX_REVISION + 1)),
    "next": optional(number(0, MAX_SEQUENCE + 1)),
    "evidence": optional(read_evidence),
    "move": optional(read_move),
}
"""The fields of the body that moves a consumer."""


class BadRequestError(LitelogError):
    """A parameter of the request is unknown or invalid."""


class NotAcceptableError(BadRequestError):
    """The daemon has no encoding that the request accepts."""


def read_request(request: Request) -> RecordRequest:
    """Return the records that a request asks for. Raises BadRequestError for an unknown or invalid parameter."""
    query = request.query_params
    _require_known(query, PARAMETERS)
    given, consumer = query.get("from", "earliest"), None
    if given.startswith(CONSUMER):
        given, consumer = "earliest", given.removeprefix(CONSUMER)
    start, start_time = _read_start(given)
    if (seen := request.headers.get("last-event-id")) is not None:
        start, start_time, consumer = read_number("Last-Event-ID", seen) + 1, None, None
    wait = read_wait(query.get("wait", "0s"))
    return RecordRequest(
        start,
        read_number("to", query["to"]) if "to" in query else None,
        _read_switch("follow", query.get("follow", "false")),
        wait,
        read_number("limit", query["limit"]) if "limit" in query else None,
        consumer,
        start_time,
    )


def may_read(permit: Permit | None, name: str) -> bool:
    """Whether a served log may be read. ``permit``: None if the daemon needs no token."""
    return permit is None or permit.reads(name)


def revision_of(names: Iterable[str]) -> str:
    """The revision of a list of logs: it changes when the names change."""
    return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()[:16]


def read_logs_request(request: Request) -> tuple[str | None, float]:
    """Return the revision of the list that the client has, None for none, and how many seconds to wait for another one.
    Raises BadRequestError for an unknown or invalid parameter."""
    query = request.query_params
    _require_known(query, LOGS_PARAMETERS)
    revision, seconds = query.get("revision"), read_wait(query.get("wait", "0s"))
    if "wait" in query and revision is None:
        raise BadRequestError("wait: needs the revision of an earlier answer")
    return revision, seconds


def name_of_log(request: Request) -> str:
    """The log that a request names. Raises UnknownLogError, as for a log that is not there, if its token does not
    permit to read it."""
    name: str = request.path_params["log"]
    if not may_read(permit_of(request), name):
        raise unknown_log(name)
    return name


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """The position to which a request moves a consumer."""

    revision: int | None
    """The revision that its position has; None: any."""
    next: int | None
    evidence: Evidence | None
    move: str | None


def read_move_request(body: bytes) -> MoveRequest:
    """Return the move that a request's body states. Raises BadRequestError."""
    try:
        fields = require_fields(parse_json(body, LIMITS))
        _require_known(fields, MOVE_FIELDS)
        return MoveRequest(**{name: reader(name, fields.get(name)) for name, reader in MOVE_FIELDS.items()})
    except (ValueError, RecursionError) as error:
        raise BadRequestError(
            f'the body must be a JSON object, such as {{"next": 5, "revision": 1}}: {error}'
        ) from None


def read_wal_request(request: Request) -> WalRequest:
    """Return the WAL segments that a request asks for. Raises BadRequestError for an unknown or invalid parameter."""
    query = request.query_params
    _require_known(query, WAL_PARAMETERS)
    if "from" not in query:
        raise BadRequestError("from: is needed: a position, such as acknowledged_position of the log")
    try:
        position = Position.parse_given(query["from"])
    except ValueError as error:
        raise BadRequestError(f"from: {error}") from None
    return WalRequest(
        position,
        _read_switch("follow", query.get("follow", "false")),
        read_wait(query.get("wait", "0s")),
        read_number("limit", query["limit"]) if "limit" in query else None,
        _read_mirror(query.get("mirror")),
        _read_before(request.headers),
    )


def read_mirrors_request(request: Request) -> tuple[int, float]:
    """Return the sequence that a mirror has to come to, and how many seconds to wait for that. Raises BadRequestError
    for an unknown or invalid parameter."""
    query = request.query_params
    _require_known(query, MIRRORS_PARAMETERS)
    return read_number("sequence", query.get("sequence", "0")), read_wait(query.get("wait", "0s"))


def require_no_parameters(request: Request) -> None:
    """Raise BadRequestError if a request has parameters."""
    _require_known(request.query_params, ())


def _read_mirror(name: str | None) -> str | None:
    if name is not None and not MIRROR.fullmatch(name):
        raise BadRequestError("mirror: write up to 200 letters, digits, dots, colons, slashes, - and _")
    return name


def _read_before(headers: Mapping[str, str]) -> MirrorEnd:
    digest, segment = headers.get(BEFORE_HEADER), headers.get(SEGMENT_HEADER)
    if digest is not None and not DIGEST.fullmatch(digest):
        raise BadRequestError(f"{BEFORE_HEADER}: must be a SHA-256 in hex")
    try:
        return MirrorEnd(digest, None if segment is None else SegmentBefore.parse(segment))
    except ValueError as error:
        raise BadRequestError(f"{SEGMENT_HEADER}: {error}") from None


def _require_known(query: Iterable[str], known: Collection[str]) -> None:
    unknown = sorted(set(query) - set(known))
    if unknown:
        raise BadRequestError(f"{unknown[0]}: no such parameter; known: {', '.join(known) or 'none'}")


def read_wait(text: str) -> float:
    """Return the seconds to wait. Raises BadRequestError for anything but a duration of at most MAX_WAIT_SECONDS."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise BadRequestError(f"wait: {error}") from None
    if seconds > MAX_WAIT_SECONDS:
        raise BadRequestError(f"wait: must be at most {MAX_WAIT_SECONDS:g}s")
    return seconds


def read_range(text: str | None) -> ByteRange | None:
    """Return the bytes that a Range header asks for; None for all.

    Raises BadRequestError for anything but one range that states its first byte.
    """
    if text is None:
        return None
    match = _RANGE.fullmatch(text)
    if match is None or (match[2] and int(match[2]) < int(match[1])):
        raise BadRequestError("Range: must be bytes=FIRST-LAST or bytes=FIRST-")
    first = int(match[1])
    return ByteRange(first, int(match[2]) - first + 1 if match[2] else None)


def choose_encoding(request: Request) -> RecordEncoding:
    """Return the encoding that the Accept header asks for.

    Raises BadRequestError for an unknown column, NotAcceptableError if Accept names none of the encodings, and
    ConfigError if pyarrow is missing.
    """
    given = request.query_params.get("columns")
    names = NAMES if given is None else [name for name in NAMES if name in given.split(",")]
    if given is not None and sorted(given.split(",")) != sorted(names):
        raise BadRequestError(f"columns: {given}: write one or more of {', '.join(NAMES)}")
    accepted = [each.partition(";")[0].strip().lower() for each in request.headers.get("accept", "*/*").split(",")]
    for wanted in accepted:
        for kind, make in ENCODINGS.items():
            if wanted in (kind, f"{kind.partition('/')[0]}/*", "*/*", ""):
                return make(names)
    raise NotAcceptableError(f"Accept names none of {', '.join(ENCODINGS)}")


def _read_start(text: str) -> tuple[int | Start, int | None]:
    """(the sequence or the word, the time instead of it)."""
    if text.isascii() and text.isdigit():
        return read_number("from", text), None
    try:
        bounds = ReadBounds.of(text, None, None, None)
    except ConfigError as error:
        said = str(error).replace("start: ", "from: ", 1)
        raise BadRequestError(f"{said}, or consumer:NAME") from None
    return bounds.start, bounds.start_time


def read_number(name: str, text: str) -> int:
    """Return a parameter that is a sequence or a count. Raises BadRequestError for anything else."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > MAX_SEQUENCE:
        raise BadRequestError(f"{name}: {text} is not a whole number up to {MAX_SEQUENCE}")
    return int(text)


def _read_switch(name: str, text: str) -> bool:
    if text not in ("true", "false", "1", "0", ""):
        raise BadRequestError(f"{name}: must be true or false")
    return text in ("true", "1", "")
