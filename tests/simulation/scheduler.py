"""Virtual time, and who runs next: tasks of simulated processes, switched only where they wait.

A task is a greenlet. It runs until it waits for something (a lock, a clock, a store); then the scheduler picks by seed
who runs next. Time moves only while no task can run. So one seed is one history, and nothing takes real time.
"""

from __future__ import annotations

import traceback
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

import greenlet

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

SWITCH_SECONDS = 20e-6
"""The time that one turn of a task takes. Without it, a task that never waits would stop time."""

TURNS_PER_SECOND = 20_000
"""More turns than that in a second of virtual time, for BUSY_SECONDS in a row, are a busy loop. (SWITCH_SECONDS allows
50,000.)"""

BUSY_SECONDS = 3


class ViolationError(Exception):
    """A promise was broken."""


class Process:
    """A simulated process. Its tasks are killed, paused and resumed together."""

    def __init__(self, name: str, machine: str) -> None:
        self.name = name
        self.machine = machine
        self.dead = False
        self.paused = False
        self.seams = 0
        """The number of its calls of stores and disks. It may be killed at any of them."""
        self.triggers: list[tuple[int, Callable[[], None]]] = []
        """The actions at these calls, by number."""


class Task:
    """One thread of control of a process."""

    def __init__(self, process: Process, name: str, work: Callable[[], None], hub: greenlet.greenlet) -> None:
        self.process = process
        self.name = name
        self.greenlet = greenlet.greenlet(work, hub)
        self.parked = 0
        """Counts its waits: a wake-up ends a single one."""
        self.waiting = False
        self.woken = False
        self.done = False
        self.thread: object = self
        """The object that stands for the current thread."""


class Scheduler:
    """Runs tasks and timed calls, all in one thread."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        """Virtual seconds since the simulation began."""
        self.current: Task | None = None
        """None outside of all tasks."""
        self.violation: BaseException | None = None
        self.turns = 0
        self._hub = greenlet.getcurrent()
        self._ready: list[Task] = []
        self._tasks: list[Task] = []
        """All tasks that began. They are unwound only at the end, since a killed process does nothing more."""
        self._held: list[Task] = []
        """Ready tasks of paused processes."""
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._second = 0
        self._turns_in_second = 0
        self._busy_seconds = 0

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call ``call`` outside of all tasks at that time."""
        heappush(self._calls, (max(when, self.now), next(self._numbers), call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call ``call`` outside of all tasks after ``seconds``."""
        self.at(self.now + seconds, call)

    def spawn(self, process: Process, name: str, work: Callable[[], object]) -> Task:
        """Begin a task of ``process``."""

        def run() -> None:
            try:
                work()
            except greenlet.GreenletExit:
                raise
            except BaseException as error:  # noqa: BLE001 - a bug of what is tested
                self.fail(ViolationError(f"{process.name}/{name} ended with {error!r}\n{traceback.format_exc()}"))
            finally:
                task.done = True

        task = Task(process, name, run, self._hub)
        self._tasks.append(task)
        if not process.dead:
            self._ready.append(task)
        return task

    def fail(self, violation: BaseException) -> None:
        """End the simulation: a promise is broken."""
        if self.violation is None:
            self.violation = violation

    def kill(self, process: Process) -> None:
        """Kill a process: none of its tasks runs again."""
        process.dead = True

    def pause(self, process: Process) -> None:
        """Pause a process, as SIGSTOP does."""
        process.paused = True

    def resume(self, process: Process) -> None:
        """Resume a paused process, as SIGCONT does."""
        process.paused = False
        self._ready += [task for task in self._held if task.process is process]
        self._held = [task for task in self._held if task.process is not process]

    def run(self, until: float) -> None:
        """Run until that time. Raises ViolationError."""
        while self.violation is None:
            if self._ready:
                self._run_one()
            elif self._calls and self._calls[0][0] <= until:
                when, _, call = heappop(self._calls)
                self.now = max(self.now, when)
                call()
            else:
                self.now = max(self.now, until)
                break
            while self._calls and self._calls[0][0] <= self.now and self.violation is None:
                heappop(self._calls)[2]()
        if self.violation is not None:
            raise self.violation

    def discard(self) -> None:
        """Unwind all tasks. Meanwhile nothing else happens in the simulated world."""
        self._calls.clear()
        self._ready.clear()
        self._held.clear()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.process.dead = False
            while task.greenlet:  # once more for each wait while it is unwound: suspended, it would never be freed
                with suppress(BaseException):
                    self.current = task
                    task.greenlet.throw(greenlet.GreenletExit)
        self.current = None

    def _run_one(self) -> None:
        at = self.random.randrange(len(self._ready)) if len(self._ready) > 1 else 0
        self._ready[at], self._ready[-1] = self._ready[-1], self._ready[at]
        task = self._ready.pop()
        if task.process.dead:
            return
        if task.process.paused:
            self._held.append(task)
            return
        self.now += SWITCH_SECONDS
        self._count_turn(task)
        self.current = task
        try:
            task.greenlet.switch()
        finally:
            self.current = None

    def _count_turn(self, task: Task) -> None:
        self.turns += 1
        if int(self.now) != self._second:
            self._busy_seconds = self._busy_seconds + 1 if self._turns_in_second > TURNS_PER_SECOND else 0
            self._second, self._turns_in_second = int(self.now), 0
        self._turns_in_second += 1
        if self._busy_seconds >= BUSY_SECONDS:
            self.fail(ViolationError(f"P10: {task.process.name}/{task.name} loops without waiting"))

    def park(self, seconds: float | None = None) -> bool:
        """Wait to be woken, for a limited time. Returns whether it was woken."""
        task = self.current
        if task is None:
            raise RuntimeError("only a task can wait")
        task.parked += 1
        task.waiting, task.woken = True, False
        if seconds is not None:
            number = task.parked
            self.after(max(0.0, seconds), lambda: self._time_out(task, number))
        self._hub.switch()
        return task.woken

    def sleep(self, seconds: float) -> None:
        """Wait for a fixed time."""
        until = self.now + seconds
        while self.now < until:
            self.park(until - self.now)

    def wake(self, task: Task) -> None:
        """Wake a parked task."""
        if task.waiting:
            task.waiting, task.woken = False, True
            self._ready.append(task)

    def seam(self) -> None:
        """Note that the current task calls a store or a disk. Its process may be killed or paused here."""
        task = self.current
        if task is None:
            return
        process = task.process
        process.seams += 1
        due = [call for at, call in process.triggers if at <= process.seams]
        if due:
            process.triggers = [(at, call) for at, call in process.triggers if at > process.seams]
            for call in due:
                call()
        if process.dead:
            self._hub.switch()  # for good
        while process.paused:
            task.waiting = False
            self._held.append(task)
            self._hub.switch()

    def _time_out(self, task: Task, number: int) -> None:
        if task.waiting and task.parked == number:
            task.waiting = False
            self._ready.append(task)
