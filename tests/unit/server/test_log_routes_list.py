"""The list of served logs: a client waits for another one, and sees only the logs that it may read."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("urllib3")

import urllib3

import litelog
from litelog.config.access import TokenConfig
from litelog.live.served_logs import ServedLogs
from litelog.replicator import Replicator
from litelog.server import log_routes
from tests.builders.log_builder import make_log
from tests.builders.server_builder import TOKEN, Watched, serving_folder
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.replicator.live_log import LiveLog

pytestmark = pytest.mark.slow

READER = "token-of-a-reader-of-one-log-0123456789"


def test_a_client_waits_for_logs_that_appear_or_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that may read one log learns nothing of the others."""
    monkeypatch.setattr(log_routes, "LIST_SECONDS", 0.01)
    names, looks = ["mine"], threading.Event()

    def served(_logs: ServedLogs) -> list[str]:
        looks.set()
        return list(names)

    monkeypatch.setattr(ServedLogs, "names", served)
    for name, token in (("token", TOKEN), ("reader", READER)):
        (tmp_path / name).write_text(token)
        (tmp_path / name).chmod(0o600)
    tokens = (TokenConfig(file=str(tmp_path / "reader"), rights=("read",), logs=("mine",)),)
    log = make_log(tmp_path / "mine")
    log.roll(1)
    settings = {"serve": "all", "token_file": str(tmp_path / "token"), "tokens": tokens}
    with Watched(tmp_path, [(log, [f"file://{tmp_path}/replica"])], settings) as watched:
        watched.wait_until_synced()
        limited, full = ({"Authorization": f"Bearer {token}"} for token in (READER, TOKEN))
        first = watched.ask("/logs", headers=limited).json
        assert ([each["name"] for each in first["logs"]], first["version"]) == (["mine"], 1)
        assert watched.ask("/logs", headers=full).json["revision"] == first["revision"]
        for query in ("?wait=1s", "?revision=x&wait=601s", "?from=1"):
            assert watched.ask(f"/logs{query}", headers=full).status == 400
        assert watched.ask("/logs?revision=other&wait=600s", headers=full).json == first
        wait = f"/logs?revision={first['revision']}&wait="
        assert watched.ask(wait + "1ms", headers=full).json == first
        answers = list[object]()
        waiting = threading.Thread(target=lambda: answers.append(watched.ask(wait + "600s", headers=full).json))
        looks.clear()
        waiting.start()
        assert looks.wait(WAIT_SECONDS)
        names.append("secret")
        waiting.join(WAIT_SECONDS)
        assert answers[0]["revision"] != first["revision"]  # type: ignore[index]
        assert watched.ask(wait + "1ms", headers=limited).json == first
        names.remove("mine")
        assert watched.ask(wait + "600s", headers=limited).json["logs"] == []


def test_a_program_waits_for_the_logs_of_a_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_routes, "LIST_SECONDS", 10 * WAIT_SECONDS)  # changes alone wake requests
    make_log(tmp_path / "logs" / "app-0").roll(1)
    with serving_folder(tmp_path) as url, litelog.LogList(url, pattern="app-*") as served:
        assert served.wait(WAIT_SECONDS)
        assert served.names() == ("app-0",)
        make_log(tmp_path / "logs" / "app-1").roll(1)
        assert served.wait(WAIT_SECONDS)
        assert served.names() == ("app-0", "app-1")
        assert not served.wait(0.01)


def test_the_list_goes_through_all_logs_once_and_not_for_each_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"app-{number}" for number in range(12)]
    for name in names:
        make_log(tmp_path / "logs" / name).roll(1)
    live_logs, passes = Replicator.live_logs, list[None]()

    def count(self: Replicator) -> dict[str, LiveLog]:
        passes.append(None)
        return live_logs(self)

    monkeypatch.setattr(Replicator, "live_logs", count)
    with serving_folder(tmp_path) as url:
        passes.clear()
        answer = urllib3.request("GET", url)
        assert [each["name"] for each in answer.json()["logs"]] == sorted(names)
        assert len(passes) == 2  # for the names, and for the facts
