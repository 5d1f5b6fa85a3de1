"""The end of the service: streams end with the reason, requests that wait are given up, and nothing is logged of it."""

from __future__ import annotations

import http.client
import io
import json
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from litelog.objects.wal_stream import StreamError, read_stream
from tests.builders.server_builder import Watched
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.log_builder import LogBuilder

pytestmark = pytest.mark.slow

ENDING = "log: the daemon is ending"


def test_streams_end_with_the_reason_when_the_daemon_ends(
    tmp_path: Path, log: LogBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "uvicorn")
    watched = Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], {"serve": "all"})
    with ExitStack() as stack:
        with watched:
            watched.wait_until_ready()
            place = watched.ask("/logs/log").json["acknowledged_position"]
            assert watched.service.address is not None
            port = watched.service.address.port

            def ask(path: str, accept: str = "*/*") -> http.client.HTTPConnection:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
                connection.request("GET", path, headers={"accept": accept})
                stack.callback(connection.close)
                return connection

            streams = [
                ask(f"/logs/log/wal?from={place}&follow=true"),
                ask("/logs/log/records?from=end&follow=true"),
                ask("/logs/log/records?from=end&follow=true", "text/event-stream"),
            ]
            answers = [each.getresponse() for each in streams]
            wait_until(lambda: len(watched.ask("/logs/log").json["readers"]) == len(streams))
            waiting = [
                ask(f"/logs?wait=60s&revision={watched.ask('/logs').json['revision']}"),
                ask("/logs/log/mirrors?sequence=1000&wait=60s"),
            ]
            ask("/logs").getresponse()  # what was asked for before has begun
        wal, lines, events = (each.read() for each in answers)
        assert list(read_stream("log", io.BytesIO(wal)))[-1] == StreamError(503, ENDING)
        assert json.loads(lines.splitlines()[-1]) == {"error": {"message": ENDING, "http_status": 503}}
        assert (b"event: error" in events, ENDING.encode() in events) == (True, True)
        for connection in waiting:
            with pytest.raises((http.client.HTTPException, ConnectionError)):
                connection.getresponse()
    assert [record.getMessage() for record in caplog.records if record.name.startswith("uvicorn")] == []
