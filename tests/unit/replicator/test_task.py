"""When a replica is due: its sync interval, and how long the daemon backs off after a failure."""

from __future__ import annotations

from random import Random

import pytest

from litelog.errors import ExistsError, LitelogError, NotFoundError, SourceMissingError, StoreError
from litelog.replicator.task import Phase, ReplicaTask
from litelog.shipping.backoff import MAX_DELAY_SECONDS, describe_wait


def make_task() -> ReplicaTask:
    return ReplicaTask("/log", "file:///replica", None, sync_interval=1.0, poll_interval=1.0, limit=1 << 20)


def ship(task: ReplicaTask, started: float) -> float:
    """Take a sync that ships something, and return when the next one is due, as the scheduler does."""
    task.space(started)
    task.due = task.spaced_until
    return task.due


def test_an_interval_begins_with_the_first_sync_after_a_quiet_spell() -> None:
    task = make_task()
    assert ship(task, 10.0) == 11.0
    task.rest(11.0)
    assert ship(task, 11.4) == 12.4  # an event woke it: the poll was not due


def test_syncs_that_come_late_do_not_delay_those_after_them() -> None:
    task = make_task()
    ship(task, 10.0)
    assert [ship(task, 10.0 + number + 0.3) for number in range(1, 100)] == [11.0 + number for number in range(1, 100)]


def test_a_sync_that_comes_an_interval_late_is_followed_by_a_whole_one() -> None:
    task = make_task()
    ship(task, 10.0)
    assert ship(task, 12.5) == 13.5


def test_a_sync_that_began_early_because_of_its_size_begins_an_interval() -> None:
    task = make_task()
    ship(task, 10.0)
    assert ship(task, 10.2) == 11.2


def test_an_idle_log_is_polled_with_the_others_and_less_often_if_it_is_watched() -> None:
    task = make_task()
    task.rest(10.3)
    assert task.due == 11.0
    task.watched = True
    task.rest(10.3)
    assert task.due == 12.0  # a multiple of four intervals
    task.rest(12.0)
    assert task.due == 16.0
    task.rest(16.5, least=30.0)
    assert task.due == 30.0


def wait_after(error: LitelogError) -> float:
    """Seconds until a replica is due again after its first failure."""
    task = ReplicaTask("/log", "memory://x", None, 1.0, 1.0, 1)
    task.fail(error, 100.0, Random(1))
    assert task.phase is Phase.BACKING_OFF
    assert task.error is error
    return task.due - 100.0


@pytest.mark.parametrize(
    "error", [StoreError("put", "x", "503"), SourceMissingError("/log", "gone"), NotFoundError("x"), ExistsError("x")]
)
def test_a_failure_that_may_pass_is_tried_again_soon(error: LitelogError) -> None:
    assert wait_after(error) < 1


def test_a_failure_that_will_not_pass_is_tried_again_after_the_longest_delay() -> None:
    assert wait_after(StoreError("put", "x", "no permission", retryable=False)) == MAX_DELAY_SECONDS


def test_a_store_gets_the_pause_that_it_asks_for_up_to_the_longest_delay() -> None:
    assert wait_after(StoreError("put", "x", "slow down", retry_after=12.0)) == 12
    assert wait_after(StoreError("put", "x", "slow down", retry_after=300.0)) == MAX_DELAY_SECONDS
    assert wait_after(StoreError("put", "x", "slow down", retry_after=1e6)) == MAX_DELAY_SECONDS


@pytest.mark.slow
def test_a_log_line_says_how_long_the_store_asked_for_and_how_long_the_wait_is() -> None:
    asked = StoreError("put", "x", "slow down", retry_after=600.0)
    assert describe_wait(asked, wait_after(asked)) == "trying again in 30.0 s (the store asked for 600 s)"
    assert describe_wait(StoreError("put", "x", "503"), 0.25) == "trying again in 0.2 s"
