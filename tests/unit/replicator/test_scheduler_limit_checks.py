"""A busy log is looked at between two syncs as often as its growth demands, and requests only after an event."""

from __future__ import annotations

import os
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from litelog.replicator.background import REQUEST_SPACING, SnapshotRequests
from litelog.replicator.run_state import RunState
from litelog.replicator.scheduler import LONGEST_CHECK_SECONDS, SyncScheduler
from litelog.replicator.task import ReplicaTask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.builders.manual_clock import ManualClock

LIMIT = 16 << 20
POLL_SECONDS = 1.0


def make_task(interval: float) -> ReplicaTask:
    return ReplicaTask("log", "replica", None, interval, POLL_SECONDS, LIMIT)


def walk(
    clock: ManualClock, interval: float, grown: Callable[[float], float], task: ReplicaTask | None = None
) -> tuple[float, int]:
    """The seconds from a sync to the next one, and how often the main loop woke. ``grown``: bytes after seconds."""
    began, wakes, synced = clock.monotonic(), 0, []

    def pending() -> int:
        return int(grown(clock.monotonic() - began))

    pool = SimpleNamespace(submit=lambda *_: synced.append(clock.monotonic() - began))
    threads: Any = SimpleNamespace(syncing=lambda _: pool)
    scheduler = SyncScheduler(RunState(clock), threads, cast("Any", None), Random(1), lambda _: None)
    task = task or make_task(interval)
    task.replica = cast("Any", SimpleNamespace(pending_bytes=pending))
    task.space(began)
    scheduler._space(task)
    due = scheduler.serve(began)
    while not synced:
        wakes += 1
        clock.advance(due - clock.monotonic())
        due = scheduler.serve(clock.monotonic())
    scheduler.stop(wait=True)
    return synced[0], wakes


@pytest.mark.parametrize("rate", [0, 1000, 100_000, 1_000_000])
def test_a_log_that_fills_no_wal_segment_is_looked_at_a_few_times(clock: ManualClock, rate: int) -> None:
    synced, wakes = walk(clock, 1.0, lambda seconds: rate * seconds)
    assert synced == pytest.approx(1.0)
    assert wakes <= 2


@pytest.mark.parametrize("rate", [0, 1000, 100_000, 1_000_000])
def test_a_log_that_grew_slowly_is_looked_at_only_when_its_interval_ends(clock: ManualClock, rate: int) -> None:
    task = make_task(1.0)
    walk(clock, 1.0, lambda seconds: rate * seconds, task)
    synced, wakes = walk(clock, 1.0, lambda seconds: rate * seconds, task)
    assert synced == pytest.approx(1.0)
    assert wakes == 1


@pytest.mark.parametrize("rate", [20 << 20, 100 << 20, 400 << 20])
def test_a_log_that_grew_fast_is_synced_as_soon_in_the_next_interval(clock: ManualClock, rate: int) -> None:
    task = make_task(60.0)
    walk(clock, 60.0, lambda seconds: rate * seconds, task)
    synced, _ = walk(clock, 60.0, lambda seconds: rate * seconds, task)
    assert LIMIT / rate <= synced <= max(LIMIT / rate * 1.5, LIMIT / rate + 0.11)


def test_a_log_that_grew_slowly_and_grows_fast_is_noticed_within_a_second(clock: ManualClock) -> None:
    task = make_task(60.0)
    walk(clock, 60.0, lambda seconds: 1000 * seconds, task)
    synced, _ = walk(clock, 60.0, lambda seconds: (400 << 20) * seconds, task)
    assert synced <= LONGEST_CHECK_SECONDS


@pytest.mark.parametrize("rate", [20 << 20, 100 << 20, 400 << 20])
def test_a_log_that_fills_a_wal_segment_is_synced_soon_after(clock: ManualClock, rate: int) -> None:
    synced, _ = walk(clock, 60.0, lambda seconds: rate * seconds)
    assert LIMIT / rate <= synced <= max(LIMIT / rate * 1.5, LIMIT / rate + 0.11)


def test_a_log_that_begins_to_grow_fast_is_noticed_within_a_second(clock: ManualClock) -> None:
    synced, wakes = walk(clock, 60.0, lambda seconds: 100_000 * seconds + (200 << 20) * max(0.0, seconds - 20.05))
    assert 20.05 + 0.07 < synced <= 20.05 + LONGEST_CHECK_SECONDS + 0.11
    assert wakes <= 30


def test_requests_are_looked_for_after_an_event_and_else_once_a_second(clock: ManualClock, tmp_path: Path) -> None:
    looks: list[float] = []
    armed: list[Callable[[], None]] = []

    def arm(_: str, wake: Callable[[], None]) -> bool:
        armed.append(wake)
        return True

    def take() -> tuple[()]:
        looks.append(clock.monotonic())
        return ()

    requests = SnapshotRequests(RunState(clock), cast("Any", SimpleNamespace(arm=arm)), str(tmp_path / "state"))
    requests.prepare()
    requests._requests = cast("Any", SimpleNamespace(folder=os.devnull, take=take))
    waits = []
    for turn in range(44):
        waits.append(requests.serve(clock.monotonic()) - clock.monotonic())
        if turn in (10, 11):  # two events within the least time between two looks
            armed[-1]()
        clock.advance(0.05)
    assert [round(look - looks[0], 2) for look in looks[:2]] == [0.0, 0.55]
    assert looks[2] - looks[1] == pytest.approx(REQUEST_SPACING, abs=0.06)
    assert len(looks) == 4
    assert sum(wait < 1.0 for wait in waits) == round((looks[2] - looks[1]) / 0.05) - 1
