"""An HTTP proxy in front of an S3 server. It makes requests fail before or after the server has applied them."""

from __future__ import annotations

import hashlib
import re
import select
import socket
import struct
import threading
from collections import Counter, deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HANG_SECONDS = 20.0
"""The longest time that a request hangs. The tests' clients give up long before, which ends the request."""

SERVER_SECONDS = 30.0
"""The timeout of a request to the server. No request of a test takes as long."""

MAX_REMEMBERED = 100_000
"""How many requests the proxy remembers: the newest ones."""

_ELEMENT = re.compile(rb"<[^<>]*>")
_NUMBER = re.compile(rb"<(?:Size|LastModified)>([^<>]+)<")
_DIGIT_TO_LETTER = 6
"""The bit that turns a digit into a letter from ``p`` to ``y``."""

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "date", "server"}


class Fault(Enum):
    """A fault of one request."""

    SLOW_DOWN = "503 SlowDown"
    INTERNAL_ERROR = "500 InternalError"
    TOO_MANY_REQUESTS = "429 TooManyRequests"
    CONFLICT = "409 ConditionalRequestConflict"
    RESET = "reset"
    HANG = "hang"
    TRUNCATE = "truncated body"
    """The answer ends early. Only for answers with a body."""
    FLIP = "flipped bit"
    """One bit of the answer's body is wrong.

    In an object, it is any bit. In a listing, it is a bit of the markup, or a bit of a size or a time that turns a
    digit into a letter: the client then cannot parse the listing, or reads the same from it. The keys and words of a
    listing are left alone: a listing with a wrong key is well-formed, and only TLS protects against it."""


class When(Enum):
    """When the fault happens."""

    BEFORE = "before"
    """The server never sees the request."""
    AFTER = "after"
    """The server has applied the request, and its answer is lost."""
    LATE = "late"
    """A hang: the server sees the request after the client has given up."""


BODY_FAULTS = frozenset({Fault.TRUNCATE, Fault.FLIP})
EVERY_FAULT = (
    *((fault, when) for fault in Fault if fault not in BODY_FAULTS for when in (When.BEFORE, When.AFTER)),
    *((fault, When.AFTER) for fault in Fault if fault in BODY_FAULTS),
)
"""All kinds of faults, each before and after the server applies the request. A body is damaged only after."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the proxy saw it."""

    number: int
    operation: str
    """PUT, GET, LIST, HEAD, DELETE or POST."""
    key: str
    """The key, without the bucket."""
    digest: str
    """SHA-256 of the body, hex."""
    create_only: bool
    fault: Fault | None
    when: When | None


@dataclass(frozen=True, slots=True)
class _Planned:
    """The plan for one request."""

    fault: Fault | None
    when: When
    meanwhile: Callable[[], None] | None
    key_part: str


class Plan:
    """Plans the faults: by a script (for the next request of an operation), otherwise at random from a seed."""

    def __init__(self, retry_after: int = 1) -> None:
        self.retry_after = retry_after
        """The seconds that a 429 asks the client to wait."""
        self.enabled = True
        """Whether random faults are injected. The script is followed in either case."""
        self._script: dict[str, deque[_Planned]] = {}
        self._numbered: dict[int, Callable[[], None]] = {}
        self._taken = 0
        self._rate = 0.0
        self._faults: Sequence[tuple[Fault, When]] = EVERY_FAULT
        self._random = Random(0)
        self._decks: dict[str, list[tuple[Fault, When]]] = {}
        self._lock = threading.Lock()

    def next(
        self,
        operation: str,
        fault: Fault | None,
        when: When = When.BEFORE,
        *,
        times: int = 1,
        key_part: str = "",
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Make the next ``times`` requests of ``operation`` fail; with ``key_part``, only those to keys that hold it.

        ``meanwhile`` is called before the request reaches the server. Without a fault, nothing else happens.
        """
        planned = _Planned(fault, when, meanwhile, key_part)
        with self._lock:
            self._script.setdefault(operation, deque()).extend([planned] * times)

    def at_random(self, rate: float, seed: int, faults: Sequence[tuple[Fault, When]] = EVERY_FAULT) -> None:
        """Make a share of the requests fail that no script names.

        For each operation, all kinds of faults come in turn. After each turn their order is shuffled again."""
        with self._lock:
            self._rate, self._faults, self._random = rate, faults, Random(seed)
            self._decks.clear()

    def at_request(self, number: int, meanwhile: Callable[[], None]) -> None:
        """Call ``meanwhile`` while request ``number`` is on its way. The first request, of any operation, is 0."""
        with self._lock:
            self._numbered[number] = meanwhile

    @property
    def unused(self) -> int:
        """How many scripted faults have not happened yet."""
        with self._lock:
            return sum(len(planned) for planned in self._script.values())

    def take(self, operation: str, key: str) -> _Planned | None:
        """Take the plan for this request; None if the request is forwarded unchanged."""
        with self._lock:
            self._taken += 1
            if (meanwhile := self._numbered.pop(self._taken - 1, None)) is not None:
                return _Planned(None, When.BEFORE, meanwhile, "")
            for planned in (script := self._script.get(operation, deque[_Planned]())):
                if planned.key_part in key:
                    script.remove(planned)
                    return planned
            if not self.enabled or self._random.random() >= self._rate:
                return None
            deck = self._decks.setdefault(operation, [])
            if not deck:
                deck.extend(pair for pair in self._faults if _fits(pair[0], operation))
                self._random.shuffle(deck)
            return _Planned(*deck.pop(), None, "") if deck else None

    def pick(self, limit: int) -> int:
        """A number below ``limit``."""
        with self._lock:
            return self._random.randrange(limit)


def _fits(fault: Fault, operation: str) -> bool:
    if fault is Fault.CONFLICT:
        return operation in {"PUT", "POST"}  # S3 gives this answer only to a conditional write
    return fault not in BODY_FAULTS or operation in {"GET", "LIST"}


class FaultProxy:
    """One proxy. It counts under its lock, so its counts are consistent at any time."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self.plan = Plan()
        self.dropped_headers: set[str] = set()
        """Request headers, in lower case, that the proxy does not forward."""
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._lock = threading.Lock()
        self._requests: deque[Request] = deque(maxlen=MAX_REMEMBERED)
        self._operations: Counter[str] = Counter()
        self._injected: Counter[tuple[str, Fault, When]] = Counter()
        self._refused = 0
        self._down = False
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="fault proxy")
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """The URL that a client uses instead of the server's."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop the proxy, and end the requests that hang."""
        self._server.shutdown()
        self._server.reset_all()
        self._server.server_close()
        self._thread.join()

    def go_down(self) -> None:
        """Reset every connection, present and future."""
        with self._lock:
            self._down = True
        self._server.reset_all()

    def come_back(self) -> None:
        """End the outage."""
        with self._lock:
            self._down = False

    def refuses(self) -> bool:
        """Whether there is an outage. If there is, one more refused request or connection is counted."""
        with self._lock:
            self._refused += self._down
            return self._down

    @property
    def refused(self) -> int:
        """Connections and requests that an outage reset."""
        with self._lock:
            return self._refused

    @property
    def requests(self) -> list[Request]:
        """The requests, in the order in which they came."""
        with self._lock:
            return list(self._requests)

    @property
    def operations(self) -> Counter[str]:
        """Requests by operation, with those that failed. Requests during an outage are not counted."""
        with self._lock:
            return Counter(self._operations)

    @property
    def injected(self) -> Counter[tuple[str, Fault, When]]:
        """Faults by operation, kind and time."""
        with self._lock:
            return Counter(self._injected)

    def injected_of(self, fault: Fault) -> int:
        """Faults of one kind."""
        return sum(count for (_, kind, _), count in self.injected.items() if kind is fault)

    def reset_counts(self) -> None:
        """Set the counts to zero."""
        with self._lock:
            self._requests.clear()
            self._operations.clear()
            self._injected.clear()
            self._refused = 0

    def note(self, operation: str, key: str, body: bytes, create_only: bool, planned: _Planned | None) -> None:
        """Count a request and its fault."""
        digest = hashlib.sha256(body).hexdigest()
        with self._lock:
            fault = planned.fault if planned else None
            when = planned.when if planned and fault else None
            number = self._operations.total() + 1
            self._operations[operation] += 1
            self._requests.append(Request(number, operation, key, digest, create_only, fault, when))
            if fault is not None and when is not None and fault not in BODY_FAULTS:
                self._injected[operation, fault, when] += 1

    def note_damage(self, operation: str, fault: Fault) -> None:
        """Count a fault in a body, after the answer proved to have one."""
        with self._lock:
            self._injected[operation, fault, When.AFTER] += 1

    def forward(self, method: str, target: str, headers: dict[str, str], body: bytes) -> _Answer:
        """Send a request to the server; return its answer."""
        sent = {name: value for name, value in headers.items() if name.lower() not in self.dropped_headers}
        connection = HTTPConnection(*self._upstream, timeout=SERVER_SECONDS)
        try:
            connection.request(method, target, body or None, sent)
            answer = connection.getresponse()
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP]
            return _Answer(answer.status, answer.reason, kept, answer.read())
        finally:
            connection.close()


@contextmanager
def fault_proxy(upstream: str) -> Iterator[FaultProxy]:
    """A proxy in front of the server at the URL ``upstream``, on a free port."""
    proxy = FaultProxy(upstream)
    try:
        yield proxy
    finally:
        proxy.close()


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Connection)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        if self.proxy.refuses():
            self.make_reset(request)
            return False
        with self._lock:
            self._open.add(request)
        return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        request.close()

    def make_reset(self, connection: socket.socket) -> None:
        """Make a later close send a reset, instead of an orderly end."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def reset_all(self) -> None:
        """End every connection: the thread of each wakes up and closes it."""
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    self.make_reset(connection)
                    connection.shutdown(socket.SHUT_RD)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not report clients that disconnected during an answer."""


class _Connection(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_one_request(self) -> None:
        with suppress(ConnectionError):
            super().handle_one_request()
            return
        self.close_connection = True

    def do_PUT(self) -> None:
        self._serve()

    do_GET = do_HEAD = do_DELETE = do_POST = do_PUT  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: the proxy counts the requests."""

    def _serve(self) -> None:
        proxy = self.server.proxy
        if proxy.refuses():
            self._reset()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        operation, key = _parse(self.command, self.path)
        planned = proxy.plan.take(operation, key)
        proxy.note(operation, key, body, "If-None-Match" in self.headers, planned)
        if planned is not None and planned.meanwhile is not None:
            planned.meanwhile()
        if planned is None or planned.fault is None:
            self._send(self._forward(body))
        elif planned.fault in BODY_FAULTS:
            self._damage(operation, planned.fault, self._forward(body))
        else:
            self._fail(planned.fault, planned.when, body)

    def _forward(self, body: bytes) -> _Answer:
        return self.server.proxy.forward(self.command, self.path, dict(self.headers.items()), body)

    def _fail(self, fault: Fault, when: When, body: bytes) -> None:
        if when is When.AFTER:
            self._forward(body)
        if fault is Fault.HANG:
            self._hang()
            if when is When.LATE:
                self._forward(body)
        if fault in {Fault.HANG, Fault.RESET}:
            self._reset()
        else:
            self._send(_error(fault, self.server.proxy.plan.retry_after))

    def _damage(self, operation: str, fault: Fault, answer: _Answer) -> None:
        proxy = self.server.proxy
        if not answer.body or answer.status >= 300:
            self._send(answer)
            return
        proxy.note_damage(operation, fault)
        if fault is Fault.FLIP and operation == "LIST":
            bits = _listing_bits(answer.body)
            place = bits[proxy.plan.pick(len(bits))]
        else:
            place = proxy.plan.pick(len(answer.body) * 8)
        if fault is Fault.FLIP:
            flipped = bytearray(answer.body)
            flipped[place // 8] ^= 1 << place % 8
            self._send(_Answer(answer.status, answer.reason, answer.headers, bytes(flipped)))
        else:
            self._send(answer, place // 8)
            self.close_connection = True

    def _send(self, answer: _Answer, upto: int | None = None) -> None:
        """Send the answer; with ``upto``, only that many bytes of its body."""
        self.send_response_only(answer.status, answer.reason)
        named = {name.lower() for name, _ in answer.headers}
        for name, value in answer.headers:
            self.send_header(name, value)
        if "content-length" not in named and answer.status != 204:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body if upto is None else answer.body[:upto])

    def _hang(self) -> None:
        """Wait until the client disconnects, or longer than any client should wait."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN | select.POLLRDHUP)
        poll.poll(HANG_SECONDS * 1000)

    def _reset(self) -> None:
        self.server.make_reset(self.connection)
        self.close_connection = True


def _parse(method: str, target: str) -> tuple[str, str]:
    """The operation and the key of a request in path style."""
    parts = urlsplit(target)
    key = unquote(parts.path).lstrip("/").partition("/")[2]
    query = parse_qs(parts.query, keep_blank_values=True)
    if method == "GET" and "list-type" in query:
        return "LIST", query.get("prefix", [""])[0]
    return method, key


def _listing_bits(body: bytes) -> list[int]:
    """The bits of a listing whose flip a client detects, or that is harmless: all bits of the markup, and in sizes and
    times the bit that turns a digit into a letter."""
    bits = [
        place * 8 + bit
        for element in _ELEMENT.finditer(body)
        for place in range(element.start(), element.end())
        for bit in range(8)
    ]
    for number in _NUMBER.finditer(body):
        bits.extend(place * 8 + _DIGIT_TO_LETTER for place in range(*number.span(1)))
    return bits


def _error(fault: Fault, retry_after: int) -> _Answer:
    status, _, code = fault.value.partition(" ")
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{code}</Code><Message>injected</Message><RequestId>0</RequestId></Error>"
    ).encode()
    headers = [("Content-Type", "application/xml")]
    if fault is Fault.TOO_MANY_REQUESTS:
        headers.append(("Retry-After", str(retry_after)))
    return _Answer(int(status), code, headers, body)
