"""The heartbeat is sent only while the daemon is healthy. Its results are logged once, and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")
pytest.importorskip("boto3")

from replica_clients.memory import MemoryStore
from tests.builders.server_builder import HangingStore, Watched
from tests.builders.servers import Answer, Request, ScriptedServer

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore
    from tests.builders.log_builder import LogBuilder

SECRET = "canary-check-id"


def beating(endpoint: str, **more: object) -> dict[str, object]:
    return {"heartbeat_url": f"{endpoint}/ping/{SECRET}?key={SECRET}", "heartbeat_interval": 0.02, **more}


@pytest.mark.slow
def test_it_is_sent_only_while_every_replica_is_within_max_lag(
    tmp_path: Path, log: LogBuilder, stores: dict[str, ObjectStore]
) -> None:
    url = "testing://hanging"
    store = stores[url] = HangingStore(MemoryStore(url), url)
    store.hang()
    pairs = [(log, [url, f"file://{tmp_path}/well"])]
    with (
        ScriptedServer(lambda request: Answer()) as monitor,
        Watched(tmp_path, pairs, beating(monitor.endpoint, max_lag=0.5)) as watched,
    ):
        watched.wait_until(lambda: watched.ask("/status").json["heartbeat"]["withheld"] > 0)
        assert monitor.requests == []
        store.release()
        watched.wait_until(lambda: len(monitor.requests) > 2)
        assert {(each.method, each.path) for each in monitor.requests} == {("GET", f"/ping/{SECRET}?key={SECRET}")}
        store.hang()
        log.append(1)
        withheld = watched.ask("/status").json["heartbeat"]["withheld"]
        watched.wait_until(lambda: watched.ask("/status").json["heartbeat"]["withheld"] > withheld + 1)
        silent = len(monitor.requests)
        watched.wait_until(lambda: watched.ask("/status").json["heartbeat"]["withheld"] > withheld + 5)
        assert len(monitor.requests) == silent
        store.release()
        watched.wait_until(lambda: len(monitor.requests) > silent)


@pytest.mark.slow
def test_a_failure_is_reported_once_without_its_secret_and_counted(
    tmp_path: Path, log: LogBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    failing = True

    def answer(request: Request) -> Answer:
        return Answer(500 if failing else 200, SECRET.encode())

    caplog.set_level("INFO")
    with (
        ScriptedServer(answer) as monitor,
        Watched(tmp_path, [(log, [f"file://{tmp_path}/one"])], beating(monitor.endpoint)) as watched,
    ):
        watched.wait_until(lambda: watched.ask("/status").json["heartbeat"]["failed"] > 3)
        assert watched.ask("/healthz").status == 200
        failing = False
        watched.wait_until(lambda: watched.ask("/status").json["heartbeat"]["succeeded"] > 3)
        told = watched.ask("/metrics").body.decode() + watched.ask("/status").body.decode()
    said = [record.getMessage() for record in caplog.records if "heartbeat" in record.getMessage()]
    assert [line.partition(";")[0] for line in said] == [
        f"heartbeat: {monitor.endpoint} cannot be called (status 500)",
        "heartbeat: answered again",
    ]
    assert SECRET not in told + caplog.text
    assert 'litelog_heartbeats_total{result="ok"}' in told


@pytest.mark.slow
def test_a_request_without_an_answer_is_not_a_problem(tmp_path: Path, log: LogBuilder) -> None:
    with ScriptedServer(lambda request: Answer()) as gone:
        endpoint = gone.endpoint
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/one"])], beating(endpoint)) as watched:
        watched.wait_until(lambda: watched.ask("/status").json["heartbeat"]["failed"] > 1)
        log.append(2)
        watched.wait_until(lambda: watched.replica()["next"] == 5)
        assert watched.ask("/status").json["heartbeat"]["last_success"] is None
