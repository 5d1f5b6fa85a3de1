"""What the scheduler of simulations leaves after a simulation."""

from __future__ import annotations

from random import Random

from tests.simulation.scheduler import Process, Scheduler


def test_a_task_that_waits_while_it_is_unwound_is_unwound_to_its_end() -> None:
    scheduler = Scheduler(Random(0))
    left: list[str] = []

    def wait() -> None:
        try:
            scheduler.park()
        finally:
            try:
                scheduler.park()
            finally:
                left.append("ended")

    task = scheduler.spawn(Process("A", "room"), "main", wait)
    scheduler.run(1.0)
    scheduler.discard()
    assert (left, task.greenlet.dead) == (["ended"], True)
