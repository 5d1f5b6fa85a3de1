"""The schedule of a restore: jobs that wait for each other end, whichever of them run."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest

from litelog.errors import CorruptObjectError
from litelog.formats.lines import LinesFormat
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
