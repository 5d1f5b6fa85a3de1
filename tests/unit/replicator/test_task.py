"""When a replica's turn is: the sync interval of a log that is shipped again and again."""

from __future__ import annotations

from litelog.replicator.task import ReplicaTask


def make_task() -> ReplicaTask:
    return ReplicaTask("/log", "file:///replica", None, sync_interval=1.0, poll_interval=1.0, limit=1 << 20)


def ship(task: ReplicaTask, started: float) -> float:
    """A sync that has shipped something; until when the next one waits, as the turns have it."""
    task.space(started)
    task.due = task.spaced_until
    return task.due


def test_an_interval_begins_with_the_first_sync_after_a_quiet_spell() -> None:
    task = make_task()
    assert ship(task, 10.0) == 11.0
    task.rest(11.0)
    assert ship(task, 11.4) == 12.4  # an event woke it: the poll was not due


def test_syncs_that_come_late_make_those_behind_them_no_later() -> None:
    task = make_task()
    ship(task, 10.0)
    assert [ship(task, 10.0 + number + 0.3) for number in range(1, 100)] == [11.0 + number for number in range(1, 100)]


def test_a_sync_that_comes_an_interval_late_is_followed_by_a_whole_one() -> None:
    task = make_task()
    ship(task, 10.0)
    assert ship(task, 12.5) == 13.5


def test_a_sync_for_its_size_begins_an_interval() -> None:
    task = make_task()
    ship(task, 10.0)
    assert ship(task, 10.2) == 11.2


def test_an_idle_log_is_looked_at_with_others_and_less_often_where_events_tell_of_it() -> None:
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
