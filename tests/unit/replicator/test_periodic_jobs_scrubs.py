"""Scrubs are started when they are due, and cost nothing until then."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from litelog.replicator.periodic_jobs import LockExtensions, Scrubs
from litelog.replicator.run_state import RunState
from litelog.replicator.task import Phase, ReplicaTask
from litelog.replicator.thread_pools import DestinationThreads

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.builders.manual_clock import ManualClock

INTERVAL = 100.0


class Scrub:
    """Is due INTERVAL seconds after it ran, unless it was stopped. Counts how often it was asked when it is due."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._due = clock.monotonic() + INTERVAL
        self.asked = 0
        self.runs = 0
        self.running = False

    @property
    def due(self) -> float:
        self.asked += 1
        return self._due

    def run(self, stop: threading.Event) -> None:
        self.runs += 1
        if not stop.is_set():
            self._due = self._clock.monotonic() + INTERVAL


class Started:
    """Scrubs of three tasks. ``work`` is what was given to the threads."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.run_state = RunState(clock)
        self.work: list[tuple[Callable[..., None], Any]] = []
        pool = SimpleNamespace(submit=lambda guard, work: self.work.append((guard, work)))
        threads: Any = SimpleNamespace(scrubbing=lambda url: pool)
        self.scrubs = Scrubs(self.run_state, threads, cast("Any", None))
        self.made = [Scrub(clock) for _ in range(3)]
        self.tasks = [ReplicaTask(f"log{number}", "replica", None, 1.0, 1.0, 1) for number in range(3)]
        for task, scrub in zip(self.tasks, self.made, strict=True):
            task.scrub = scrub  # type: ignore[assignment]
            self.scrubs.add(task)

    def serve(self) -> float:
        return self.scrubs.serve(self.clock.monotonic()) - self.clock.monotonic()

    def run_submitted(self) -> None:
        submitted, self.work = self.work, []
        for guard, work in submitted:
            guard(work)


@pytest.fixture
def started(clock: ManualClock) -> Started:
    return Started(clock)


def test_a_turn_does_not_examine_scrubs_that_are_not_due(started: Started) -> None:
    """Each turn of a daemon with many idle logs had examined all of them."""
    asked = [scrub.asked for scrub in started.made]
    for _ in range(50):
        assert started.serve() == pytest.approx(INTERVAL)
    assert [scrub.asked for scrub in started.made] == asked


def test_a_scrub_runs_when_it_is_due_and_again_after_its_interval(started: Started) -> None:
    for runs in (1, 2, 3):
        started.clock.advance(INTERVAL)
        started.serve()
        assert started.serve() == math.inf, "they are running"
        assert all(scrub.running for scrub in started.made)
        started.run_submitted()
        assert not any(scrub.running for scrub in started.made)
        assert [scrub.runs for scrub in started.made] == [runs] * 3
        assert started.serve() == pytest.approx(INTERVAL)


def test_a_finished_or_leaving_task_is_not_scrubbed(started: Started) -> None:
    started.tasks[0].phase = Phase.FENCED
    started.tasks[1].leaving = True
    started.clock.advance(INTERVAL)
    started.serve()
    started.run_submitted()
    assert [scrub.runs for scrub in started.made] == [0, 0, 1]


def test_a_task_that_leaves_waits_for_its_scrub_which_is_stopped(started: Started) -> None:
    task, scrub = started.tasks[0], started.made[0]
    started.clock.advance(INTERVAL)
    started.serve()
    task.leaving = True
    assert not started.scrubs.finish(task)
    started.run_submitted()
    assert scrub.runs == 0, "it was stopped before it began"
    assert started.scrubs.finish(task)
    started.scrubs.remove(task)
    started.clock.advance(INTERVAL)
    started.serve()
    assert len(started.work) == 2, "the other two are due again"


def test_the_end_of_the_run_stops_running_scrubs_and_starts_none(started: Started) -> None:
    started.clock.advance(INTERVAL)
    started.serve()
    started.run_state.stopping = True
    assert started.serve() == math.inf
    started.run_submitted()
    assert [scrub.runs for scrub in started.made] == [0, 0, 0]
    assert started.scrubs.stop(wait=True)


def test_locks_are_extended_while_a_scrub_takes_long(started: Started) -> None:
    """A scrub of a large replica takes days, and locks may end within hours."""
    scrubbing, extended = threading.Event(), threading.Event()
    threads = DestinationThreads()
    scrub = SimpleNamespace(due=started.clock.monotonic(), running=False, run=lambda _: scrubbing.wait(60) and None)
    extension = SimpleNamespace(due=scrub.due, running=False, last=None, run=lambda _: extended.set())
    task = ReplicaTask("log", "file:///replica", None, 1.0, 1.0, 1)
    task.scrub, task.lock_extension = cast("Any", scrub), cast("Any", extension)
    jobs = [Scrubs(started.run_state, threads, cast("Any", None)), LockExtensions(started.run_state, threads)]
    try:
        for each in jobs:
            each.add(task)
            each.serve(started.clock.monotonic())
        assert extended.wait(20)
        assert scrub.running
    finally:
        started.run_state.stopping = True
        scrubbing.set()
        threads.shutdown(wait=True)
