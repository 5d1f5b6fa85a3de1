"""Truncation by age: a daemon checks an idle log when a log segment is old enough, and not before."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from litelog.config import make_config
from litelog.log.replica_registry import ReplicaSet, log_state_folder, read_replicated
from litelog.log.truncation import LocalSegment, TruncationPolicy, when_older
from litelog.replicator import Replicator
from litelog.replicator.background import Truncations
from litelog.replicator.run_state import RunState
from litelog.replicator.task import ReplicaTask
from litelog.shipping.context import LogSource, Settings
from litelog.shipping.source_truncation import LogTruncator
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon
from tests.builders.independent_reader import read_replica
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import CountingStore
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOUR = 3600.0
SECOND = 1_000_000


class Idle:
    """An idle log of six log segments, shipped ten minutes apart, and its truncator."""

    def __init__(self, folder: Path, policy: TruncationPolicy) -> None:
        self.clock = ManualClock()
        self.log: LogBuilder = make_log(folder / "log")
        state = log_state_folder(str(folder / "state"), self.log.folder)
        replicas = ReplicaSet(state)
        self.store = CountingStore(MemoryStore("store"))
        replicas.add("r", self.store.url)
        settings = Settings(snapshot_segments=1)
        self.daemon = Daemon(self.log, self.store, os.path.join(state, "r"), clock=self.clock, settings=settings)
        self.truncator = LogTruncator(LogSource(self.log.folder, self.log.format), replicas, policy, self.clock)
        self.daemon.when_replicated = self.truncator.run
        for _ in range(6):
            self.log.roll(2)
            self.daemon.sync()
            self.clock.advance(HOUR / 6)
        self.shipped = [segment.shipped for segment in read_replicated(self.daemon.state).values()]

    def gone(self) -> int:
        return 6 - len(self.log.names())

    def wait_until(self, due: float) -> None:
        self.clock.advance(due - self.clock.monotonic())


AGE = TruncationPolicy(max_age=5 * HOUR)


@pytest.mark.slow
def test_it_is_due_when_the_oldest_is_old_enough_and_then_when_the_next_is(tmp_path: Path) -> None:
    idle = Idle(tmp_path, AGE)
    assert idle.gone() == 0
    requests = idle.store.total()
    for number in range(4):
        due = idle.truncator.due
        assert due is not None
        old_enough = (idle.shipped[number] + int(5 * HOUR) * SECOND - idle.clock.now()) / SECOND
        assert due - idle.clock.monotonic() == pytest.approx(old_enough, abs=0.001)
        idle.clock.advance(due - idle.clock.monotonic() - 1)
        idle.truncator.run()
        assert idle.gone() == number
        idle.clock.advance(1.001)
        idle.truncator.run()
        assert idle.gone() == number + 1
    assert idle.truncator.due is None  # two always stay
    assert idle.store.total() == requests
    idle.log.roll(2)
    idle.daemon.sync()
    assert idle.truncator.due is not None
    assert list(read_replica(idle.store.inner).values())[-1].files() == idle.log.texts


@pytest.mark.slow
def test_old_log_segments_are_truncated_with_the_next_one_and_wait_for_no_snapshot(tmp_path: Path) -> None:
    idle = Idle(tmp_path, AGE)
    idle.daemon.when_replicated = lambda: None
    idle.daemon.when_finished = idle.truncator.note_newer
    idle.clock.advance(7 * HOUR)
    idle.truncator.run()
    assert (idle.gone(), idle.truncator.due) == (4, None)
    idle.log.append(1)
    idle.daemon.sync()
    assert idle.truncator.due is None  # no newer one
    idle.log.roll(2)
    idle.daemon.sync()
    assert idle.truncator.due == idle.clock.monotonic()
    left = len(idle.log.names())
    idle.truncator.run()
    assert len(idle.log.names()) == left - 1


def test_a_log_truncated_by_size_only_is_never_due_by_age(tmp_path: Path) -> None:
    idle = Idle(tmp_path, TruncationPolicy(max_bytes=1 << 30))
    idle.truncator.note_newer()
    assert idle.truncator.due is None


def test_segments_that_no_replica_holds_are_not_waited_for(tmp_path: Path) -> None:
    policy = TruncationPolicy(max_age=HOUR)
    shipped = [LocalSegment(str(n), 1, n * SECOND) for n in range(4)]
    assert when_older(shipped, policy) == int(HOUR) * SECOND
    assert when_older(shipped[1:], policy) == int(HOUR + 1) * SECOND
    assert when_older(shipped[2:], policy) is None
    assert when_older([LocalSegment("x", 1, None), *shipped], policy) is None
    assert when_older(shipped, TruncationPolicy(max_bytes=1)) is None


def test_a_log_that_is_locked_or_unreadable_is_checked_again_soon(tmp_path: Path) -> None:
    import fcntl

    idle = Idle(tmp_path, AGE)
    idle.clock.advance(6 * HOUR)
    held = os.open(idle.log.folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    idle.truncator.run()
    assert idle.gone() == 0
    assert idle.truncator.due is not None
    os.close(held)
    os.rename(idle.log.folder, idle.log.folder + ".away")
    idle.truncator.run()
    assert idle.truncator.due is not None
    os.rename(idle.log.folder + ".away", idle.log.folder)
    idle.wait_until(idle.truncator.due)
    idle.truncator.run()
    assert idle.gone() == 4


@pytest.mark.parametrize("jump", [-1000 * HOUR, 1000 * HOUR])
def test_a_clock_that_is_set_makes_nothing_due_earlier(tmp_path: Path, jump: int) -> None:
    idle = Idle(tmp_path, AGE)
    idle.clock.jump(jump)
    idle.truncator.run()
    assert idle.gone() == 0
    assert idle.truncator.due is not None
    assert idle.truncator.due >= idle.clock.monotonic() + 3 * HOUR


@pytest.mark.slow
def test_the_main_loop_looks_only_when_it_is_due(tmp_path: Path) -> None:
    idle = Idle(tmp_path, AGE)
    run_state = RunState(idle.clock)
    truncations = Truncations(run_state)
    task = ReplicaTask(idle.log.folder, idle.store.url, idle.daemon.replica, 1.0, 1.0, 1 << 20)
    task.truncator = idle.truncator
    with run_state.changed:
        truncations.add(task)
        first = idle.truncator.due
        assert first is not None
        assert truncations.serve(idle.clock.monotonic()) == first

    def serve() -> float:
        with run_state.changed:
            return truncations.serve(idle.clock.monotonic())

    idle.wait_until(first)
    serve()
    wait_until(lambda: idle.gone() == 1 and serve() == idle.truncator.due)
    assert first < serve()
    with run_state.changed:
        truncations.remove(task)
        idle.clock.advance(100 * HOUR)
        truncations.serve(idle.clock.monotonic())
    assert truncations.stop(wait=True)
    assert idle.gone() == 1


@pytest.mark.slow
def test_a_daemon_reports_an_unforgotten_replica_even_if_the_set_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = make_log(tmp_path / "log", "lines")
    for _ in range(3):
        log.roll(2)
    state = str(tmp_path / "state")
    urls = [f"file://{tmp_path}/{name}" for name in "ab"]
    replicas = ReplicaSet(log_state_folder(state, log.folder))

    def run(urls: list[str], until: Callable[[], bool]) -> None:
        entry = {"path": log.folder, "format": "lines", "pattern": "app.*", "truncate": {"max_bytes": 0}}
        entry["replicas"] = [{"url": url, "snapshot_segments": 1} for url in urls]
        replicator = Replicator(make_config("here", {"logs": [entry]}), state_dir=state, host="test")
        thread = threading.Thread(target=replicator.run)
        thread.start()
        try:
            wait_until(until, pause=0.05)
        finally:
            replicator.stop()
            thread.join(WAIT_SECONDS)
        assert not thread.is_alive()

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "not-truncated"]

    run(urls, lambda: sum(map(bool, replicas.held())) == 2)
    assert told() == []
    for damaged in (False, True):
        if damaged:
            with open(os.path.join(replicas.folder, "replicas.json"), "w") as file:
                file.write("damaged")
        caplog.clear()
        for _ in range(4):
            log.roll(2)
        run(urls[:1], lambda: any("wait for" in message and "forget" in message for message in told()))
        assert sorted(log.files()) == sorted(log.texts)[1:]  # the newest log segment that both hold stays
        assert len(replicas.held()) == 2
    run(urls, lambda: len(os.listdir(log.folder)) == 2)


@pytest.mark.slow
def test_a_running_daemon_truncates_an_idle_log(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log", "lines")
    for _ in range(6):
        log.roll(2)
    replica = {"url": f"file://{tmp_path}/replica", "snapshot_segments": 1}
    entry = {"path": log.folder, "format": "lines", "pattern": "app.*", "truncate": {"max_age": 1.0}}
    config = make_config("here", {"logs": [{**entry, "replicas": [replica]}], "shutdown_timeout": 10.0})
    replicator = Replicator(config, state_dir=str(tmp_path / "state"), host="test")
    thread = threading.Thread(target=replicator.run)
    thread.start()
    try:
        wait_until(lambda: len(os.listdir(log.folder)) == 2, pause=0.05)
        assert sorted(os.listdir(log.folder)) == sorted(log.texts)[-2:]
    finally:
        replicator.stop()
        thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
