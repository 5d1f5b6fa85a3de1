"""The HTTP store: the replica of a log as its daemon gives it to other machines. It is read, and never written.

``http://HOST:PORT/logs/NAME`` is a log that a daemon serves (``serve`` in its configuration). The daemon answers from
the log's first replica, and reports at once when a WAL segment is there: a follower does not poll.
"""

from __future__ import annotations

import io
import json
import re
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, unquote, urlencode, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, ProtocolError, SSLError

from litelog.errors import ConfigError, NotFoundError, StoreError
from litelog.objects.wal_stream import BEFORE_HEADER, SEGMENT_HEADER, MirrorEnd, StreamError, read_stream
from litelog.stores.object_store import ByteRange, NotSupportedError, ObjectInfo, require_key, require_prefix
from litelog.system.tokens import read_token
from replica_clients.tls_errors import explain_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

    from typing_extensions import Buffer
    from urllib3 import BaseHTTPResponse

    from litelog.objects.position import Position
    from litelog.objects.wal_segment import WalSegment

OPTIONS = ("token", "token_file", "ca_bundle", "connect_timeout", "read_timeout", "connections")
"""The options: the daemon's token, or a file with it; a file of certificates to trust; seconds; idle connections."""

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
CONNECTIONS = 64

ANSWER_SECONDS = 5.0
"""How late the answer to a request that waits for a mirror may be."""

PAGE_KEYS = 1000
"""How many keys a page of a listing has."""

MAX_MESSAGE_BYTES = 64 << 10
"""How much of an error's body is read."""

_RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
_UNANSWERED = {301, 302, 303, 307, 308}
_LOG = re.compile(r"/(?:.*/)?logs/[^?#]+")


def open_store(url: str, options: Mapping[str, object]) -> HttpStore:
    """Open the replica of a served log. Makes no request.

    Args:
        url: ``http://`` or ``https://``, host, port and ``/logs/NAME``.
        options: Those of OPTIONS.

    Raises:
        ConfigError: The URL names no served log, or holds a secret; an option is unknown or invalid.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(f"{parts.scheme}://: a URL takes no user, query or secret: put the token into the options")
    if not parts.hostname or not _LOG.fullmatch(parts.path):
        raise ConfigError(f"{url}: not a served log; write {parts.scheme}://HOST:PORT/logs/NAME")
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise ConfigError(f"{parts.scheme}:// takes no option {unknown[0]} (it takes {', '.join(OPTIONS)})")
    return HttpStore(url.rstrip("/"), partial(_read_token, options), _make_timeout(options), _make_pool(options))


class _ConflictError(StoreError):
    """The daemon has another state than the request states."""


class HttpStore:
    """The objects of a served log's replica. Several threads call it at once. Each request is attempted once."""

    enforces_create_only = True
    read_only = "a log that a daemon serves is read only; name the folder or store to write the replica to"

    def __init__(
        self, url: str, read_token: Callable[[], str | None], timeout: urllib3.Timeout, pool: urllib3.PoolManager
    ) -> None:
        """``read_token``: returns the token. It is called again after a 401: the token's file may have another one."""
        self.url = url
        self._pool = pool
        self._connect_seconds = cast("float", timeout.connect_timeout)
        self._read_seconds = cast("float", timeout.read_timeout)
        self._read_token = read_token
        self._token = read_token()

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:  # noqa: ARG002
        require_key(key)
        raise self._refuse_writing("put", key)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            require_key(key)
            raise self._refuse_writing("delete", key)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        require_key(key)
        headers = dict[str, str]()
        if byte_range is not None:
            if byte_range.length == 0:
                self._request("HEAD", key, f"/replica/{quote(key)}").release_conn()
                return io.BytesIO()
            last = "" if byte_range.length is None else byte_range.start + byte_range.length - 1
            headers["range"] = f"bytes={byte_range.start}-{last}"
        answer = self._request("GET", key, f"/replica/{quote(key)}", headers)
        if answer.status == 416:
            answer.drain_conn()
            return io.BytesIO()
        return cast("BinaryIO", _Stream(key, answer))

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        require_prefix(prefix)
        return self._walk(prefix, start_after)

    def _walk(self, prefix: str, start_after: str | None) -> Iterator[ObjectInfo]:
        while True:
            query = {"prefix": prefix, "limit": str(PAGE_KEYS)}
            if start_after is not None:
                query["start-after"] = start_after
            page = self._read_page(prefix, f"/replica?{urlencode(query)}")
            yield from page
            if len(page) < PAGE_KEYS:
                return
            start_after = page[-1].key

    def _read_page(self, prefix: str, path: str) -> Sequence[ObjectInfo]:
        answer = self._request("GET", prefix, path, operation="list")
        try:
            found = json.loads(answer.data)["objects"]
            return [ObjectInfo(str(key), int(size)) for key, size in found]
        except (HTTPError, ValueError, KeyError, TypeError) as error:
            raise StoreError("list", prefix, f"the answer is not a listing: {error}") from error

    def list_logs(
        self, revision: str | None = None, seconds: float = 0.0
    ) -> tuple[str | None, Sequence[tuple[str, str]]]:
        base, _, pattern = self.url.partition("/logs/")
        query = "" if revision is None else f"?{urlencode({'revision': revision, 'wait': f'{seconds:.3f}s'})}"
        answer = self._send("GET", "list", "logs", query, url=f"{base}/logs", read_seconds=seconds + ANSWER_SECONDS)
        if answer.status != 200:
            raise self._refusal("list", "logs", answer)
        try:
            found = json.loads(answer.data)
            names = [str(log["name"]) for log in found["logs"]]
            now = str(found.get("revision", "")) or None
        except (HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError("list", "logs", f"the answer is not a list of logs: {error}") from error
        matching = (name for name in names if fnmatchcase(name, unquote(pattern)))
        return now, [(name, f"{base}/logs/{quote(name)}") for name in matching]

    def list_consumers(self) -> Sequence[str]:
        found = self._ask_consumer("GET", "list", "").get("consumers")
        try:
            return [str(each["consumer"]) for each in cast("Any", found)]
        except (KeyError, TypeError) as error:
            raise StoreError("list", "consumers", f"the answer is not a list of consumers: {error}") from error

    def read_consumer(self, name: str) -> Mapping[str, object] | None:
        try:
            return self._ask_consumer("GET", "read", name)
        except NotFoundError:
            return None

    def move_consumer(self, name: str, fields: Mapping[str, object]) -> Mapping[str, object] | None:
        body = json.dumps(fields).encode()
        try:
            return self._ask_consumer("PUT", "move", name, body)
        except _ConflictError:
            return None
        except NotFoundError as error:
            raise StoreError("move", f"consumer {name}", "this daemon keeps no consumers", retryable=False) from error

    def delete_consumer(self, name: str) -> bool:
        return self._ask_consumer("DELETE", "delete", name).get("deleted") is True

    def find_folder_id(self) -> str | None:
        found = self._ask("GET", "look at", "the log", "").get("folder_id")
        return None if found is None else str(found)

    def _ask_consumer(self, method: str, operation: str, name: str, body: bytes | None = None) -> Mapping[str, object]:
        """The fields of the answer about a consumer, or about all without a name."""
        what = f"consumer {name}" if name else "consumers"
        return self._ask(method, operation, what, f"/consumers/{quote(name)}" if name else "/consumers", body)

    def _ask(
        self, method: str, operation: str, what: str, path: str, body: bytes | None = None
    ) -> Mapping[str, object]:
        """The fields of the answer, a JSON object. Raises _ConflictError for 409."""
        answer = self._send(method, operation, what, path, body=body)
        if answer.status == 409:
            raise _ConflictError(operation, what, _read_message(answer), retryable=False)
        if answer.status != 200:
            raise self._refusal(operation, what, answer)
        try:
            found = json.loads(answer.data)
            if isinstance(found, dict):
                return found
        except (HTTPError, ValueError) as error:
            raise StoreError(operation, what, f"the answer is not JSON: {error}") from error
        raise StoreError(operation, what, "the answer is not a JSON object")

    def wait_for(self, key: str, seconds: float) -> None:
        """Return once the object is there, after ``seconds`` at the latest. Raises StoreError."""
        require_key(key)
        path = f"/replica/{quote(key)}?wait={seconds:.3f}s"
        try:
            self._request("HEAD", key, path, read_seconds=seconds + self._read_seconds).release_conn()
        except NotFoundError:
            return

    def wait_for_mirror(self, sequence: int, seconds: float) -> int | None:
        """The sequence that a mirror has come to, once it is that one, or after ``seconds``. Raises StoreError."""
        path = f"/mirrors?{urlencode({'sequence': sequence, 'wait': f'{seconds:.3f}s'})}"
        answer = self._send("GET", "wait for", "a mirror", path, read_seconds=seconds + ANSWER_SECONDS)
        if answer.status != 200:
            raise self._refusal("wait for", "a mirror", answer)
        try:
            found = json.loads(answer.data)["next"]
            return None if found is None else int(found)
        except (HTTPError, ValueError, KeyError, TypeError) as error:
            raise StoreError("wait for", "a mirror", f"the answer does not say where it is: {error}") from error

    def stream_wal(
        self, position: Position, seconds: float, limit: int, mirror: str | None, before: MirrorEnd | None
    ) -> Iterator[WalSegment | StreamError]:
        """Yield the log's WAL segments as the daemon has them, and then the reason if the stream ended early."""
        named = {} if mirror is None else {"mirror": mirror}
        query = urlencode({"from": str(position), "wait": f"{seconds:.3f}s", "limit": limit, **named})
        until = seconds + self._read_seconds
        answer = self._send("GET", "stream", str(position), f"/wal?{query}", _headers_of(before), read_seconds=until)
        if answer.status in (409, 410):
            yield StreamError(answer.status, _read_message(answer))
            return
        if answer.status != 200:
            raise self._refusal("stream", str(position), answer)
        stream = _Stream(str(position), answer)
        try:
            yield from read_stream(self.url, cast("BinaryIO", stream))
            answer.drain_conn()  # the connection serves the next request
        finally:
            stream.close()

    def close(self) -> None:
        self._pool.clear()

    def _request(
        self,
        method: str,
        key: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        *,
        operation: str = "",
        read_seconds: float | None = None,
    ) -> BaseHTTPResponse:
        """Send a request. Returns its answer, whose body is not read yet, if it has what was asked for."""
        operation = operation or ("open" if method == "GET" else "wait for")
        answer = self._send(method, operation, key, path, headers, read_seconds=read_seconds)
        if answer.status in (200, 206, 416):
            return answer
        raise self._refusal(operation, key, answer)

    def _send(
        self,
        method: str,
        operation: str,
        key: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        *,
        read_seconds: float | None = None,
        url: str | None = None,
        body: bytes | None = None,
    ) -> BaseHTTPResponse:
        """Send a request to ``url``, by default that of the log. Returns its answer, whatever its status is."""
        seconds = self._read_seconds if read_seconds is None else read_seconds
        timeout = urllib3.Timeout(connect=self._connect_seconds, read=seconds)
        for is_last in (False, True):
            token = self._token
            try:
                answer = self._pool.request(
                    method,
                    (url or self.url) + path,
                    headers={**(headers or {}), **({} if token is None else {"authorization": f"Bearer {token}"})},
                    body=body,
                    preload_content=False,
                    redirect=False,
                    timeout=timeout,
                )
            except HTTPError as error:
                said, retryable = _explain(self.url, error)
                raise StoreError(operation, key, said, retryable=retryable) from error
            if is_last or answer.status != 401 or not self._has_other_token(token):
                break
            answer.drain_conn()
        return answer

    def _has_other_token(self, refused: str | None) -> bool:
        """Whether there is another token than the one that was refused, as its file was written again."""
        if self._token == refused:  # no other thread has read the new one
            with suppress(ConfigError):  # it is being written
                self._token = self._read_token()
        return self._token != refused

    def _refusal(self, operation: str, key: str, answer: BaseHTTPResponse) -> StoreError | NotFoundError:
        said = _read_message(answer)
        if answer.status == 404 and "is served here" not in said:
            return NotFoundError(key)
        reason = f"{answer.status}: {said}" if said else f"the server answers {answer.status}"
        if answer.status in _UNANSWERED:
            reason = f"the server redirects to {answer.headers.get('location', 'another place')} instead of answering"
        after = answer.headers.get("retry-after", "")
        return StoreError(
            operation,
            key,
            reason,
            retryable=answer.status in _RETRYABLE,
            retry_after=float(after) if after.isdigit() else None,
        )

    def _refuse_writing(self, operation: str, key: str) -> NotSupportedError:
        return NotSupportedError(operation, key, f"{self.url} is read over HTTP, and cannot be written")


class _Stream(io.RawIOBase):
    """The body of an answer."""

    def __init__(self, key: str, answer: BaseHTTPResponse) -> None:
        self._key = key
        self._answer = answer

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Read ``size`` bytes; fewer at the end. Raises StoreError."""
        pieces: list[bytes] = []
        left = size if size >= 0 else None
        try:
            while left is None or left > 0:
                piece = self._answer.read(left)
                if not piece:
                    break
                pieces.append(piece)
                left = None if left is None else left - len(piece)
        except HTTPError as error:
            raise StoreError("read", self._key, _describe(error)) from error
        return b"".join(pieces)

    def close(self) -> None:
        self._answer.close()
        self._answer.release_conn()
        super().close()


def _headers_of(before: MirrorEnd | None) -> Mapping[str, str]:
    """The headers that state what a mirror has before its position."""
    before = before or MirrorEnd()
    stated = {BEFORE_HEADER: before.digest, SEGMENT_HEADER: before.segment}
    return {name: str(value) for name, value in stated.items() if value is not None}


def _read_message(answer: BaseHTTPResponse) -> str:
    try:
        body = answer.read(MAX_MESSAGE_BYTES)
        answer.drain_conn()
        return str(json.loads(body)["error"]["message"])
    except (HTTPError, ValueError, KeyError, TypeError):
        return ""


def _explain(url: str, error: HTTPError) -> tuple[str, bool]:
    """The reason why a request was not answered, and whether a retry may succeed."""
    said = _describe(error)
    cause = getattr(error, "reason", None) or error
    if not isinstance(cause, SSLError):
        cut_off = url.startswith("http:") and isinstance(cause, ProtocolError)
        return (f"{said}; if the daemon speaks TLS, write https://" if cut_off else said), True
    where = "{0.scheme}://{0.netloc}".format(urlsplit(url))
    return explain_tls(where, str(cause), "check its certificate, or set the option ca_bundle")


def _describe(error: HTTPError) -> str:
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, ProtocolError) and str(reason.args[0]).startswith("Connection broken"):
        return "the connection broke off in the middle of the answer"
    return str(reason).rpartition(": ")[2] or type(error).__name__


def _read_token(options: Mapping[str, object]) -> str | None:
    token, file = options.get("token"), options.get("token_file")
    if token is not None and file is not None:
        raise ConfigError("give token or token_file, not both")
    if file is not None:
        return read_token(str(file))
    return str(token) if token else None


def _make_timeout(options: Mapping[str, object]) -> urllib3.Timeout:
    return urllib3.Timeout(
        connect=_read_number(options, "connect_timeout", CONNECT_SECONDS),
        read=_read_number(options, "read_timeout", READ_SECONDS),
    )


def _make_pool(options: Mapping[str, object]) -> urllib3.PoolManager:
    connections = _read_number(options, "connections", CONNECTIONS)
    return urllib3.PoolManager(
        num_pools=2,
        maxsize=int(connections),
        retries=False,
        ca_certs=None if options.get("ca_bundle") is None else str(options["ca_bundle"]),
        cert_reqs="CERT_REQUIRED",
    )


def _read_number(options: Mapping[str, object], name: str, default: float) -> float:
    value = options.get(name, default)
    try:
        number = float(cast("Any", value))
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(value, bool) or not 0 < number < 1e6:
        raise ConfigError(f"{name}: {value!r} is not a number above 0")
    return number
