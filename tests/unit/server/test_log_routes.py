"""Records of a log over HTTP: the past, the live end, forks, and readers that are slow or gone."""

from __future__ import annotations

import json
import os
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from litelog.consumers.consumer import Consumer
from litelog.live import live_buffer
from litelog.live.reader_limits import ReaderLimits
from litelog.live.served_logs import ServedLogs
from litelog.log.writer import LogWriter
from litelog.server.http_server import MAX_CLIENTS
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.served_stream import ServedStream
from tests.builders.server_builder import TOKEN, Watched
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.slow

ARROW = "application/vnd.apache.arrow.stream"
EVENTS = "text/event-stream"


@contextmanager
def serving(tmp_path: Path, log: LogBuilder, **settings: Any) -> Iterator[Watched]:
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all", **settings}) as watched:
        watched.wait_until_ready()
        yield watched


def lines(answer: Any) -> list[dict[str, Any]]:
    assert answer.status == 200, answer.body
    return [json.loads(line) for line in answer.body.splitlines() if line]


def sequences(answer: Any) -> list[int]:
    return [line["sequence"] for line in lines(answer)]


def test_the_served_logs_are_listed_with_their_facts(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        (facts,) = watched.ask("/logs").json["logs"]
        assert (facts["name"], facts["folder"], facts["format"], facts["acknowledged"], facts["readers"]) == (
            "log",
            log.folder,
            "litelog",
            3,
            0,
        )
        assert facts["acknowledged_position"].endswith(f"/{os.path.getsize(log.path()):016x}")
        assert watched.ask("/logs/log").json["readers"] == []


def test_the_facts_of_a_log_say_what_its_folder_holds(tmp_path: Path, log: LogBuilder) -> None:
    log.roll(4)
    with serving(tmp_path, log) as watched:
        records = lines(watched.ask("/logs/log/records"))
        for first in (0, 3):
            facts = watched.ask("/logs/log").json
            assert facts["first"] == first
            assert facts["first_time"] == records[first]["timestamp"]
            assert (facts["last_time"], facts["next"]) == (records[-1]["timestamp"], records[-1]["sequence"] + 1)
            if not first:
                log.delete(min(log.texts))
        log.delete(max(log.texts))
        facts = watched.ask("/logs/log").json
        assert (facts["first"], facts["next"], facts["first_time"], facts["last_time"]) == (None, None, None, None)


def test_a_log_that_goes_while_the_logs_are_listed_is_left_out(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path, log) as watched:
        monkeypatch.setattr(ServedLogs, "names", lambda _logs: ["gone", "log"])
        assert [each["name"] for each in watched.ask("/logs").json["logs"]] == ["log"]
        assert watched.service._logs is not None
        watched.service._logs.close()
        ending = watched.ask("/logs")
        assert (ending.status, ending.json["error"]["message"]) == (503, "gone: the daemon is ending")


def test_clients_without_a_body_or_without_chunks_get_what_they_ask_for(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        plain = watched.ask("/logs/log/records?columns=sequence").body
        for request, body in (
            ("HEAD /logs/log/records?columns=sequence HTTP/1.1", b""),
            ("HEAD /logs/log/records?follow=true HTTP/1.1", b""),
            ("GET /logs/log/records?columns=sequence HTTP/1.0", plain),
        ):
            with watched.connect() as connection:
                connection.sendall(f"{request}\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                answer = connection.makefile("rb").read()
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer
            assert answer.partition(b"\r\n\r\n")[2] == body


RANGES: dict[str, Sequence[int]] = {
    "": range(3),
    "from=1": [1, 2],
    "from=1&to=2": [1],
    "from=latest": [2],
    "from=end": [],
    "limit=2": [0, 1],
    "limit=0": [],
    "from=7": [],
    "from=2&follow=false": [2],
    "from=oldest": [0, 1, 2],
    "from=beginning": [0, 1, 2],
    "from=last": [2],
    "from=now": [],
    "from=2month3days": [],
    "from=100year": [0, 1, 2],
    "from=1970-01-01": [0, 1, 2],
    "from=2200-01-01T00:00:00Z": [],
}


def test_records_between_two_places_are_sent(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        for query, expected in RANGES.items():
            answer = watched.ask(f"/logs/log/records?{query}")
            assert answer.headers["content-type"] == "application/x-ndjson"
            assert (query, sequences(answer)) == (query, list(expected))
            assert all(line["value"] == f"r{line['sequence']}".ljust(10, ".") for line in lines(answer))


def test_chosen_columns_are_sent_in_each_encoding(tmp_path: Path, log: LogBuilder) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    with serving(tmp_path, log) as watched:
        path = "/logs/log/records?columns=sequence,value&from=1"
        assert lines(watched.ask(path)) == [
            {"sequence": 1, "value": "r1........"},
            {"sequence": 2, "value": "r2........"},
        ]
        table = pyarrow.ipc.open_stream(watched.ask(path, headers={"Accept": ARROW}).body).read_all()
        assert table.to_pylist() == [
            {"sequence": 1, "value": b"r1........"},
            {"sequence": 2, "value": b"r2........"},
        ]
        events = watched.ask(path, headers={"Accept": EVENTS}).body.decode()
        assert events == (
            'retry: 1000\n\nid: 1\ndata: {"sequence": 1, "value": "r1........"}\n\n'
            'id: 2\ndata: {"sequence": 2, "value": "r2........"}\n\nevent: end\ndata: {}\n\n'
        )
        resumed = watched.ask(path, headers={"Accept": EVENTS, "Last-Event-ID": "1"}).body.decode()
        assert "id: 1\n" not in resumed
        assert "id: 2\n" in resumed


def test_a_follower_gets_what_is_appended_and_others_wait_for_the_first_record(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        stream = ServedStream(watched, "/logs/log/records?from=2&follow=true")
        assert stream.line()["sequence"] == 2
        waiting: list[Any] = []
        waiter = threading.Thread(
            target=lambda: waiting.append(watched.ask(f"/logs/log/records?from=3&wait={WAIT_SECONDS}s"))
        )
        waiter.start()
        wait_until(lambda: watched.ask("/logs/log").json["readers"].__len__() == 2)
        log.append(2)
        assert [stream.line()["sequence"] for _ in range(2)] == [3, 4]
        waiter.join(WAIT_SECONDS)
        assert sequences(waiting[0])[0] == 3
        stream.close()
        wait_until(lambda: watched.ask("/logs/log").json["readers"] == [])


def test_a_wait_that_nothing_ends_gives_no_record(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        assert sequences(watched.ask("/logs/log/records?from=3&wait=50ms")) == []


def test_records_that_the_folder_dropped_come_from_a_replica(tmp_path: Path, log: LogBuilder) -> None:
    for _ in range(3):
        log.roll(3)
    with serving(tmp_path, log) as watched:
        first, second, *_ = log.files()
        log.delete(first)
        log.delete(second)
        assert sequences(watched.ask("/logs/log/records")) == list(range(12))
        assert sequences(watched.ask("/logs/log/records?from=4&to=8")) == list(range(4, 8))


def test_records_that_are_gone_everywhere_are_an_error_with_the_next_one(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    log.next = 5
    log.roll(3)
    with serving(tmp_path, log) as watched:
        answer = watched.ask("/logs/log/records?from=1")
        error = answer.json["error"]
        assert (answer.status, error["kind"], error["next"]) == (410, "gone", 5)
        assert sequences(watched.ask("/logs/log/records?from=earliest")) == [5, 6, 7]


def test_a_fork_ends_a_stream_with_an_error(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        stream = ServedStream(watched, "/logs/log/records?follow=true")
        assert [stream.line()["sequence"] for _ in range(3)] == [0, 1, 2]
        log.truncate(len(log.header()) + (len(log.texts[log.name]) - len(log.header())) // 3)
        log.next = 1
        log.append(3, size=30)
        error = stream.line()["error"]
        assert (error["http_status"], "its history forked" in error["message"]) == (409, True)
        assert stream.rest() == b""
        stream.close()
        wait_until(lambda: sequences(watched.ask("/logs/log/records?from=1")) == [1, 2, 3])


def test_a_reader_that_reads_nothing_delays_nobody_and_costs_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buffer drops what the slow reader has not got, and the reader gets it from the folder later."""
    monkeypatch.setattr(live_buffer, "HELD_BYTES", 1 << 16)
    monkeypatch.setattr(live_buffer, "RUN_BYTES", 1 << 14)
    log = make_log(tmp_path / "log")
    log.roll(1)
    with serving(tmp_path, log) as watched:
        slow = ServedStream(watched, "/logs/log/records?from=0&follow=true&columns=sequence,value")
        assert slow.line()["sequence"] == 0
        fast = ServedStream(watched, "/logs/log/records?from=1&follow=true&columns=sequence")
        with LogWriter(log.folder) as writer:
            for _ in range(100):
                writer.append([b"x" * 1000] * 100)
        assert [fast.line()["sequence"] for _ in range(10_000)] == list(range(1, 10_001))
        served = watched.service._logs.get("log")  # type: ignore[union-attr]
        assert sum(run.size for run in served.buffer.look()[1]) < 1 << 18
        assert [slow.line()["sequence"] for _ in range(10_000)] == list(range(1, 10_001))
        slow.close()
        fast.close()


def test_many_followers_get_each_record_once(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        streams = [ServedStream(watched, f"/logs/log/records?follow=1&from={number % 3}") for number in range(80)]
        log.append(50)
        log.roll(20)
        for number, stream in enumerate(streams):
            assert [stream.line()["sequence"] for _ in range(73 - number % 3)] == list(range(number % 3, 73))
        assert watched.ask("/healthz").status == 200, "readers of logs leave room for health"
        for stream in streams:
            stream.close()


def test_one_record_is_sent_as_json(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        (line,) = lines(watched.ask("/logs/log/records?from=1&to=2"))
        answer = watched.ask("/logs/log/records/1")
        assert (answer.status, answer.json, answer.headers["content-type"]) == (200, line, "application/json")
        missing = watched.ask("/logs/log/records/3")
        assert (missing.status, missing.json["error"]["message"]) == (
            404,
            "log: no record has the sequence 3, or none yet",
        )
        assert watched.ask("/logs/log/records/x").status == 400
        assert watched.ask("/logs/other/records/1").status == 404
        assert watched.ask("/logs/log").json["readers"] == []


def test_many_followers_may_come_at_once(tmp_path: Path, log: LogBuilder) -> None:
    """More connections wait for their first request at one time than the service has room for otherwise."""
    with serving(tmp_path, log) as watched, ExitStack() as stack:
        waiting = [stack.enter_context(watched.connect()) for _ in range(2 * MAX_CLIENTS)]
        for connection in waiting:
            connection.sendall(b"GET /logs/log/records HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        for connection in waiting:
            assert connection.makefile("rb").read().count(b'"sequence"') == 3


def test_there_are_limits_on_readers(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log, reader_limits=ReaderLimits(2)) as watched:
        streams = [ServedStream(watched, "/logs/log/records?follow=1") for _ in range(2)]
        refused = watched.ask("/logs/log/records")
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        streams[0].close()
        wait_until(lambda: watched.ask("/logs/log/records").status == 200)
        streams[1].close()


BAD_REQUESTS: list[tuple[str, dict[str, str], int, str]] = [
    ("/logs/other", {}, 404, "other: no such log is served here"),
    ("/logs/other/records", {}, 404, "other: no such log is served here"),
    ("/logs/log/records?from=x", {}, 400, "from: 'x' is not a place in a log: expected"),
    ("/logs/log/records?from=-1", {}, 400, "from: '-1' is not a place in a log: expected"),
    ("/logs/log/records?to=99999999999999999999", {}, 400, "is not a whole number"),
    ("/logs/log/records?limit=1.5", {}, 400, "limit: 1.5 is not a whole number"),
    ("/logs/log/records?wait=year", {}, 400, "wait: "),
    ("/logs/log/records?wait=1d", {}, 400, "wait: must be at most 600s"),
    ("/logs/log/records?follow=maybe", {}, 400, "follow: must be true or false"),
    ("/logs/log/records?columns=name", {}, 400, "columns: name: write one or more of"),
    ("/logs/log/records?offset=1", {}, 400, "offset: no such parameter; known:"),
    ("/logs/log/replica/a//b", {}, 400, "not an object's key: 'a//b'"),
    ("/logs/log/records", {"Last-Event-ID": "x"}, 400, "Last-Event-ID: x is not a whole number"),
    ("/logs/log/records", {"Accept": "text/html"}, 406, "Accept names none of"),
]


def test_bad_requests_are_answered_in_json(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        for path, headers, status, said in BAD_REQUESTS:
            answer = watched.ask(path, headers=headers)
            assert (answer.status, said in answer.json["error"]["message"]) == (status, True), path
        assert watched.ask("/logs/log").json["readers"] == []


def test_a_log_that_is_not_named_is_not_served(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log, serve=("other",)) as watched:
        assert watched.ask("/logs").json["logs"] == []
        assert watched.ask("/logs/log/records").status == 404
    with serving(tmp_path, log, serve=()) as watched:
        assert watched.ask("/logs").status == 404


def test_without_the_token_nothing_of_a_log_is_shown(tmp_path: Path, log: LogBuilder) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    with serving(tmp_path, log, token_file=str(tmp_path / "token")) as watched:
        for path in ("/logs", "/logs/log", "/logs/log/records", "/logs/other"):
            answer = watched.ask(path)
            assert (answer.status, b"r0" in answer.body, log.folder.encode() in answer.body) == (401, False, False)
        assert sequences(watched.ask("/logs/log/records", headers={"Authorization": f"Bearer {TOKEN}"})) == [0, 1, 2]


def test_the_consumers_of_a_log_are_listed_and_a_stream_begins_where_one_is(tmp_path: Path, log: LogBuilder) -> None:
    with serving(tmp_path, log) as watched:
        assert watched.ask("/logs/log").json["consumers"] == []
        for name, count in (("billing", 2), ("waiting", 0)):
            with Consumer(log.folder, name, follow=False, state_dir=str(watched.folder / "state")) as consumer:
                for _ in range(count):
                    next(consumer)
                consumer.poll() if count == 0 else consumer.commit()
        billing, waiting = watched.ask("/logs/log").json["consumers"]
        assert (billing["consumer"], billing["next"], billing["lag_records"]) == ("billing", 2, 1)
        assert (waiting["consumer"], waiting["next"], waiting["lag_records"]) == ("waiting", 0, 3)
        assert sequences(watched.ask("/logs/log/records?from=consumer:billing")) == [2]
        assert sequences(watched.ask("/logs/log/records?from=consumer:waiting")) == [0, 1, 2]
        unknown = watched.ask("/logs/log/records?from=consumer:other")
        assert (unknown.status, b"no consumer other" in unknown.body) == (404, True)
        assert watched.ask("/logs/log/records?from=consumer:../x").status == 400
        with open(log.path(), "r+b") as file:
            file.write(b"damaged!")
        damaged = watched.ask("/logs/log")
        assert (damaged.status, [each["consumer"] for each in damaged.json["consumers"]]) == (
            200,
            ["billing", "waiting"],
        )
        assert watched.ask("/logs/log").json["readers"] == []
