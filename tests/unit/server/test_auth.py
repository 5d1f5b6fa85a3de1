"""Which requests the daemon accepts, from where, and how many resources a client can use."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from litelog.errors import ConfigError
from litelog.server.auth import MAX_BODY_BYTES
from litelog.server.http_server import MAX_CLIENTS, ConnectionLimits, LimitedConnection
from litelog.server.listener import Address, ListenError, listen
from litelog.server.service import MAX_HEAD_BYTES, Service, ServiceSettings
from litelog.system.tokens import read_token
from tests.builders.log_builder import make_log
from tests.builders.server_builder import TOKEN, WAIT_SECONDS, Watched

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def serving(folder: Path, settings: dict[str, object]) -> Iterator[Watched]:
    log = make_log(folder / "log")
    log.roll(3)
    with Watched(folder, [(log, [f"file://{folder}/one"])], settings) as watched:
        watched.wait_until_ready()
        yield watched


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Watched]:
    with serving(tmp_path, {"allowed_hosts": ("logs.example",)}) as watched:
        yield watched


@pytest.fixture(scope="module")
def shared_plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Like ``plain``, but shared by the tests that only send requests."""
    with serving(tmp_path_factory.mktemp("plain"), {"allowed_hosts": ("logs.example",)}) as watched:
        yield watched


def make_token_file(folder: Path) -> Path:
    path = folder / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    return make_token_file(tmp_path)


@pytest.fixture
def guarded(tmp_path: Path, token_file: Path) -> Iterator[Watched]:
    with serving(tmp_path, {"addr": "0.0.0.0:0", "token_file": str(token_file)}) as watched:
        yield watched


@pytest.fixture(scope="module")
def shared_guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Like ``guarded``, but shared by the tests that only send requests."""
    folder = tmp_path_factory.mktemp("guarded")
    with serving(folder, {"addr": "0.0.0.0:0", "token_file": str(make_token_file(folder))}) as watched:
        yield watched


@pytest.mark.slow
@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9977", "127.0.0.1:1", "127.9.9.9", "[::1]:80", "LOGS.example", "logs.example:443"]
)
def test_our_own_names_are_answered(shared_plain: Watched, host: str) -> None:
    assert shared_plain.ask("/status", headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "evil.example:9977", "10.0.0.1", "", "localhost@evil.example", "::1"],
)
@pytest.mark.parametrize("path", ["/status", "/healthz", "/metrics", "/"])
def test_a_name_that_may_be_rebound_is_not(shared_plain: Watched, host: str, path: str) -> None:
    answer = shared_plain.ask(path, headers={"Host": host})
    assert (answer.status, list(answer.json)) == (421, ["version", "error"])


@pytest.mark.slow
def test_another_sites_page_cannot_post(plain: Watched) -> None:
    assert plain.ask("/sync", "POST", {"Origin": "https://evil.example"}).status == 403
    assert plain.ask("/sync", "POST", {"Origin": "null"}).status == 403
    address = plain.service.address
    assert address is not None
    assert plain.ask("/sync", "POST", {"Origin": f"http://localhost:{address.port}"}).status == 403
    assert plain.ask("/sync", "POST", {"Origin": f"http://{address}"}).status == 200


def as_password(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "given",
    [
        None,
        "Bearer",
        "Bearer wrong",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        as_password("user:"),
        as_password(f"{TOKEN}:"),
        as_password(f"user:{TOKEN}x"),
        as_password(TOKEN),
        "Basic \xff\xff",
        "Basic //8=",
    ],
)
@pytest.mark.parametrize("path", ["/status", "/metrics", "/", "/sync", "/no-such"])
def test_without_the_token_nothing_is_shown(shared_guarded: Watched, given: str | None, path: str) -> None:
    answer = shared_guarded.ask(path, headers={} if given is None else {"Authorization": given})
    assert (answer.status, list(answer.json), answer.headers["www-authenticate"]) == (
        401,
        ["version", "error"],
        'Basic realm="litelog", charset="UTF-8"' if path == "/" else 'Bearer realm="litelog"',
    )


@pytest.mark.slow
@pytest.mark.parametrize("user", ["", "somebody"])
def test_a_browser_gives_the_token_as_the_password_and_may_read_only(guarded: Watched, user: str) -> None:
    headers = {"Authorization": as_password(f"{user}:{TOKEN}")}
    assert [guarded.ask(path, headers=headers).status for path in ("/", "/status", "/metrics")] == [200, 200, 200]
    assert guarded.ask("/", "HEAD", headers).status == 200
    refused = guarded.ask("/sync", "POST", headers)
    assert (refused.status, refused.headers["www-authenticate"]) == (401, 'Bearer realm="litelog"')


@pytest.mark.slow
def test_with_the_token_everything_is_shown_for_any_host(guarded: Watched) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Host": "litelog.cluster.local"}
    assert guarded.ask("/status", headers=headers).json["healthy"]
    assert guarded.ask("/sync", "POST", headers).json["reached"]


@pytest.mark.slow
def test_a_probe_needs_no_token_and_learns_no_reasons(guarded: Watched) -> None:
    assert guarded.ask("/healthz").json == {"status": "ok"}
    answer = guarded.ask("/healthz", headers={"Authorization": f"Bearer {TOKEN}"}).json
    assert answer == {"status": "ok", "verdict": "safe", "reasons": []}
    assert guarded.ask("/livez").json == {"status": "ok"}
    assert guarded.ask("/healthz", "POST").status == 401


@pytest.mark.slow
def test_a_token_that_changes_is_read_again(guarded: Watched, token_file: Path) -> None:
    new = "another-canary-token-of-the-tests"
    temporary = token_file.with_suffix(".new")
    temporary.write_text(new)
    temporary.chmod(0o600)
    temporary.rename(token_file)
    assert guarded.ask("/status", headers={"Authorization": f"Bearer {TOKEN}"}).status == 401
    assert guarded.ask("/status", headers={"Authorization": f"Bearer {new}"}).status == 200
    token_file.chmod(0o644)
    assert guarded.ask("/status", headers={"Authorization": f"Bearer {new}"}).status == 401
    token_file.unlink()
    assert guarded.ask("/status", headers={"Authorization": f"Bearer {new}"}).status == 401


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o602, 0o666])
def test_a_token_that_others_may_read_or_change_is_refused(token_file: Path, mode: int) -> None:
    token_file.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600") as caught:
        read_token(str(token_file))
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"short\n", b"\n" + TOKEN.encode(), b"with a space in it 123", b"\xff" * 40])
def test_a_token_that_is_none_is_refused(token_file: Path, content: bytes) -> None:
    token_file.write_bytes(content)
    with pytest.raises(ConfigError, match="at least 16"):
        read_token(str(token_file))


class Nobody:
    """A daemon that gets no requests."""

    last_turn = 0.0


@pytest.mark.parametrize("addr", ["0.0.0.0:0", "[::]:0", "192.0.2.1:9977", "logs.example:80"])
def test_an_address_that_others_reach_needs_a_token(addr: str) -> None:
    with pytest.raises(ConfigError, match="needs a token-file"):
        Service(Nobody(), ServiceSettings(60.0, addr=addr))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_configured_address_that_is_taken_is_an_error_and_the_default_one_is_not(
    plain: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    address = plain.service.address
    with pytest.raises(ListenError, match=f"{address}.*in use"):
        Service(Nobody(), ServiceSettings(60.0, addr=str(address)))  # type: ignore[arg-type]
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind(("127.0.0.1", 9977))
            holder.listen()
        except OSError:
            pass  # another daemon has it, which is as good
        without = Service(Nobody(), ServiceSettings(60.0))  # type: ignore[arg-type]
        assert without.address is None
        assert "continuing without" in caplog.text


@pytest.mark.slow
def test_a_unix_socket_is_for_its_group_and_gone_at_the_end(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    log.roll(3)
    path = tmp_path / "litelog.sock"
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/one"])], {"addr": f"unix:{path}"}) as watched:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(path))
            caller.sendall(b"GET /healthz HTTP/1.1\r\nHost: whatever\r\nConnection: close\r\n\r\n")
            assert caller.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"
        with pytest.raises(ListenError, match="another process listens"):
            listen(Address(path=str(path)))
        assert watched.failure is None
    assert not path.exists()


def test_a_stale_socket_is_replaced_and_anything_else_is_not(tmp_path: Path) -> None:
    path = tmp_path / "stale"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    listen(Address(path=str(path))).socket.close()
    other = tmp_path / "file"
    other.write_text("precious")
    with pytest.raises(ListenError, match="not a socket"):
        listen(Address(path=str(other)))
    assert other.read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["file", "stale"]


def read_all(caller: socket.socket) -> bytes:
    """Read until the other side closes."""
    pieces = []
    try:
        while piece := caller.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Watched]:
    log = make_log(tmp_path / "log")
    log.roll(3)
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/one"])], {"request_seconds": 1.0}) as watched:
        watched.wait_until_ready()
        yield watched


@pytest.mark.slow
@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_a_client_that_sends_a_byte_at_a_time_is_cut_off(impatient: Watched, before: bytes) -> None:
    with impatient.connect() as slow:
        slow.sendall(before)
        slow.settimeout(0.05)
        sent, cut = 0, False
        deadline = time.monotonic() + WAIT_SECONDS
        while not cut and time.monotonic() < deadline:
            try:
                slow.sendall(b"G" if sent == 0 else b"a")
                sent += 1
                cut = slow.recv(65536) == b""
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                cut = True
    assert cut
    assert sent > 3
    assert impatient.ask("/healthz").status == 200


@pytest.mark.slow
def test_idle_connections_never_shut_out_a_probe(plain: Watched) -> None:
    before = b"GET /healthz HTTP/1.1\r\nHost: loc"  # half of the head of a request, or an answered request, or nothing
    answered = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    idle = [plain.connect() for _ in range(2 * MAX_CLIENTS)]
    try:
        for number, each in enumerate(idle):
            with suppress(OSError):  # the oldest are closed by now
                each.sendall((b"", before, answered)[number % 3])
        for _ in range(MAX_CLIENTS):
            assert plain.ask("/healthz").status == 200
        idle[0].settimeout(WAIT_SECONDS)
        assert read_all(idle[0]) == b""
    finally:
        for each in idle:
            each.close()


class AbortedTransport(asyncio.Transport):
    """Counts how often it is aborted."""

    aborted = 0

    def abort(self) -> None:
        self.aborted += 1


def test_a_connection_whose_request_waits_for_its_answer_is_never_closed_for_another() -> None:
    async def answer_one_request() -> None:
        limits, transport = ConnectionLimits(), AbortedTransport()
        begun, ready = asyncio.Event(), asyncio.Event()

        async def app(_scope: object, _receive: object, _send: object) -> None:
            begun.set()
            await ready.wait()

        class Inner(asyncio.Protocol):
            task: asyncio.Task[None]

            def data_received(self, _data: bytes) -> None:
                self.task = asyncio.create_task(limits.observe(app)({}, None, None))  # type: ignore[arg-type]

        inner = Inner()
        connection = LimitedConnection(limits, inner)
        connection.connection_made(transport)
        connection.data_received(b"GET / HTTP/1.1")
        await begun.wait()
        assert not limits.make_room()
        ready.set()
        await inner.task
        assert transport.aborted == 0
        assert limits.make_room()
        assert transport.aborted == 1

    asyncio.run(answer_one_request())


class Kept(LimitedConnection):
    """A connection in a state that a test chooses."""

    def __init__(self, limits: ConnectionLimits, since: float, *, idle: bool = False, stalled: bool = False) -> None:
        super().__init__(limits, asyncio.Protocol())
        self.waits_since, self.is_idle, self.is_stalled = since, idle, stalled
        self.aborted = 0
        limits.connections.add(self)

    def abort(self) -> None:
        self.aborted += 1


def test_room_is_made_by_the_longest_waiting_client_and_not_by_one_being_answered() -> None:
    limits = ConnectionLimits()
    answered, stalled = Kept(limits, 1.0), Kept(limits, 2.0, stalled=True)
    newer, older = Kept(limits, 4.0, idle=True), Kept(limits, 3.0, idle=True)
    for closed in (older, newer, stalled):
        assert limits.make_room()
        assert [each.aborted for each in (answered, closed)] == [0, 1]
        assert closed not in limits.connections
    assert not limits.make_room()
    assert limits.connections == {answered}


@pytest.mark.slow
def test_long_heads_and_bodies_are_refused(plain: Watched) -> None:
    with plain.connect() as caller:
        caller.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 2 * MAX_HEAD_BYTES)
        assert read_all(caller).startswith(b"HTTP/1.1 4")
    with plain.connect() as caller:
        caller.sendall(b"GET /" + b"x" * 2 * MAX_HEAD_BYTES)
        assert read_all(caller).startswith(b"HTTP/1.1 4")
    assert plain.ask("/sync", "POST", body=b"x" * MAX_BODY_BYTES).status == 200
    assert plain.ask("/sync", "POST", body=b"x" * (MAX_BODY_BYTES + 1)).status == 413
    with plain.connect() as caller:
        caller.sendall(b"POST /sync HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert caller.recv(65536).startswith(b"HTTP/1.1 413")


@pytest.mark.slow
def test_it_ends_at_once_though_clients_hang_on(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    log.roll(3)
    watched = Watched(tmp_path, [(log, [f"file://{tmp_path}/one"])])
    with watched:
        watched.wait_until_ready()
        hanging = watched.connect()
        hanging.sendall(b"GET /status HTTP/1.1\r\nHost: loc")
    with hanging:
        assert read_all(hanging) == b""
    assert watched.failure is None
