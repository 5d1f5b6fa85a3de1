"""If the daemon hangs, its status still answers, and says that it hangs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from litelog.replicator.snapshot_requests import VERDICTS_FILE
from litelog.replicator.status import NotReplicated, ReplicaStatus
from litelog.server.daemon_view import StatusCache
from litelog.server.status_view import HealthThresholds
from litelog.server.verdict import Verdict, judge
from litelog.server.verdict_history import SLOT_SECONDS
from litelog.system.clock import SystemClock
from tests.builders.manual_clock import ManualClock
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litelog.replicator.barrier import Barrier

IDLE = ReplicaStatus("/log", "file:///one", "required", "idle", None, None, None, 0, synced=True)


class Stuck:
    """A daemon whose parts hang on request, as if a lock were never released or a file system had disappeared."""

    opened = True

    def __init__(self) -> None:
        self.turning = True
        self.asked = 0
        self.answers = threading.Event()
        self.measures = threading.Event()
        self.answers.set()
        self.measures.set()
        self._stopped_at = 0.0

    @property
    def last_turn(self) -> float:
        if self.turning:
            self._stopped_at = SystemClock().monotonic()
        return self._stopped_at

    def is_ready(self) -> bool:
        return True

    def status(self) -> list[ReplicaStatus]:
        self.asked += 1
        assert self.answers.wait(WAIT_SECONDS)
        return [IDLE]

    def not_replicated(self) -> tuple[NotReplicated, ...]:
        return ()

    def measure(self) -> None:
        assert self.measures.wait(WAIT_SECONDS)

    def barrier(self, log: str | None, replica: str | None, timeout: float) -> Barrier:
        raise NotImplementedError


@pytest.fixture
def daemon() -> Iterator[Stuck]:
    stuck = Stuck()
    yield stuck
    stuck.answers.set()
    stuck.measures.set()


@pytest.fixture
def status_cache(daemon: Stuck, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatusCache]:
    monkeypatch.setattr("litelog.server.daemon_view.MEASURE_SECONDS", 0.05)
    made = StatusCache(daemon, HealthThresholds(max_lag=60.0, loop_seconds=0.5), SystemClock())
    made.start()
    yield made
    made.stop()


def wait_for(status_cache: StatusCache, kinds: list[str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while (
        found := [each.kind for each in judge(status_cache.read(patience=0.1), status_cache.rules).reasons]
    ) != kinds:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


@pytest.mark.slow
def test_a_main_loop_that_turns_no_more_is_reported_and_so_is_its_return(
    status_cache: StatusCache, daemon: Stuck
) -> None:
    wait_for(status_cache, [])
    daemon.turning = False
    wait_for(status_cache, ["loop_stopped"])
    daemon.turning = True
    wait_for(status_cache, [])


@pytest.mark.slow
def test_a_daemon_that_does_not_answer_blocks_no_client_and_is_reported(
    status_cache: StatusCache, daemon: Stuck
) -> None:
    wait_for(status_cache, [])
    daemon.answers.clear()
    wait_for(status_cache, ["status_stalled"])
    assert list(status_cache.read(patience=0.1).statuses) == [IDLE]  # unchanged
    daemon.answers.set()
    wait_for(status_cache, [])


@pytest.mark.slow
def test_folders_that_hang_are_reported_while_all_else_is_answered(status_cache: StatusCache, daemon: Stuck) -> None:
    wait_for(status_cache, [])
    daemon.measures.clear()
    wait_for(status_cache, ["measuring_stalled"])
    assert status_cache.read().statuses
    daemon.measures.set()
    wait_for(status_cache, [])


def test_the_daemon_is_asked_at_intervals_no_matter_how_many_ask(status_cache: StatusCache, daemon: Stuck) -> None:
    status_cache.read()
    before = daemon.asked
    for _ in range(1000):
        status_cache.read(fresh=WAIT_SECONDS)
    assert daemon.asked == before
    status_cache.expire()
    status_cache.read(fresh=WAIT_SECONDS)
    assert daemon.asked == before + 1


@pytest.mark.slow
def test_before_anything_is_open_it_is_not_ready(daemon: Stuck, request: pytest.FixtureRequest) -> None:
    daemon.answers.clear()  # before the first question
    status_cache: StatusCache = request.getfixturevalue("status_cache")
    snapshot = status_cache.read(patience=0.1)
    found = judge(snapshot, status_cache.rules)
    assert [each.kind for each in found.unready] == ["not_synced"]
    assert found.healthy


@pytest.mark.slow
def test_the_next_daemon_shows_the_verdicts_of_the_last_day(
    daemon: Stuck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litelog.server.daemon_view.RECORD_SECONDS", 0.05)
    clock, shown = ManualClock(), (IDLE.log, IDLE.replica)
    daemon.turning = False  # no turn for a long time: unsafe
    for expected in ([Verdict.UNSAFE], [Verdict.UNSAFE, Verdict.UNKNOWN, Verdict.UNSAFE]):
        clock.advance(2 * SLOT_SECONDS)
        made = StatusCache(daemon, HealthThresholds(max_lag=60.0), clock, state_dir=str(tmp_path))
        made.start()
        wait_until(lambda: list(made.verdicts.read(shown))[-len(expected) :] == expected)  # noqa: B023
        wait_until((tmp_path / VERDICTS_FILE).exists)  # it shows verdicts before it keeps them
        made.stop()
