"""The duties that a replica's events schedule: its archive, the sync that waited, and the truncation of its log."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from litelog.replicator.background import Archives, TaskEvents, Truncations
from litelog.replicator.run_state import RunState
from litelog.replicator.task import ReplicaTask
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.builders.manual_clock import ManualClock


class Truncator:
    """Is due at second 7 after it ran, and at second 3 after a newer log segment came."""

    has_age = True
    due: float | None = None

    def __init__(self) -> None:
        self.asks = list[bool]()

    def run(self, *, asks: bool) -> None:
        self.asks.append(asks)
        self.due = 7.0

    def note_newer(self) -> None:
        self.due = 3.0


class Parts:
    """The duties of a replicator, a task, and the task's events."""

    def __init__(self, clock: ManualClock) -> None:
        run_state = RunState(clock)
        self.archives, self.truncations = Archives(run_state), Truncations(run_state)
        self.task = ReplicaTask("log", "replica", None, 1.0, 1.0, 1)
        self.archive = SimpleNamespace(due=5.0)
        self.task.replica = cast("Any", SimpleNamespace(archive=self.archive))
        self.truncator: Any = Truncator()
        self.task.truncator = self.truncator
        self.sealed: list[ReplicaTask] = []
        scheduler: Any = SimpleNamespace(resume=self.sealed.append)
        self.events = TaskEvents(scheduler, self.archives, self.truncations, self.task, self.truncator)
        self.truncations.add(self.task)


@pytest.fixture
def parts(clock: ManualClock) -> Iterator[Parts]:
    made = Parts(clock)
    yield made
    made.truncations.stop(wait=True)


def test_a_changed_archive_is_scheduled_for_when_it_is_due(parts: Parts) -> None:
    assert parts.archives.serve(0.0) == math.inf
    parts.events.on_archive_changed()
    assert parts.archives.serve(0.0) == 5.0


def test_a_sealed_backlog_schedules_the_sync_that_waited(parts: Parts) -> None:
    parts.events.on_backlog_sealed()
    assert parts.sealed == [parts.task]


def test_a_newer_log_segment_schedules_truncation_by_age(parts: Parts) -> None:
    assert parts.truncations.serve(0.0) == math.inf
    parts.events.on_segment_finished()
    assert parts.truncations.serve(0.0) == 3.0


@pytest.mark.slow
def test_more_that_is_replicated_truncates_the_log_at_once(parts: Parts) -> None:
    parts.events.on_replicated()
    assert parts.truncations.serve(0.0) == 7.0


def test_only_the_thread_that_truncates_asks_replicas(parts: Parts) -> None:
    parts.events.on_replicated()
    parts.truncations.serve(7.0)
    truncator = parts.events._truncator
    assert isinstance(truncator, Truncator)
    wait_until(lambda: truncator.asks == [False, True])
