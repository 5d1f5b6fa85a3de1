"""A replica that is read over HTTP from the daemon of its log: places, refusals, waits, and a daemon that is away."""

from __future__ import annotations

import http.server
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("urllib3")

import litelog
from litelog.errors import ConfigError, NotFoundError, StoreError
from litelog.objects.layout import wal_key
from litelog.objects.position import Position
from litelog.restore.history_plan import Target, find_plan
from litelog.stores.object_store import AwaitsKeys, ByteRange, NotSupportedError, StreamsWal
from litelog.stores.opening import opened_replica
from litelog.stores.registry import open_store
from replica_clients import http as http_store
from tests.builders.log_builder import make_log
from tests.builders.restoring import restore_to
from tests.builders.server_builder import TOKEN, Watched
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore
    from tests.builders.log_builder import LogBuilder


@contextmanager
def serving(tmp_path: Path, log: LogBuilder, **settings: Any) -> Iterator[tuple[Watched, str]]:
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all", **settings}) as watched:
        watched.wait_until_ready()
        assert watched.service.address is not None
        yield watched, f"http://127.0.0.1:{watched.service.address.port}/logs/log"


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """A server that gives one answer to everything."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            if not {"content_length", "transfer_encoding"} & headers.keys():
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/logs/log"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("http://host:9977", {}, "not a served log; write http://HOST:PORT/logs/NAME"),
        ("http://host:9977/logs/", {}, "not a served log"),
        ("https://host/log/x", {}, "write https://HOST:PORT/logs/NAME"),
        ("http:///logs/x", {}, "not a served log"),
        ("http://me:secret@host/logs/x", {}, "takes no user, query or secret"),
        ("http://host/logs/x?token=1", {}, "takes no user, query or secret"),
        ("http://host/logs/x", {"region": "eu"}, "takes no option region"),
        ("http://host/logs/x", {"read_timeout": "soon"}, "'soon' is not a number above 0"),
        ("http://host/logs/x", {"connections": True}, "connections: True is not a number"),
        ("http://host/logs/x", {"token": "a", "token_file": "/b"}, "give token or token_file"),
        ("http://host/logs/x", {"token_file": "/missing"}, "cannot be read"),
    ],
)
def test_a_place_that_names_no_served_log_is_refused(url: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        open_store(url, options)
    assert "secret@" not in str(caught.value)


def test_nothing_is_written() -> None:
    store = open_store("http://host/logs/x", {})
    with pytest.raises(NotSupportedError, match="is read over HTTP"):
        store.put("epochs/1.json", [b"x"])
    with pytest.raises(NotSupportedError, match="is read over HTTP"):
        store.delete(["epochs/1.json"])
    store.close()


@pytest.mark.slow
def test_a_served_log_is_read_restored_and_verified_as_any_replica(tmp_path: Path, log: LogBuilder) -> None:
    log.roll(4)
    log.roll(2)
    with serving(tmp_path, log) as (_, url):
        with litelog.open_replica(url) as records:
            assert [record.sequence for record in records] == list(range(9))
        with opened_replica(url) as client:
            assert find_plan(client, Target(), log.format).size == sum(map(len, log.texts.values()))
            restore_to(client, tmp_path / "out", log_format=log.format)
        assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == log.texts
        assert litelog.verify_replica(url).anomalies == ()


@pytest.mark.slow
def test_a_follower_does_not_poll(tmp_path: Path, log: LogBuilder) -> None:
    """Its interval is longer than any test."""
    with serving(tmp_path, log) as (watched, url):
        read: list[int] = []
        with litelog.open_replica(url, follow=True, poll_interval=WAIT_SECONDS) as records:
            thread = threading.Thread(target=lambda: read.extend(record.sequence for record in records))
            thread.start()
            wait_until(lambda: read == [0, 1, 2])
            for number in range(3):
                wait_until(lambda: any(each.kind == "objects" for each in readers(watched)), "it waits at the server")
                log.append(1)
                wait_until(lambda wanted=number + 4: len(read) == wanted)
            records._stop.set()
            log.append(1)  # it wakes
            thread.join(WAIT_SECONDS)
        assert read[:6] == list(range(6))


def readers(watched: Watched) -> list[Any]:
    logs = watched.service._logs
    assert logs is not None
    return [reader for served in logs.running() for reader in served.all_readers()]


@pytest.mark.slow
def test_a_wait_ends_with_the_object_or_with_its_time(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as (watched, url):
        store = open_store(url, {})
        position = watched.replica()["position"]
        generation, index, offset = position.split("/")
        missing = wal_key(Position(generation, int(index, 16), int(offset, 16)))
        store.wait_for(missing, 0.05)  # type: ignore[attr-defined]
        with pytest.raises(NotFoundError):
            store.open(missing)
        waiter = threading.Thread(target=store.wait_for, args=(missing, float(WAIT_SECONDS)))  # type: ignore[attr-defined]
        waiter.start()
        wait_until(lambda: readers(watched))
        log.append(1)
        waiter.join(WAIT_SECONDS)
        assert not waiter.is_alive()
        with store.open(missing) as stream:
            assert stream.read()
        store.close()


@pytest.mark.slow
def test_only_objects_of_the_replica_are_shown(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as (watched, url):
        (tmp_path / "replica" / "secret").write_text("another's")
        (tmp_path / "replica" / "other" / "epochs").mkdir(parents=True)
        store = open_store(url, {})
        assert all(info.key.startswith(("epochs/", "generations/")) for info in store.list(""))
        for key in ("secret", "other/epochs/00000001.json"):
            with pytest.raises(NotFoundError):
                store.open(key)
        for path in ("/logs/log/replica/..%2f..%2flog", "/logs/log/replica/%2e%2e/x", "/logs/log/replica/a//b"):
            assert watched.ask(path).status in (400, 404)
        store.close()


@pytest.mark.slow
def test_ranges_are_what_they_ask_for(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as (watched, url):
        store = open_store(url, {})
        key = next(info.key for info in store.list("epochs/"))
        with store.open(key) as stream:
            whole = stream.read()
        for start, length in ((0, 5), (3, None), (len(whole) - 1, 9), (len(whole), 4), (2, 0)):
            with store.open(key, ByteRange(start, length)) as stream:
                assert stream.read() == (whole[start:] if length is None else whole[start : start + length])
        for wrong in ("bytes=5-1", "bytes=-5", "bytes=1-2,4-5", "lines=1-2", "bytes=x-"):
            assert watched.ask(f"/logs/log/replica/{key}", headers={"Range": wrong}).status == 400
        store.close()


@pytest.mark.slow
def test_a_token_is_sent_and_never_shown(tmp_path: Path, log: LogBuilder) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    with serving(tmp_path, log, token_file=str(tmp_path / "token")) as (_, url):
        refused = open_store(url, {})
        with pytest.raises(StoreError, match="a bearer token is needed") as caught:
            next(iter(refused.list("")))
        assert not caught.value.retryable
        wrong = open_store(url, {"token": "x" * 40})
        with pytest.raises(StoreError, match="401: the daemon does not have the token that was sent") as caught:
            wrong.open("epochs/1.json")
        assert "x" * 40 not in str(caught.value)
        for options in ({"token": TOKEN}, {"token_file": str(tmp_path / "token")}):
            store = open_store(url, options)
            assert [info.key for info in store.list("epochs/")]
            store.close()
        refused.close()
        wrong.close()


@pytest.mark.slow
def test_a_token_that_was_exchanged_is_used_by_a_store_that_is_open(tmp_path: Path, log: LogBuilder) -> None:
    files = [tmp_path / "token", tmp_path / "token-of-the-reader"]

    def write(token: str) -> None:
        for file in files:
            file.write_text(token)
            file.chmod(0o600)

    write(TOKEN)
    with serving(tmp_path, log, token_file=str(files[0])) as (_, url):
        store, other = (open_store(url, {"token_file": str(file)}) for file in (files[1], files[1]))
        before = [info.key for info in store.list("")]
        write(TOKEN[::-1])
        assert [info.key for info in store.list("")] == before
        files[1].write_text("")  # half of a change
        files[0].write_text(TOKEN + "3")
        wait_until(lambda: is_refused(other))
        files[1].write_text(TOKEN + "3")
        assert [info.key for info in other.list("")] == before
        store.close()
        other.close()


def is_refused(store: ObjectStore) -> bool:
    try:
        next(iter(store.list("")))
    except StoreError as error:
        return "401" in str(error)
    return False


def test_read_timeout_limits_requests_that_wait_for_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon whose machine was cut off from the network sends no answer, and does not close the connection."""
    monkeypatch.setattr(http_store, "READ_SECONDS", 3600.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/logs/log"
        store = open_store(url, {"read_timeout": 0.01})
        assert isinstance(store, AwaitsKeys)
        with pytest.raises(StoreError, match="timed out"):
            store.wait_for("epochs/00000001.json", 0.01)
        assert isinstance(store, StreamsWal)
        with pytest.raises(StoreError, match="timed out"):
            next(
                iter(
                    store.stream_wal(
                        Position.parse("0000000000000001/0000000000000000/0000000000000000"), 0.01, 1, None, None
                    )
                )
            )
        store.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "headers", "retryable", "said"),
    [
        (503, {"retry_after": "7"}, True, "503"),
        (500, {}, True, "500"),
        (403, {}, False, "403"),
        (302, {"location": "/login"}, False, "redirects to /login"),
        (418, {}, False, "418"),
    ],
)
def test_other_answers_are_errors(status: int, headers: dict[str, str], retryable: bool, said: str) -> None:
    with answering(status, b"<html>", **headers) as url:
        store = open_store(url, {})
        with pytest.raises(StoreError, match=said) as caught:
            store.open("epochs/00000001.json")
        assert (caught.value.retryable, caught.value.retry_after) == (
            retryable,
            7.0 if headers.get("retry_after") else None,
        )
        store.close()


@pytest.mark.slow
@pytest.mark.parametrize("body", [b"", b"[]", b'{"objects": [["a"]]}', b'{"objects": 5}', b"<html>"])
def test_an_answer_that_is_no_listing_is_an_error(body: bytes) -> None:
    with answering(200, body) as url:
        store = open_store(url, {})
        with pytest.raises(StoreError, match="not a listing"):
            list(store.list("epochs/"))
        store.close()


@pytest.mark.slow
@pytest.mark.parametrize("head", [{"content_length": "9"}, {"transfer_encoding": "chunked"}])
def test_an_answer_that_breaks_off_is_an_error_that_says_so(head: dict[str, str]) -> None:
    with answering(200, b"5\r\nab", **head) as url:
        stream = open_store(url, {}).open("epochs/00000001.json")
        with pytest.raises(StoreError, match=r"json: the connection broke off in the middle of the answer$") as broken:
            stream.read()
        assert broken.value.retryable


def test_a_daemon_that_is_away_is_tried_again(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    log.roll(1)
    with serving(tmp_path, log) as (_, url):
        pass
    store = open_store(url, {})
    for call in (lambda: store.open("epochs/1.json"), lambda: list(store.list("")), lambda: store.wait_for("a", 1.0)):  # type: ignore[attr-defined]
        with pytest.raises(StoreError, match="refused") as caught:
            call()
        assert caught.value.retryable
    store.close()


@pytest.mark.slow
def test_a_follower_continues_at_the_exact_record_after_its_daemon_was_away(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as (watched, url):
        address = str(watched.service.address)
        records = litelog.open_replica(url, follow=True, poll_interval=0.05)
        found = [next(records).sequence for _ in range(2)]
    log.append(2)
    with records, serving(tmp_path, log, addr=address):
        found += [next(records).sequence for _ in range(3)]
        log.append(1)
        found.append(next(records).sequence)
    assert found == list(range(6))
