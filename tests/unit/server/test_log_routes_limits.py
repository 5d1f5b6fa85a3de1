"""What readers of logs may cost: those that read nothing, many at a time, limits, compression, kept connections."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import socket
import threading
import time
import zlib
from contextlib import ExitStack, contextmanager
from email.utils import parsedate_to_datetime
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from litelog.formats.columns import NAMES
from litelog.live import live_buffer, news_desk
from litelog.live.buffer_news import BufferNews
from litelog.live.encoding import ENCODINGS
from litelog.live.reader_limits import ReaderLimits
from litelog.log.writer import LogWriter
from tests.builders.child import runs_in_child
from tests.builders.log_builder import make_log
from tests.builders.served_stream import ServedStream
from tests.builders.server_builder import Watched
from tests.sampling import times
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.builders.log_builder import LogBuilder

pytestmark = pytest.mark.slow

READERS = times(8, 200)
SOCKET_BYTES = 4096
COMMIT_BYTES = 1 << 16
COMMITS = {"records": 110, "wal": 220}
"""More than the system holds for a connection and, as WAL segments, one more: a late reader gets whole ones."""


@contextmanager
def serving(tmp_path: Path, log: LogBuilder, **settings: Any) -> Iterator[Watched]:
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all", **settings}) as watched:
        watched.wait_until_ready()
        yield watched


def position_of(watched: Watched) -> str:
    found: str = watched.ask("/logs/log").json["acknowledged_position"]
    return found


def ask_and_never_read(watched: Watched, path: str) -> socket.socket:
    """Send a request on a connection with small buffers."""
    address = watched.service.address
    assert address is not None
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
    connection.connect(("127.0.0.1", address.port))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection


@pytest.mark.parametrize("endpoint", ["records", "wal"])
@runs_in_child
def test_a_reader_that_never_reads_and_many_that_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    """The reader that never reads delays neither the others nor the shipping, and the daemon holds little for it."""
    monkeypatch.setattr(live_buffer, "HELD_BYTES", 1 << 19)
    monkeypatch.setattr(live_buffer, "RUN_BYTES", 1 << 15)
    log = make_log(tmp_path / "log")
    log.roll(1)
    with serving(tmp_path, log) as watched, ExitStack() as stack:
        if endpoint == "records":
            path = "/logs/log/records?follow=true&columns=sequence,value&from=1"
        else:
            path = f"/logs/log/wal?follow=true&from={position_of(watched)}"
        stalled = stack.enter_context(ask_and_never_read(watched, path))
        streams = [ServedStream(watched, path) for _ in range(READERS)]
        for stream in streams:
            stack.callback(stream.close)
        received = [0] * READERS
        commits = COMMITS[endpoint]
        wanted = commits * COMMIT_BYTES

        def read(number: int) -> None:
            while received[number] < wanted:
                received[number] += len(streams[number].some())

        threads = [threading.Thread(target=read, args=(number,)) for number in range(READERS)]
        for thread in threads:
            thread.start()
        random = Random(1)
        with LogWriter(log.folder) as writer:
            for _ in range(commits):
                writer.append([random.randbytes(COMMIT_BYTES // 32) for _ in range(32)])
            end = writer.next_sequence
        for thread in threads:
            thread.join(WAIT_SECONDS)
        assert min(received) >= wanted
        wait_until(lambda: watched.ask("/logs/log").json["acknowledged"] == end)
        readers = watched.ask("/logs/log").json["readers"]
        assert len(readers) == READERS + 1
        served = watched.service._logs.get("log")  # type: ignore[union-attr]
        assert sum(run.size for run in served.buffer.look()[1]) <= 2 * live_buffer.HELD_BYTES
        assert min(each["next"] or 0 for each in readers) < end, "the daemon waits for the reader that never reads"
        assert len(stalled.recv(16)) == 16


def test_each_limit_acts_and_is_seen_in_the_status_and_the_metrics(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    for _ in range(8):
        log.roll(50, size=1000)
    limits = ReaderLimits(readers=2, rate=1 << 20, size=200_000)
    with serving(tmp_path, log, reader_limits=limits) as watched:
        streams = [ServedStream(watched, "/logs/log/records?follow=1&from=end") for _ in range(2)]
        assert watched.ask("/logs/log/records").status == 429
        status = watched.ask("/status").json
        assert (status["serving"]["readers"], status["logs"][0]["readers"]) == (2, 2)
        for stream in streams:
            stream.close()
        wait_until(lambda: watched.ask("/logs/log").json["readers"] == [])
        got, following = [], 0
        while following < 400:
            lines = watched.ask(f"/logs/log/records?from={following}").body.splitlines()
            got += [json.loads(line)["sequence"] for line in lines]
            following = got[-1] + 1
        assert got == list(range(400)), "a stream that ended at the limit is continued"
        seen = watched.ask("/status").json["serving"]
        assert (seen["max_readers"], seen["max_reader_rate"], seen["max_reader_bytes"]) == (2, 1 << 20, 200_000)
        assert seen["refused_readers"] == 1
        assert seen["ended_streams"] >= 2
        assert seen["slowed_seconds"] > 0
        metrics = watched.ask("/metrics").body.decode()
        for line in (
            'litelog_reader_limit{limit="readers"} 2.0',
            'litelog_reader_limit{limit="bytes"} 200000.0',
            'litelog_readers_limited_total{limit="readers"} 1.0',
            f'litelog_readers_limited_total{{limit="bytes"}} {float(seen["ended_streams"])}',
            f'litelog_log_readers{{log="{log.folder}"}} 0.0',
        ):
            assert line in metrics
        slowed = re.search(r"\nlitelog_readers_slowed_seconds_total ([0-9.]+)", metrics)
        assert slowed is not None
        assert abs(float(slowed[1]) - seen["slowed_seconds"]) < 0.001
        sent = re.search(r"litelog_log_sent_bytes_total\{.*\} ([0-9.]+)", metrics)
        assert sent is not None
        assert float(sent[1]) > 400_000


@pytest.mark.parametrize(
    ("asked", "compressed"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("gzip;q=0", False), ("identity", False), ("", False)],
)
def test_a_stream_is_compressed_if_the_client_asks(
    tmp_path: Path, log: LogBuilder, asked: str, compressed: bool
) -> None:
    with serving(tmp_path, log) as watched:
        plain = watched.ask("/logs/log/records").body
        answer = watched.ask("/logs/log/records", headers={"Accept-Encoding": asked})
        assert answer.headers.get("content-encoding") == ("gzip" if compressed else None)
        assert (gzip.decompress(answer.body) if compressed else answer.body) == plain


def test_each_record_of_a_compressed_stream_can_be_read_at_once(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        stream = ServedStream(watched, "/logs/log/records?follow=true&from=2", {"Accept-Encoding": "gzip"})
        reader, text = zlib.decompressobj(16 + zlib.MAX_WBITS), b""
        while text.count(b"\n") < 1:
            text += reader.decompress(stream.some())
        log.append(1)
        while text.count(b"\n") < 2:
            text += reader.decompress(stream.some())
        assert [json.loads(line)["sequence"] for line in text.splitlines()] == [2, 3]
        stream.close()


@pytest.mark.parametrize("endpoint", ["records?from=end", "wal?from={position}"])
def test_a_stream_begins_before_there_is_anything_to_send(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setattr(news_desk, "KEEP_ALIVE_SECONDS", 2 * WAIT_SECONDS)
    with serving(tmp_path, log) as watched:
        stream = ServedStream(watched, f"/logs/log/{endpoint.format(position=position_of(watched))}&follow=true")
        log.append(1)
        assert stream.some()
        stream.close()


@pytest.mark.parametrize("accepted", ["application/x-ndjson", "text/event-stream"])
def test_signs_of_life_do_not_wake_a_stream_that_waits(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch, accepted: str
) -> None:
    """A stream that wakes makes its sign anew."""
    made, kind = list[bytes](), ENCODINGS[accepted]
    sign = kind(NAMES).keep_alive()
    monkeypatch.setattr(news_desk, "KEEP_ALIVE_SECONDS", 0.001)
    monkeypatch.setattr(kind, "keep_alive", lambda _self: made.append(sign) or sign)
    with serving(tmp_path, log) as watched:
        stream, got = ServedStream(watched, "/logs/log/records?from=end&follow=true", {"Accept": accepted}), b""
        log.append(1)
        while b"sequence" not in got or got.count(sign) < 20:
            got += stream.some()
        woken = len(made)
        log.append(1)
        while got.count(b'"sequence"') < 2:
            got += stream.some()
        stream.close()
    assert woken < 10


@pytest.mark.parametrize("endpoint", ["records?from=end", "wal?from={position}"])
def test_a_reader_at_the_end_gets_records_without_its_loop(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    """The loop is woken for the first record at most: it may come before the reader waits."""
    monkeypatch.setattr(news_desk, "KEEP_ALIVE_SECONDS", 2 * WAIT_SECONDS)
    heard, hear = list[object](), BufferNews.hear
    monkeypatch.setattr(BufferNews, "hear", lambda news: heard.append(news) or hear(news))
    with serving(tmp_path, log) as watched:
        stream = ServedStream(watched, f"/logs/log/{endpoint.format(position=position_of(watched))}&follow=true")
        log.append(1)
        assert stream.some()
        served = watched.service._logs.get("log")  # type: ignore[union-attr]
        (reader,) = served.all_readers()
        wait_until(lambda: reader.connection._lent.is_lent)  # type: ignore[union-attr]
        before, sent = len(heard), reader.sent_bytes
        for number in range(5):
            log.append(1)
            got = b""
            while b"r%d" % (number + 4) not in got:
                got += stream.some()
        wait_until(lambda: reader.next == 9)
        assert len(heard) == before
        assert reader.sent_bytes > sent
        stream.close()


def test_a_connection_serves_one_stream_after_another(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        address = watched.service.address
        assert address is not None
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=WAIT_SECONDS)
        position = position_of(watched)
        connection.connect()
        opened = connection.sock
        for path, status in (
            ("records", 200),
            ("records?from=x", 400),
            (f"wal?from={position}", 200),
            ("replica", 200),
            ("records?columns=value", 200),
        ):
            connection.request("GET", f"/logs/log/{path}")
            answer = connection.getresponse()
            answer.read()
            assert abs(parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()) < WAIT_SECONDS
            assert (path, answer.status, connection.sock is opened) == (path, status, True)
        connection.close()


def test_a_reader_of_an_object_counts_until_its_answer_has_ended(tmp_path: Path, log: LogBuilder) -> None:
    limits = ReaderLimits(readers=1, rate=100)
    with serving(tmp_path, log, reader_limits=limits) as watched:
        ((key, size), *_) = watched.ask("/logs/log/replica?prefix=generations/").json["objects"]
        assert size > limits.rate  # type: ignore[operator]
        stream = ServedStream(watched, f"/logs/log/replica/{key}")
        assert len(stream.some()) == limits.rate
        assert [each["kind"] for each in watched.ask("/logs/log").json["readers"]] == ["objects"]
        assert watched.ask("/logs/log/records").status == 429
        stream.close()
        wait_until(lambda: watched.ask("/logs/log").json["readers"] == [])
        assert watched.ask("/logs/log/records?limit=0").status == 200


def test_the_answer_with_an_object_states_its_size(tmp_path: Path, log: LogBuilder) -> None:
    ranges = ((None, 0, None), ("bytes=0-9", 0, 10), ("bytes=5-", 5, None), ("bytes=3-999999999", 3, None))
    with serving(tmp_path, log) as watched:
        objects = watched.ask("/logs/log/replica?prefix=").json["objects"]
        assert {key.partition("/")[0] for key, _ in objects} == {"epochs", "generations"}
        for key, size in objects:
            stored = (tmp_path / "replica" / key).read_bytes()
            for given, start, end in ranges:
                answer = watched.ask(f"/logs/log/replica/{key}", headers={"range": given} if given else None)
                headers = {name.lower(): value for name, value in answer.headers.items()}
                assert answer.body == stored[start:end]
                assert headers["content-length"] == str(len(stored[start:end]))
                assert "transfer-encoding" not in headers
            assert watched.ask(f"/logs/log/replica/{key}", "HEAD").headers["content-length"] == str(size)
