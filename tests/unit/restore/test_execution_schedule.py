"""The schedule of a restore: jobs that wait for each other end, whichever of them run."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest

from litelog.errors import CorruptObjectError
from litelog.formats.lines import LinesFormat
from litelog.restore import execution
from litelog.restore.execution import RestoreSchedule
from litelog.restore.history_plan import Target, find_plan
from tests.builders.replica_builder import ReplicaBuilder, client_of
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.objects.chain import ChainState
    from litelog.restore.plan import RestoredObject
    from litelog.restore.wal_restore import ChainStep


class Chain:
    """Restores WAL segments of which the first is damaged. Each waits for the one before, as a real one does."""

    def __init__(self) -> None:
        self.last_waits = threading.Event()

    def write(self, number: int, before: Future[ChainStep], after: Future[ChainStep]) -> RestoredObject:
        if number == 0:
            assert self.last_waits.wait(WAIT_SECONDS)
            raise CorruptObjectError("wal/0", "checksum", 1, 2)
        self.last_waits.set()
        after.set_result(before.result(WAIT_SECONDS))
        raise AssertionError("the one before was not restored")


class Preempted(Executor):
    """A pool with a thread that has taken the second job and has not begun it: the job is cancelled, and later ones
    run already."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool
        self.jobs: list[Future[Any]] = []

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        self.jobs.append(Future() if len(self.jobs) == 1 else self._pool.submit(work, *arguments))
        return self.jobs[-1]


def test_a_job_does_not_wait_for_one_that_was_cancelled() -> None:
    builder = ReplicaBuilder(LinesFormat("*"))
    built = builder.add()
    for line in (b"one\n", b"two\n", b"three\n"):
        built.ship(line, "log")
    plan = find_plan(client_of(builder.objects()), Target(), builder.format)
    with ThreadPoolExecutor(3) as threads:
        pool = Preempted(threads)
        schedule = RestoreSchedule(plan, Chain(), cast("Any", None), pool, 3, cast("ChainState", object()))
        with pytest.raises(CorruptObjectError, match="wal/0"):
            list(schedule.run())
    assert len(pool.jobs) == 3
    assert pool.jobs[1].cancelled()
    assert "an earlier object failed" in str(pool.jobs[2].exception())


class Whole:
    """Restores WAL segments, all of which are right."""

    def write(self, number: int, before: Future[ChainStep], after: Future[ChainStep]) -> RestoredObject:
        after.set_result(before.result(WAIT_SECONDS))
        return cast("RestoredObject", number)


class Lazy(Executor):
    """Runs a job when its result is wanted. Notes how many were handed out by then."""

    def __init__(self) -> None:
        self.handed_out = 0
        self.most = 0

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        self.handed_out += 1
        return LazyFuture(self, lambda: work(*arguments))


class LazyFuture(Future[Any]):
    def __init__(self, pool: Lazy, work: Callable[[], Any]) -> None:
        super().__init__()
        self._pool, self._work = pool, work

    def result(self, timeout: float | None = None) -> Any:
        self._pool.most = max(self._pool.most, self._pool.handed_out)
        self._pool.handed_out -= 1
        return self._work()


@pytest.mark.parametrize(("room", "expected"), [(1, 1), (2, 2), (100, 8)])
def test_wal_segments_in_memory_have_a_limit_of_bytes(
    room: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``room`` is in objects. Without a limit in bytes there would be four objects for each of two workers."""
    builder = ReplicaBuilder(LinesFormat("*"))
    built = builder.add()
    for number in range(20):
        built.ship(b"%d\n" % (number + 10), "log")
    plan = find_plan(client_of(builder.objects()), Target(), builder.format)
    largest = max(piece.size for piece in plan.pieces)
    monkeypatch.setattr(execution, "WAL_BYTES", room * largest)
    pool = Lazy()
    schedule = RestoreSchedule(plan, Whole(), cast("Any", None), pool, 2, cast("ChainState", object()))
    assert list(schedule.run()) == list(range(20))
    assert pool.most == expected
