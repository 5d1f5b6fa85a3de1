"""Decides which requests are accepted: requests whose bearer token permits them or, without a configured token,
requests for a trusted host name (against DNS rebinding)."""

from __future__ import annotations

import base64
import ipaddress
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from litelog.server.error_answer import make_error
from litelog.server.permits import CONSUME, PERMIT, READ, STATUS, SYNC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.responses import JSONResponse
    from starlette.types import ASGIApp, Receive, Scope, Send

    from litelog.server.permits import Tokens

MAX_BODY_BYTES = 4096
"""The most bytes of a request's body: it moves a consumer. Client libraries may send a small one with any request."""

PROBES = ("/healthz", "/readyz", "/livez")
"""Paths that anyone may request. Without the token, the answer has no reasons."""

PAGE = "/"
"""The path that people open in a browser. The browser asks for the token as a password (HTTP Basic), and sends it with
each later request. A password is accepted only for reading: another site's page could make the browser send it, too."""

LOGS = "/logs"
"""The path of the served logs, and the beginning of all paths below it."""

DOCUMENT = "/openapi.json"
"""A path that every token may request."""

BARE = "litelog.bare"
"""Key in a request's scope: the answer has no reasons."""

READING = ("GET", "HEAD")
"""Methods that neither change nor start anything. A page of another site may send them, but cannot read the answer."""

MAX_LENGTH_DIGITS = 20

_LENGTH = re.compile("[0-9]+")
_ORIGIN = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<place>(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?)"
)
_PORTS = {"http": ":80", "https": ":443"}
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")


class RequestGuard:
    """ASGI middleware that refuses requests before any handler sees them."""

    def __init__(self, app: ASGIApp, tokens: Tokens | None, hosts: Iterable[str] | None) -> None:
        """``hosts``: allowed names besides the loopback names; None: ignore the Host header (on a unix socket)."""
        self._app = app
        self._tokens = tokens
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refused = self._refuse(scope, headers)
        if refused is not None:
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refuse(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        malformed = _find_malformed(headers)
        if malformed is not None:
            return _error(400, f"the {malformed} header is malformed")
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or len(length) > MAX_LENGTH_DIGITS or int(length) > MAX_BODY_BYTES:
            return _error(413, f"a body has at most {MAX_BODY_BYTES} bytes here, and states its length")
        if self._tokens is not None:
            return self._refuse_unknown(scope, headers, self._tokens)
        return None if self._hosts is None else self._refuse_elsewhere(scope, headers)

    def _refuse_elsewhere(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        if not self._is_ours(headers.get("host", "")):
            return _error(421, "the Host header names another place; see allowed-hosts in the configuration")
        if scope["method"] not in READING and not _is_same_origin(headers):
            return _error(403, "pages of other sites may not send this request")
        return None

    def _refuse_unknown(self, scope: Scope, headers: Headers, tokens: Tokens) -> JSONResponse | None:
        reads = scope["method"] in READING
        permit = tokens.find(_read_token(headers.get("authorization", ""), basic=reads))
        right = _right_for(scope["path"], reads=reads)
        if permit is not None and (right in permit.rights or scope["path"] == DOCUMENT):
            scope[PERMIT] = permit
            return None
        if scope["path"] in PROBES and reads:
            scope[BARE] = True
            return None
        if permit is not None:
            return _error(403, f"the token does not have the right {right!r} (tokens)")
        if scope["path"] == PAGE and reads:
            words = "load this again, and give the token (token-file) as the password, with any user name"
            return _error(401, words, {"www-authenticate": 'Basic realm="litelog", charset="UTF-8"'})
        sent = "authorization" in headers
        words = "the daemon does not have the token that was sent" if sent else "a bearer token is needed"
        return _error(401, f"{words} (token-file, tokens)", {"www-authenticate": 'Bearer realm="litelog"'})

    def _is_ours(self, place: str) -> bool:
        match = _HOST.fullmatch(place)
        if match is None or self._hosts is None:
            return False
        name = match[1].strip("[]").lower()
        if name == "localhost" or name in self._hosts:
            return True
        with suppress(ValueError):
            return ipaddress.ip_address(name).is_loopback
        return False


def _right_for(path: str, *, reads: bool) -> str:
    """The right that a request of the path needs. ``reads``: whether its method is in READING."""
    if path == "/sync":
        return SYNC
    if path != LOGS and not path.startswith(f"{LOGS}/"):
        return STATUS
    return READ if reads else CONSUME


def _find_malformed(headers: Headers) -> str | None:
    """The name of a header that no client may send in this form; None if all are valid."""
    origins = headers.getlist("origin")
    if len(origins) > 1 or not all(map(_is_origin, origins)):
        return "Origin"
    return None if _LENGTH.fullmatch(headers.get("content-length", "0")) else "Content-Length"


def _is_origin(text: str) -> bool:
    """Whether ``text`` has the form that browsers send: a scheme, a host and perhaps a port; or null."""
    match = _ORIGIN.fullmatch(text)
    return match is not None or text == "null"


def _is_same_origin(headers: Headers) -> bool:
    """Whether no browser sent the request, or a page of this server did: one with the same host and port.

    Other programs on this machine may serve pages from other ports.
    """
    if headers.get("sec-fetch-site", "none").lower() not in ("none", "same-origin"):
        return False
    host = headers.get("host", "").lower()
    for origin in headers.getlist("origin"):
        match = _ORIGIN.fullmatch(origin.lower())
        if match is None or match["scheme"] not in _PORTS:
            return False
        port = _PORTS[match["scheme"]]
        if match["place"].removesuffix(port) != host.removesuffix(port):
            return False
    return True


def _read_token(authorization: str, *, basic: bool) -> str:
    """The token in a request; empty if there is none. ``basic``: whether it may be a password, with any user name."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    if not basic or scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(given.strip(), validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return make_error(status, message, {"connection": "close", **(headers or {})})
