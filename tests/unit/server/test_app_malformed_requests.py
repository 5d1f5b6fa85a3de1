"""Each malformed request gets an answer, and none gets an internal error."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from litelog.errors import ConfigError
from litelog.replicator.barrier import Barrier
from litelog.replicator.status import NotReplicated, ReplicaStatus
from litelog.server.app import make_app
from litelog.server.daemon_view import StatusCache
from litelog.server.permits import Tokens
from litelog.server.status_view import HealthThresholds
from litelog.system.clock import SystemClock
from tests.builders.server_builder import TOKEN
from tests.sampling import sampled
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = (b"host", b"localhost:9977")
IDLE = ReplicaStatus("/log", "file:///one", "required", "idle", None, None, None, 0, synced=True)
PATHS = ("/", "/status", "/metrics", "/healthz", "/readyz")


class Calm:
    """A daemon that answers at once."""

    opened = True
    last_turn = 0.0

    def status(self) -> list[ReplicaStatus]:
        return [IDLE]

    def not_replicated(self) -> tuple[NotReplicated, ...]:
        return ()

    def is_ready(self) -> bool:
        return True

    def measure(self) -> None: ...

    def barrier(self, log: str | None, replica: str | None, timeout: float) -> Barrier:
        if log not in (None, "/log"):
            raise ConfigError(f"{log}: is not replicated here")
        return Barrier(1, ())


class Asker:
    """Asks an application without a network, so that tests can send requests that no HTTP parser accepts."""

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._board = StatusCache(Calm(), HealthThresholds(60.0), SystemClock())
        self._board.start()
        self._app = make_app(Calm(), self._board, tokens=tokens)
        self._loop = asyncio.new_event_loop()
        self.body = b""
        """The body of the last answer."""

    def close(self) -> None:
        self._board.stop()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def ask(self, path: str, *headers: tuple[bytes, bytes], method: str = "GET", query: bytes = b"") -> int:
        """Send a request. Returns the status of the answer."""
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode(),
            "root_path": "", "scheme": "http", "query_string": query, "headers": list(headers),
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 9977),
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        self._loop.run_until_complete(self._app(scope, receive, send))
        self.body = b"".join(message.get("body", b"") for message in sent)
        status: int = sent[0]["status"]
        return status


@pytest.fixture(scope="module")
def asker() -> Iterator[Asker]:
    asker = Asker()
    yield asker
    asker.close()


# ruff: noqa: E501
JUNK = [
    b"", b" ", b"\t", b",", b";", b"=", b":", b"//", b"://", b"[", b"]", b"[::1", b"http://[::1", b"http://[", b"http://]",
    b"http://[v1.x]:80", b"http://a:b:c", b"http://a:99999999", b"http://a:port", b"http://\xff", b"\xff\xfe", b"\x00", b"%00",
    b"%", b"%zz", b"%ff%fe", b"http://%5b", b"http://localhost:9977/path", b"http://user@localhost:9977", b"a" * 15000,
    b"9" * 5000, b"-1", b"+1", b"1e9", b"0x10", b"1, 1", b"\xb2", b"\xd9\xa1", b"NaN", b"inf", b"null, null", b"*", b"*/*", b"a/b/c",
    b"text/plain;version", b"text/plain;version=", b"text/plain;version=x", b"text/plain;version=1.x.0",
    b"text/plain;version=1", b"text/plain;version=1.0.0;escaping=\xff", b"application/openmetrics-text;version=abc",
    b"application/openmetrics-text;version=99999999999999999999.0.0", b"application/openmetrics-text;version=1.0.0;q=x",
    b"application/openmetrics-text;version=" + b"9" * 5000 + b".0.0", b"application/openmetrics-text;version=2..0",
    b"application/openmetrics-text; version=1.0.0\xff", b"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8",
    b"Basic", b"Basic \xff", b"Basic =", b"Basic //8=", b"Basic " + b"A" * 9999, b"Bearer", b"Bearer \xff", b"Bearer  ",
    b"a=b; c", b"=;=;", b"a=\"\\", b"gzip;q=x", b"bytes=0-", b"\x7f", b"\r", b"x" * 300 + b"\n",
]  # fmt: skip
NAMES = [
    b"origin", b"accept", b"host", b"authorization", b"content-length", b"cookie", b"accept-encoding", b"accept-language",
    b"transfer-encoding", b"content-type", b"sec-fetch-site", b"range", b"if-none-match", b"expect", b"connection",
    b"x-forwarded-for", b"forwarded", b"te", b"upgrade",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES, ids=bytes.decode)
def test_a_header_of_any_value_is_answered(asker: Asker, name: bytes, caplog: pytest.LogCaptureFixture) -> None:
    statuses = set()
    asked = list(itertools.product(JUNK, (*PATHS, "/sync")))
    for value, path in sampled(asked, 8, f"values of the header {name.decode()}"):
        headers = [(name, value)] if name == b"host" else [HOST, (name, value)]
        statuses.add(asker.ask(path, *headers, method="POST" if path == "/sync" else "GET"))
    assert statuses <= {200, 400, 403, 413, 421, 503}
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.slow
def test_two_headers_of_a_name_are_answered(asker: Asker) -> None:
    for name in NAMES:
        one, other = (name, b"http://localhost:9977"), (name, b"\xff")
        for method in ("GET", "POST"):
            assert asker.ask("/sync", HOST, one, other, method=method) in (200, 400, 403, 405, 413, 421)
    twice = (b"origin", b"http://localhost:9977")
    assert asker.ask("/sync", HOST, twice, twice, method="POST") == 400


QUERIES = [
    *(name + b"=" + value for name in (b"q", b"from", b"log", b"history", b"wait", b"replica", b"x") for value in JUNK),
    b"=", b"&", b"&&=&", b"log", b"log=/log&log=/other", b"wait=1s&wait=x", b"a" * 9999, b"&" * 5000, b"a=b&" * 2500, b";", b"%",
    b"wait=" + b"9" * 12 + b"d", b"wait=" + b"999999999999d" * 900, b"wait=0s", b"wait=-1s", b"from=-1", b"from=" + b"9" * 4999,
    b"log=%00", b"log=" + b"/" * 9999, b"log=%ed%a0%80", b"q=%ed%a0%80", b"q=%3Cscript%3E", b"q=%1b%5b2J", b"from=%d9%a1",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("path", [*PATHS, "/sync"])
def test_a_query_of_any_kind_is_answered(asker: Asker, path: str, caplog: pytest.LogCaptureFixture) -> None:
    method = "POST" if path == "/sync" else "GET"
    statuses = {
        asker.ask(path, HOST, method=method, query=query) for query in sampled(QUERIES, 6, f"queries of {path}")
    }
    assert statuses <= {200, 400, 404, 503}
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "X", "", "get"]
)
def test_any_method_and_path_is_answered(asker: Asker, method: str) -> None:
    paths = (
        "/",
        "/sync",
        "//",
        "/../etc/passwd",
        "/%2e%2e/x",
        "/\x00",
        "/caf\xe9",
        "/" + "a" * 9999,
        "*",
        "",
        "/status/",
    )
    for path in paths:
        assert asker.ask(path, HOST, method=method) in (200, 307, 400, 403, 404, 405, 503)


@pytest.mark.slow
@given(st.sampled_from(NAMES), st.binary(max_size=60), st.sampled_from((*PATHS, "/sync")), st.binary(max_size=60))
def test_headers_and_queries_of_any_bytes_are_answered(
    asker: Asker, name: bytes, value: bytes, path: str, query: bytes
) -> None:
    for method in ("GET", "POST"):
        assert asker.ask(path, HOST, (name, value), method=method, query=query) < 500 or path in ("/healthz", "/readyz")


@pytest.mark.slow
def test_with_a_token_headers_of_any_value_are_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    asker = Asker(Tokens(str(path)))
    given_token = (b"authorization", f"Bearer {TOKEN}".encode())
    try:
        for name, value in sampled(list(itertools.product(NAMES, JUNK)), 8, "headers with a token"):
            assert asker.ask("/status", (name, value)) in (400, 401, 413)
            if name != b"authorization":
                assert asker.ask("/metrics", given_token, (name, value)) in (200, 400, 413)
    finally:
        asker.close()
    assert not [record for record in caplog.records if record.exc_info]


MALFORMED_ORIGINS = [
    b"",
    b"x",
    b"http://",
    b"http://[::1",
    b"http://a/",
    b"http://a:b",
    b"//a",
    b"http://u@a",
    b"a b",
    b"\xff",
]


@pytest.mark.parametrize("origin", MALFORMED_ORIGINS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_malformed_origin_is_a_bad_request(asker: Asker, origin: bytes, method: str) -> None:
    assert asker.ask("/sync", HOST, (b"origin", origin), method=method) == 400


@pytest.mark.parametrize("version", [b"abc", b"1.x", b"..", b"-", b"9" * 5000])
@pytest.mark.parametrize("kind", [b"application/openmetrics-text", b"text/plain"])
def test_a_malformed_accept_is_a_bad_request(asker: Asker, kind: bytes, version: bytes) -> None:
    assert asker.ask("/metrics", HOST, (b"accept", kind + b"; version=" + version)) == 400


def test_a_log_whose_name_is_not_unicode_is_shown_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    name = '/caf\udce9\x1b\n"'
    status = ReplicaStatus(name, "file:///\udcff", "required", "frozen", None, None, "bad \udcff", 0, synced=True)
    monkeypatch.setattr(Calm, "status", lambda _: [status])
    asker = Asker()
    try:
        assert [asker.ask(path, HOST) for path in PATHS] == [200, 200, 200, 503, 503]
        for kind in (b"text/plain", b"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8"):
            assert asker.ask("/metrics", HOST, (b"accept", kind)) == 200
            (line,) = (line for line in asker.body.decode().splitlines() if line.startswith("litelog_replica_frozen{"))
            assert line.startswith('litelog_replica_frozen{log="/caf\\\\udce9\x1b\\n\\"",replica="file:///\\\\udcff"}')
    finally:
        asker.close()


@pytest.mark.parametrize(
    ("host", "headers", "status"),
    [
        (b"localhost:9977", {}, 200),
        (b"127.0.0.1:9977", {}, 200),
        (b"localhost:9977", {b"origin": b"http://localhost:9977"}, 200),
        (b"LOCALHOST:9977", {b"origin": b"http://localhost:9977"}, 200),
        (b"localhost", {b"origin": b"http://localhost:80"}, 200),
        (b"localhost:443", {b"origin": b"https://localhost"}, 200),
        (b"[::1]:9977", {b"origin": b"http://[::1]:9977"}, 200),
        (b"localhost:9977", {b"sec-fetch-site": b"same-origin", b"origin": b"http://localhost:9977"}, 200),
        (b"localhost:9977", {b"sec-fetch-site": b"none"}, 200),
        (b"localhost:9977", {b"origin": b"http://localhost:3000"}, 403),
        (b"localhost:9977", {b"origin": b"http://localhost"}, 403),
        (b"localhost:9977", {b"origin": b"http://127.0.0.1:9977"}, 403),
        (b"127.0.0.1:9977", {b"origin": b"http://localhost:9977"}, 403),
        (b"localhost:9977", {b"origin": b"null"}, 403),
        (b"localhost:9977", {b"origin": b"file://localhost:9977"}, 403),
        (b"localhost:9977", {b"origin": b"https://evil.example"}, 403),
        (b"localhost:9977", {b"sec-fetch-site": b"same-site"}, 403),
        (b"localhost:9977", {b"sec-fetch-site": b"cross-site"}, 403),
        (b"localhost:9977", {b"sec-fetch-site": b"junk"}, 403),
        (b"evil.example:9977", {b"origin": b"http://evil.example:9977"}, 421),
    ],
)
def test_a_sync_is_started_by_programs_and_by_our_own_page_and_by_no_other(
    asker: Asker, host: bytes, headers: dict[bytes, bytes], status: int
) -> None:
    assert asker.ask("/sync", (b"host", host), *headers.items(), method="POST") == status
    reading = asker.ask("/metrics", (b"host", host), *headers.items())
    assert reading == (421 if status == 421 else 200)  # a read is answered, since a foreign page cannot see the answer


class Broken(Calm):
    """A daemon that raises an unexpected exception as long as it is ``broken``."""

    broken = True

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.measured = threading.Semaphore(0)

    def status(self) -> list[ReplicaStatus]:
        self.asked.release()
        if self.broken:
            raise KeyError("a bug")
        return [IDLE]

    def measure(self) -> None:
        self.measured.release()
        if self.broken:
            raise TypeError("another bug")


@pytest.mark.slow
def test_the_threads_that_feed_the_status_outlive_a_bug_and_report_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litelog.server.daemon_view.RETRY_SECONDS", 0.001)
    monkeypatch.setattr("litelog.server.daemon_view.MEASURE_SECONDS", 0.001)
    daemon = Broken()
    status_cache = StatusCache(daemon, HealthThresholds(60.0), SystemClock())
    status_cache.start()
    try:
        for _ in range(3):
            status_cache.read(fresh=0.0, patience=0.001)
            assert daemon.asked.acquire(timeout=WAIT_SECONDS)
            assert daemon.measured.acquire(timeout=WAIT_SECONDS)
        assert status_cache.read(fresh=0.0, patience=0.001).statuses == ()
        daemon.broken = False
        assert status_cache.read(fresh=0.0, patience=30).statuses == [IDLE]
    finally:
        status_cache.stop()
    said = [record for record in caplog.records if getattr(record, "event", "") == "status-failed"]
    assert sorted(record.getMessage() for record in said) == [
        "the daemon's measure cannot be read: another bug; trying again every 0.001 s",
        "the daemon's status cannot be read: 'a bug'; trying again every 0.001 s",
    ]
    assert all(record.levelno == logging.ERROR and record.exc_info for record in said)
