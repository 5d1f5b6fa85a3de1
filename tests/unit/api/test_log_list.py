"""The logs of a folder, or of a daemon, and the signal when logs appear or go."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

import litelog
from litelog.api import log_list
from litelog.replicator.discovery import LogFinder
from litelog.system.inotify import Watcher
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path


def make_log(folder: Path) -> None:
    with litelog.LogWriter(folder, fsync="never") as writer:
        writer.append(b"one")


@pytest.mark.slow
def test_logs_that_appear_and_go_are_signalled_once_however_many(tmp_path: Path) -> None:
    make_log(tmp_path / "app-1")
    with litelog.LogList(tmp_path, pattern="app-*") as logs:
        assert logs.wait()  # on what was there before, at once
        assert logs.names() == ("app-1",)
        assert not logs.wait(0.0)
        for name in ("app-2", "app-3", "other"):
            make_log(tmp_path / name)
        assert logs.wait(WAIT_SECONDS)
        assert logs.names() == ("app-1", "app-2", "app-3")
        assert not logs.wait(0.01)
        with litelog.LogWriter(tmp_path / "app-1") as writer:
            writer.append(b"two")  # not another log
        assert not logs.wait(0.01)
        shutil.rmtree(tmp_path / "app-2")
        assert logs.wait(WAIT_SECONDS)
        assert logs.wait(0.0)  # until names() is called
        assert logs.names() == ("app-1", "app-3")


@pytest.mark.slow
@pytest.mark.parametrize("change", [make_log, lambda _: None])
def test_a_waiting_thread_wakes_on_a_change_and_when_another_one_closes(tmp_path: Path, change: object) -> None:
    (tmp_path / "a").mkdir()
    logs = litelog.LogList(tmp_path, poll_interval=3600.0, pattern="*/*")
    found = list[bool]()
    assert logs.names() == ()
    waiting = threading.Thread(target=lambda: found.append(logs.wait()))
    waiting.start()
    change(tmp_path / "a" / "b")  # type: ignore[operator]
    if change is not make_log:
        logs.close()
    waiting.join(WAIT_SECONDS)
    assert found == [change is make_log]
    logs.close()
    assert not logs.wait()


@pytest.mark.slow
def test_a_folder_that_is_away_keeps_its_logs(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    with litelog.LogList(folder, poll_interval=0.01) as logs:
        with pytest.raises(litelog.SourceMissingError):
            logs.names()
        assert not logs.wait(0.05)
        make_log(folder / "a")
        assert logs.wait(WAIT_SECONDS)
        assert logs.names() == ("a",)
        os.rename(folder, tmp_path / "moved")
        assert not logs.wait(0.05)
        os.rename(tmp_path / "moved", folder)
        assert not logs.wait(0.05)


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(litelog.ConfigError, match="pattern: must be a relative path of patterns"):
        litelog.LogList(tmp_path, pattern="../*")
    with pytest.raises(litelog.ConfigError, match="only the formats lines and raw have a pattern"):
        litelog.LogList(tmp_path, segment_pattern="*.log")
    with pytest.raises(litelog.ConfigError, match="recursive and segment_pattern are for the logs in a folder"):
        litelog.LogList("http://localhost:9977/logs", recursive=True)
    with pytest.raises(litelog.ConfigError, match="not a pattern for the logs of a daemon"):
        litelog.LogList(f"file://{tmp_path}")


def test_a_daemon_that_is_away_is_named_and_waited_for() -> None:
    pytest.importorskip("urllib3")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/logs"  # no process listens there
        with litelog.LogList(url, poll_interval=0.01) as logs:
            assert not logs.wait(0.05)
            with pytest.raises(litelog.StoreError, match=f"{url}/.*list logs"):
                logs.names()


@pytest.mark.slow
def test_appends_to_the_logs_cause_no_search_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_list, "SEARCH_SPACING", 3600.0)
    searches, find, stop = list[object](), LogFinder.find, threading.Event()

    def count(finder: LogFinder[Any]) -> list[str]:
        searches.append(finder)
        return find(finder)

    monkeypatch.setattr(LogFinder, "find", count)
    with litelog.LogWriter(tmp_path / "a" / "b", fsync="never") as writer:
        writer.append(b"one")

        def append() -> None:
            while not stop.is_set():
                writer.append(b"more")

        with litelog.LogList(tmp_path, recursive=True, pattern="b") as logs:
            assert logs.names() == ("a/b",)
            appending = threading.Thread(target=append)
            appending.start()
            assert not logs.wait(0.3)
            stop.set()
            appending.join(WAIT_SECONDS)
    assert len(searches) <= 5


def test_a_place_that_is_away_is_not_waited_for_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[float]()

    class Away:
        def find(self, seconds: float) -> tuple[str, ...]:
            asked.append(seconds)
            raise litelog.SourceError("away")

        def close(self) -> None:
            asked.append(-1.0)

    with litelog.LogList(tmp_path, poll_interval=0.01) as logs:
        monkeypatch.setattr(logs, "_place", Away())
        assert not logs.wait(0.03)
    assert {*asked[:-1]} == {0.0}
    assert asked[-1] == -1.0


def test_close_during_the_first_look_leaves_no_watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = litelog.LogList(tmp_path)
    closing, made = threading.Thread(target=logs.close), list[Watcher]()

    class Closed(Watcher):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)
            closing.start()
            closing.join(0.1)

    monkeypatch.setattr(log_list, "Watcher", Closed)
    assert logs.names() == ()
    closing.join(WAIT_SECONDS)
    assert [each.available for each in made] == [False]


def test_a_daemon_that_answers_at_once_is_polled() -> None:
    """As a litelog whose list has no revision."""
    pytest.importorskip("urllib3")
    asked = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = b'{"version": 1, "logs": []}'
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        with litelog.LogList(f"http://127.0.0.1:{server.server_port}/logs", poll_interval=3600.0) as logs:
            assert logs.names() == ()
            assert not logs.wait(0.2)
        server.shutdown()
        serving.join(WAIT_SECONDS)
    assert 2 <= len(asked) <= 4
