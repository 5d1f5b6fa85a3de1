"""A mirror whose daemon is gone follows the log's replicas, and returns to the daemon."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("urllib3")

from litelog.errors import NothingToRestoreError
from litelog.log.mirror_note import MIRROR_NAME
from litelog.log.writer import LOCK_NAME
from litelog.restore.choose_replica import DivergedReplicasError
from litelog.restore.mirror import Mirror
from litelog.restore.opened_mirror import opened_mirror
from litelog.stores import retrying_store
from litelog.stores.retrying_store import RetryPolicy
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.restoring import files_in
from tests.builders.server_builder import Watched
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litelog.objects.position import Position
    from litelog.stores.replica_client import ReplicaClient

pytestmark = pytest.mark.slow


@contextmanager
def serving(
    tmp_path: Path, log: LogBuilder, addr: str = "127.0.0.1:0", sync_interval: float = 0.01
) -> Iterator[tuple[Watched, str]]:
    pairs = [(log, [f"file://{tmp_path}/first", f"file://{tmp_path}/second"])]
    with Watched(tmp_path, pairs, {"serve": "all", "addr": addr}, sync_interval=sync_interval) as watched:
        watched.wait_until_ready()
        assert watched.service.address is not None
        yield watched, f"127.0.0.1:{watched.service.address.port}"


def held(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_in(folder).items() if name not in (MIRROR_NAME, LOCK_NAME)}


def catch_up(mirror: Mirror, log: LogBuilder, folder: Path) -> None:
    wait_until(lambda: [mirror.step(0.0), held(folder) == log.texts][1])


@pytest.mark.parametrize("replica", ["first", "second"])
def test_a_mirror_follows_a_replica_while_the_daemon_is_gone_and_then_returns(
    tmp_path: Path, log: LogBuilder, replica: str
) -> None:
    out, url = tmp_path / "out", f"file://{tmp_path}/{replica}"
    log.roll(3)
    with serving(tmp_path, log) as (watched, addr):
        opened = opened_mirror(f"http://{addr}/logs/log", {}, str(out), replicas=[(url, {})])
        with opened as mirror:
            catch_up(mirror, log, out)
            log.append(2)
            log.roll(2)
            watched.replicator.barrier(None, None, WAIT_SECONDS)
            watched.__exit__()
            catch_up(mirror, log, out)
            with Watched(tmp_path, [(log, [url])], {"addr": None}) as unserved:
                for _ in range(2):
                    log.append(1)
                    unserved.replicator.barrier(None, None, WAIT_SECONDS)
                    catch_up(mirror, log, out)
            with serving(tmp_path, log, addr, sync_interval=10 * WAIT_SECONDS):
                log.append(2)
                catch_up(mirror, log, out)


def test_a_mirror_that_is_ahead_of_the_replica_keeps_what_it_has(tmp_path: Path, log: LogBuilder) -> None:
    out, url = tmp_path / "out", f"file://{tmp_path}/first"
    with (
        serving(tmp_path, log, sync_interval=10 * WAIT_SECONDS) as (watched, addr),
        opened_mirror(f"http://{addr}/logs/log", {}, str(out), replicas=[(url, {})]) as mirror,
    ):
        log.append(3)
        catch_up(mirror, log, out)
        watched.service.__exit__(None, None, None)
        assert [mirror.step(0.0) for _ in range(3)] == [False] * 3
        assert held(out) == log.texts
        assert mirror.position is not None


def test_a_replica_of_another_history_is_not_followed(tmp_path: Path, log: LogBuilder) -> None:
    out = tmp_path / "out"
    (tmp_path / "elsewhere").mkdir()
    other = make_log(tmp_path / "elsewhere" / "log")
    other.roll(1)
    other.append(5, size=30)
    with Watched(tmp_path / "elsewhere", [(other, [f"file://{tmp_path}/other"])], {"addr": None}) as shipping:
        shipping.replicator.barrier(None, None, WAIT_SECONDS)
    with serving(tmp_path, log) as (_, addr):
        opened = opened_mirror(f"http://{addr}/logs/log", {}, str(out), replicas=[(f"file://{tmp_path}/other", {})])
        with pytest.raises(DivergedReplicasError), opened:
            pass
    assert not out.exists()


def test_a_replica_that_could_not_be_followed_is_named_while_the_daemon_is_there(
    tmp_path: Path, log: LogBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    out, mistyped = tmp_path / "out", f"file://{tmp_path}/mistyped"
    with (
        serving(tmp_path, log) as (_, addr),
        opened_mirror(f"http://{addr}/logs/log", {}, str(out), replicas=[(mistyped, {})]) as mirror,
    ):
        catch_up(mirror, log, out)
    said = [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "replica-skipped"]
    assert [line.startswith(f"skipped {mistyped}: ") for line in said] == [True]


def test_a_stop_ends_a_step_while_a_replica_is_followed(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, stop, follow = tmp_path / "out", threading.Event(), Mirror._follow

    def stop_and_follow(mirror: Mirror, client: ReplicaClient) -> Position | None:
        stop.set()
        return follow(mirror, client)

    log.roll(3)
    with serving(tmp_path, log) as (watched, addr):
        opened = opened_mirror(
            f"http://{addr}/logs/log", {}, str(out), replicas=[(f"file://{tmp_path}/first", {})], stop=stop
        )
        with opened as mirror:
            catch_up(mirror, log, out)
            before = held(out)
            log.append(2)
            watched.replicator.barrier(None, None, WAIT_SECONDS)
            watched.__exit__()
            with monkeypatch.context() as patch:
                patch.setattr(Mirror, "_follow", stop_and_follow)
                assert not mirror.step(0.0)
            assert stop.is_set()
            assert held(out) == before
            stop.clear()
            catch_up(mirror, log, out)


def test_a_mirror_begins_and_continues_without_its_daemon(tmp_path: Path, log: LogBuilder) -> None:
    out, url = tmp_path / "out", f"file://{tmp_path}/first"
    with serving(tmp_path, log) as (watched, addr):
        log.append(3)
        watched.replicator.barrier(None, None, WAIT_SECONDS)
    for _ in range(2):
        with opened_mirror(f"http://{addr}/logs/log", {}, str(out), replicas=[(url, {})]) as mirror:
            mirror.step(0.0)
            assert held(out) == log.texts
    absent = opened_mirror(f"http://{addr}/logs/log", {}, str(out), replicas=[(f"{url}-no", {})])
    with pytest.raises(NothingToRestoreError), absent:
        pass


def test_a_mirror_that_starts_while_the_daemon_is_gone_says_what_it_follows(
    tmp_path: Path, log: LogBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    out, url = tmp_path / "out", f"file://{tmp_path}/first"
    with serving(tmp_path, log) as (watched, addr):
        log.append(3)
        watched.replicator.barrier(None, None, WAIT_SECONDS)
    with opened_mirror(f"http://{addr}/logs/log", {}, str(out), replicas=[(url, {})]) as mirror:
        catch_up(mirror, log, out)
        mirror.step(0.0)
    said = [record for record in caplog.records if getattr(record, "event", "") == "mirror-falls-back"]
    assert [f"following {url}" in record.getMessage() for record in said] == [True]


def test_a_wait_for_a_daemon_that_is_gone_ends_with_the_stop(
    tmp_path: Path, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = RetryPolicy(attempts=10**6, total_seconds=1e6, first_seconds=1e5, longest_seconds=1e6)
    monkeypatch.setattr(retrying_store, "READING", patient)
    stop = threading.Event()
    with serving(tmp_path, log) as (watched, addr):
        url = f"http://{addr}/logs/log"
        with opened_mirror(url, {}, str(tmp_path / "out"), stop=stop) as mirror:
            watched.service.__exit__(None, None, None)
            running = threading.Thread(target=mirror.run, args=(stop,))
            running.start()
            running.join(0.3)
            assert running.is_alive()
            stop.set()
            running.join(WAIT_SECONDS)
            assert not running.is_alive()
