"""Mirrors of all logs whose names match a pattern: logs appear and go, one fails, and the others continue."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("urllib3")

from litelog.errors import ConfigError, DivergedError
from litelog.log.mirror_note import MIRROR_NAME
from litelog.log.writer import LOCK_NAME
from litelog.restore import mirror_group
from litelog.restore.mirror_group import MirrorGroup, MirrorPhase
from litelog.restore.opened_mirror import MirrorRules
from litelog.stores.served_logs import find_served_logs, is_pattern
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.restoring import files_in
from tests.builders.server_builder import Watched, serving_folder
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.slow


@contextmanager
def serving(tmp_path: Path, logs: Sequence[LogBuilder], addr: str = "127.0.0.1:0") -> Iterator[str]:
    """A daemon that serves logs. Gives the URL of all whose names begin with ``app-``."""
    pairs = [(log, [f"file://{tmp_path}/replicas/{os.path.basename(log.folder)}"]) for log in logs]
    with Watched(tmp_path, pairs, {"serve": "all", "addr": addr}) as watched:
        watched.wait_until_ready()
        assert watched.service.address is not None
        wait_until(lambda: all(each["acknowledged"] for each in watched.ask("/logs").json["logs"]))
        yield f"http://127.0.0.1:{watched.service.address.port}/logs/app-*"


def make_logs(tmp_path: Path, *names: str) -> list[LogBuilder]:
    logs = [make_log(tmp_path / name) for name in names]
    for log in logs:
        log.roll(3)
    return logs


def is_mirrored(log: LogBuilder, out: Path) -> bool:
    folder = out / os.path.basename(log.folder)
    try:
        found = files_in(folder)
    except FileNotFoundError:
        return False  # the folder, or a temporary file that is in its place by now
    return {name: data for name, data in found.items() if name not in (MIRROR_NAME, LOCK_NAME)} == log.texts


@contextmanager
def running(group: MirrorGroup) -> Iterator[None]:
    stop = threading.Event()
    runner = threading.Thread(target=group.run, args=(stop,))
    runner.start()
    try:
        yield
    finally:
        stop.set()
        runner.join(WAIT_SECONDS)
    assert not runner.is_alive()


def test_logs_that_match_are_mirrored_once_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_group, "ONCE_SECONDS", 0.1)
    logs, out = make_logs(tmp_path, "app-a", "app-b", "other"), tmp_path / "out"
    with serving(tmp_path, logs) as url:
        group = MirrorGroup(url, {}, str(out), MirrorRules())
        group.run_once(threading.Event())
    assert sorted(os.listdir(out)) == ["app-a", "app-b"]
    assert all(is_mirrored(log, out) for log in logs[:2])
    assert [(log.source.name, log.phase, log.error) for log in group.logs()] == [
        ("app-a", MirrorPhase.DONE, None),
        ("app-b", MirrorPhase.DONE, None),
    ]
    assert all(log.position is not None for log in group.logs())


def test_a_new_log_is_found_and_a_log_that_is_gone_keeps_its_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_group, "LIST_SECONDS", 0.05)
    monkeypatch.setattr("litelog.restore.mirror.RETRY_SECONDS", 0.05)
    first, second = make_logs(tmp_path, "app-a", "app-b")
    out = tmp_path / "out"
    with ExitStack() as started:
        with serving(tmp_path, [first]) as url:
            addr = url.split("/")[2]
            started.enter_context(running(MirrorGroup(url, {}, str(out), MirrorRules())))
            wait_until(lambda: is_mirrored(first, out))
        with serving(tmp_path, [first, second], addr):
            first.append(2)
            wait_until(lambda: is_mirrored(first, out) and is_mirrored(second, out))
        with serving(tmp_path, [second], addr):
            second.append(2)
            wait_until(lambda: is_mirrored(second, out))
            started.close()
    assert is_mirrored(first, out)


def test_a_new_log_is_found_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon reports it: nobody looks again in time."""
    monkeypatch.setattr(mirror_group, "LIST_SECONDS", 2 * WAIT_SECONDS)  # at most 600 s
    first, out = make_log(tmp_path / "logs" / "app-a"), tmp_path / "out"
    first.roll(1)
    with serving_folder(tmp_path) as url, running(MirrorGroup(f"{url}/app-*", {}, str(out), MirrorRules())):
        wait_until(lambda: is_mirrored(first, out))
        second = make_log(tmp_path / "logs" / "app-b")
        second.roll(1)
        wait_until(lambda: is_mirrored(second, out))


def test_a_log_that_forked_fails_and_stops_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_group, "LIST_SECONDS", 0.05)
    monkeypatch.setattr("litelog.restore.mirror.PATIENCE_SECONDS", 0.0)
    logs, out = make_logs(tmp_path, "app-a", "app-b"), tmp_path / "out"
    other = make_log(out / "app-a")
    other.roll(1)
    other.append(3, size=30)
    with serving(tmp_path, logs) as url:
        group = MirrorGroup(url, {}, str(out), MirrorRules())
        with running(group):
            wait_until(lambda: len(group.logs()) == 2 and group.logs()[0].phase is MirrorPhase.FAILED)
            logs[1].append(2)
            wait_until(lambda: is_mirrored(logs[1], out))
        assert isinstance(group.logs()[0].error, DivergedError)
        assert is_mirrored(other, out)
        again = MirrorGroup(url, {}, str(out), MirrorRules(on_fork="new"))
        again.run_once(threading.Event())
        assert all(is_mirrored(log, out) for log in logs)
        assert [os.path.basename(path) for path in again.logs()[0].aside] == ["app-a.unknown"]


def test_a_mirror_that_cannot_be_set_aside_fails_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litelog.restore.mirror.PATIENCE_SECONDS", 0.0)
    logs, out = make_logs(tmp_path, "app-a"), tmp_path / "out"
    other = make_log(out / "app-a")
    other.roll(1)
    other.append(3, size=30)
    rename = os.rename

    def refuse(source: str, target: str, **more: int) -> None:
        if source == str(out / "app-a"):
            raise PermissionError(errno.EACCES, "Permission denied")
        rename(source, target, **more)

    with serving(tmp_path, logs) as url:
        group = MirrorGroup(url, {}, str(out), MirrorRules(on_fork="new"))
        monkeypatch.setattr(os, "rename", refuse)
        group.run_once(threading.Event())
    (failed,) = group.logs()
    assert failed.phase is MirrorPhase.FAILED
    assert "app-a: cannot be renamed to" in str(failed.error)


def test_a_mistake_in_the_code_ends_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, looks = threading.Event(), list[str]()

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a mistake")

    class Daemon:
        def list_logs(self, *_: Any) -> tuple[None, list[tuple[str, str]]]:
            looks.append("")
            if len(looks) == 100:
                stop.set()
            return None, [("app-a", "http://h/logs/app-a")]

        def close(self) -> None:
            pass

    def open_daemon(*_: Any) -> Daemon:
        return Daemon()

    monkeypatch.setattr(mirror_group, "LIST_SECONDS", 0.01)
    monkeypatch.setattr(mirror_group, "keep_mirror", fail)
    monkeypatch.setattr("litelog.stores.served_logs.open_store", open_daemon)
    for run in (MirrorGroup.run, MirrorGroup.run_once):
        with pytest.raises(RuntimeError, match="a mistake"):
            run(MirrorGroup("http://h/logs/app-*", {}, str(tmp_path), MirrorRules()), stop)


@pytest.mark.parametrize("name", ["../app-x", "app-/../../x", "app-a//b", "app-\0"])
def test_a_name_that_leads_out_of_the_folder_is_skipped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Daemon:
        def list_logs(self, *_: Any) -> tuple[None, list[tuple[str, str]]]:
            return None, [("app-a", "http://h/logs/app-a"), (name, "http://h/logs/x")]

        def close(self) -> None:
            pass

    def open_daemon(*_: Any) -> Daemon:
        return Daemon()

    monkeypatch.setattr("litelog.stores.served_logs.open_store", open_daemon)
    assert [log.name for log in find_served_logs("http://h/logs/*", {})] == ["app-a"]


def test_only_a_url_of_a_daemon_is_a_pattern(tmp_path: Path) -> None:
    assert is_pattern("http://[::1]:9977/logs/app-*")
    assert is_pattern("https://h/logs/[ab]")
    assert not is_pattern("http://[::1]:9977/logs/app")
    assert not is_pattern(f"file://{tmp_path}/*")
    with pytest.raises(ConfigError, match="not a pattern for the logs of a daemon"):
        find_served_logs(f"file://{tmp_path}", {})


def test_each_log_of_a_group_follows_its_own_replica_while_the_daemon_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litelog.restore.mirror.RETRY_SECONDS", 0.05)
    logs, out = make_logs(tmp_path, "app-a", "app-b"), tmp_path / "out"
    rules = MirrorRules(replicas=((f"file://{tmp_path}/replicas/*", {}),))
    with ExitStack() as started:
        with serving(tmp_path, logs) as url:
            started.enter_context(running(MirrorGroup(url, {}, str(out), rules)))
            wait_until(lambda: all(is_mirrored(log, out) for log in logs))
        pairs = [(log, [f"file://{tmp_path}/replicas/{os.path.basename(log.folder)}"]) for log in logs]
        with Watched(tmp_path, pairs, {"addr": None}) as unserved:
            for log in logs:
                log.append(2)
            unserved.replicator.barrier(None, None, WAIT_SECONDS)
            wait_until(lambda: all(is_mirrored(log, out) for log in logs))
