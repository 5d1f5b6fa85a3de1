"""The daemon's answers over HTTP are right even if shipping hangs, fails or is frozen."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from replica_clients.memory import MemoryStore
from tests.builders.log_builder import make_log
from tests.builders.server_builder import HangingStore, Watched
from tests.builders.stores import Fault, FaultyStore

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore
    from tests.builders.log_builder import LogBuilder


def values(watched: Watched) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All samples, keyed by name and labels."""
    families = text_string_to_metric_families(watched.ask("/metrics").body.decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.slow
def test_a_replica_that_has_all_of_its_log_is_reported_as_synced(tmp_path: Path, log: LogBuilder) -> None:
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/one"])]) as watched:
        watched.wait_until_ready()
        report = watched.ask("/status").json
        replica = report["logs"][0]["replicas"][0]
        assert (report["version"], report["source"], report["healthy"], report["reasons"]) == (1, "daemon", True, [])
        assert (report["logs"][0]["log"], replica["replica"]) == (log.folder, f"file://{tmp_path}/one")
        assert (replica["lag_bytes"], replica["lag_seconds"], replica["next"]) == (0, 0.0, 3)
        assert replica["position"].endswith(f"/{os.path.getsize(log.path()):016x}")
        assert replica["recent_generations"][0]["relation"] == "first"
        assert replica["wal"]["log_bytes"] == os.path.getsize(log.path())
        assert {"kind": "put", "result": "exists", "count": 1} in replica["requests"]  # the claim's second put
        assert watched.ask("/healthz").json == {"status": "ok", "verdict": "safe", "reasons": []}


@pytest.mark.slow
def test_lag_grows_while_a_store_hangs_and_health_says_so_until_it_recovers(
    tmp_path: Path, log: LogBuilder, stores: dict[str, ObjectStore]
) -> None:
    url = "testing://hanging"
    store = stores[url] = HangingStore(MemoryStore(url), url)
    with Watched(tmp_path, [(log, [url, f"file://{tmp_path}/well"])], {"max_lag": 0.5}) as watched:
        watched.wait_until_ready()
        store.hang()
        before = os.path.getsize(log.path())
        log.append(5)
        grown = os.path.getsize(log.path()) - before
        watched.wait_until(lambda: watched.ask("/healthz").status == 503)
        reasons = watched.ask("/healthz").json["reasons"]
        assert {(reason["kind"], reason["replica"]) for reason in reasons} == {("lag", url)}
        first = watched.replica()["lag_seconds"]
        watched.wait_until(lambda: watched.replica()["lag_seconds"] > first)
        assert watched.replica()["lag_bytes"] == grown
        assert watched.replica(1)["lag_bytes"] == 0
        told = values(watched)
        labels = (("log", log.folder), ("replica", url))
        assert told["litelog_replica_lag_bytes", labels] == grown
        assert told["litelog_replica_lag_seconds", labels] > 0.5
        assert (told["litelog_healthy", ()], told["litelog_ready", ()]) == (0, 1)
        assert watched.ask("/readyz").status == 200, "it has started, and stays ready although a replica is late"
        store.release()
        watched.wait_until(lambda: watched.ask("/healthz").status == 200)
        assert watched.replica()["lag_bytes"] == 0


@pytest.mark.slow
def test_it_is_not_ready_before_the_first_sync_of_every_replica(
    tmp_path: Path, log: LogBuilder, stores: dict[str, ObjectStore]
) -> None:
    url = "testing://late"
    store = stores[url] = HangingStore(MemoryStore(url), url)
    store.hang()
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/early", url])]) as watched:
        watched.wait_until(lambda: len(watched.ask("/status").json["logs"]) == 1 and watched.replica()["synced"])
        answer = watched.ask("/readyz")
        assert (answer.status, [(each["kind"], each["replica"]) for each in answer.json["reasons"]]) == (
            503,
            [("not_synced", url)],
        )
        assert watched.ask("/healthz").status == 200
        store.release()
        watched.wait_until_ready()


@pytest.mark.slow
def test_a_frozen_log_fails_the_health_and_is_counted(tmp_path: Path, log: LogBuilder) -> None:
    other = make_log(tmp_path / "other")
    other.roll(1)
    pairs = [(log, [f"file://{tmp_path}/one"]), (other, [f"file://{tmp_path}/two"])]
    with Watched(tmp_path, pairs) as watched:
        watched.wait_until_ready()
        damaged = bytearray(log.commit())
        damaged[-1] ^= 1
        log.write(bytes(damaged) + log.commit() + log.commit())
        watched.wait_until(lambda: watched.ask("/healthz").status == 503)
        (reason,) = watched.ask("/healthz").json["reasons"]
        assert (reason["kind"], reason["log"]) == ("frozen", log.folder)
        told = values(watched)
        assert told["litelog_frozen_logs", ()] == 1
        labels = (("log", log.folder), ("replica", f"file://{tmp_path}/one"))
        assert told["litelog_replica_frozen", labels] == 1
        assert told["litelog_errors_total", (("kind", "corruption"), *labels)] == 1
        assert watched.replica()["recent_errors"][0]["kind"] == "corruption"


@pytest.mark.slow
def test_a_store_that_only_fails_is_reported_with_its_errors(
    tmp_path: Path, log: LogBuilder, stores: dict[str, ObjectStore]
) -> None:
    url = "testing://failing"
    store = MemoryStore(url)
    stores[url] = faulty = FaultyStore(store, rates={"put": ((Fault.BEFORE,), 1.0)})
    faulty.url = url
    faulty.enabled = False
    with Watched(tmp_path, [(log, [url])], {"max_lag": 0.5}) as watched:
        watched.wait_until_ready()
        faulty.enabled = True
        log.append(1)
        watched.wait_until(lambda: any(r["kind"] == "failing" for r in watched.ask("/healthz").json["reasons"]))
        replica = watched.replica()
        assert replica["errors"]["store"] >= 1
        assert replica["recent_errors"][-1]["count"] == replica["errors"]["store"]
        assert {(each["kind"], each["result"]) for each in replica["requests"]} >= {("put", "error"), ("put", "ok")}
        faulty.enabled = False
        watched.wait_until(lambda: watched.ask("/healthz").status == 200)
        assert (watched.replica()["sync_error"], watched.replica()["failing_seconds"]) == (None, 0)


@pytest.mark.slow
def test_sync_returns_once_the_existing_data_is_durable(
    tmp_path: Path, log: LogBuilder, stores: dict[str, ObjectStore]
) -> None:
    url = "testing://slow"
    store = stores[url] = HangingStore(MemoryStore(url), url)
    well = f"file://{tmp_path}/well"
    with Watched(tmp_path, [(log, [url, well])]) as watched:
        watched.wait_until_ready()
        store.hang()
        log.append(2)
        end = f"{os.path.getsize(log.path()):016x}"
        named = watched.ask(f"/sync?wait=20s&replica={well}", "POST")
        assert (named.status, named.json["reached"], named.json["replica_count"]) == (200, True, 1)
        assert watched.replica(1)["position"].endswith(end)
        late = watched.ask("/sync?wait=100ms", "POST")
        assert (late.status, [each["replica"] for each in late.json["unreached"]]) == (504, [url])
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(watched.ask("/sync?wait=20s", "POST")))
        waiting.start()
        store.release()
        waiting.join()
        assert (answers[0].status, answers[0].json["unreached"]) == (200, [])
        assert watched.replica()["position"].endswith(end)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "status"),
    [("/sync?wait=soon", 400), ("/sync?wait=1h", 400), ("/sync?log=/no/such", 404), ("/sync?replica=no", 404)],
)
def test_a_sync_of_nothing_is_refused(tmp_path: Path, log: LogBuilder, target: str, status: int) -> None:
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/one"])]) as watched:
        watched.wait_until_ready()
        answer = watched.ask(target, "POST")
        assert (answer.status, list(answer.json)) == (status, ["version", "error"])
        assert watched.ask("/sync").status == 405


@pytest.mark.slow
def test_an_unknown_path_is_an_error_in_json_or_in_text_for_a_browser(tmp_path: Path, log: LogBuilder) -> None:
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/one"])]) as watched:
        for path, method, status, kind, words in (
            ("/nope", "GET", 404, "not-found", "/nope is not here"),
            ("/status", "POST", 405, "method-not-allowed", "/status does not take POST, but GET and HEAD"),
        ):
            answer = watched.ask(path, method)
            error = answer.json["error"]
            assert (answer.status, error["kind"], error["http_status"]) == (status, kind, status)
            assert words in error["message"]
            browser = watched.ask(path, method, headers={"Accept": "text/html,*/*;q=0.8"})
            assert (browser.status, browser.headers["content-type"]) == (status, "text/plain; charset=utf-8")
            assert words in browser.body.decode()


@pytest.mark.slow
def test_a_rewound_log_is_a_generation_change_with_its_reason(tmp_path: Path, log: LogBuilder) -> None:
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/one"])]) as watched:
        watched.wait_until_ready()
        os.truncate(log.path(), os.path.getsize(log.path()) - len(log.commit()))
        watched.wait_until(lambda: len(watched.replica()["recent_generations"]) == 2)
        old, new = watched.replica()["recent_generations"]
        assert (new["relation"], new["predecessor"]) == ("diverged", old["generation"])
        assert new["reason"]
        assert watched.replica()["generation_changes"] == {"first": 1, "diverged": 1}
        labels = (("log", log.folder), ("reason", "diverged"), ("replica", f"file://{tmp_path}/one"))
        assert values(watched)["litelog_generation_changes_total", labels] == 1


@pytest.mark.slow
def test_a_generation_that_is_resumed_is_not_a_change(tmp_path: Path, log: LogBuilder) -> None:
    pairs = [(log, [f"file://{tmp_path}/one"])]
    with Watched(tmp_path, pairs) as watched:
        watched.wait_until_ready()
    with Watched(tmp_path, pairs) as again:
        again.wait_until_ready()
        replica = again.replica()
        assert ([each["relation"] for each in replica["recent_generations"]], replica["generation_changes"]) == (
            ["resumed"],
            {},
        )


@pytest.mark.slow
def test_the_history_is_shown_on_request(tmp_path: Path, log: LogBuilder) -> None:
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/one"])]) as watched:
        watched.wait_until_ready()
        assert watched.replica()["lag_history"] is None

        def samples() -> list[dict[str, float]]:
            report = watched.ask("/status?history=1").json
            found: list[dict[str, float]] = report["logs"][0]["replicas"][0]["lag_history"]
            return found

        watched.wait_until(lambda: len(samples()) == 1)
        assert set(samples()[0]) == {"seconds_ago", "lag_seconds", "lag_bytes"}
        other = watched.ask("/status?log=/other")
        assert (other.status, other.json) == (
            404,
            {
                "version": 1,
                "error": {"kind": "not-found", "message": "/other: is not replicated here", "http_status": 404},
            },
        )


@pytest.mark.slow
def test_latency_counts_every_wal_segment(tmp_path: Path, log: LogBuilder) -> None:
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/one"])]) as watched:
        watched.wait_until_ready()
        log.append(1)
        watched.wait_until(lambda: watched.replica()["next"] == 4)
        told, written = values(watched), watched.replica()["wal"]["objects"]
        labels = (("log", log.folder), ("replica", f"file://{tmp_path}/one"))
        assert told["litelog_replication_latency_seconds_count", labels] == written == 2
        buckets = [
            value
            for (name, pairs), value in told.items()
            if name == "litelog_replication_latency_seconds_bucket" and set(labels) <= set(pairs)
        ]
        assert buckets == sorted(buckets)
        assert buckets[-1] == written
        puts = sum(each["count"] for each in watched.replica()["requests"] if each["kind"] == "put")
        assert values(watched)["litelog_request_duration_seconds_count", (("kind", "put"),)] == puts
