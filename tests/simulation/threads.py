"""Replacements of ``threading``, the clock and thread pools in a simulation, which wait in virtual time.

Outside of all tasks (where the oracle restores and verifies at one moment) nothing waits: pools do work at once.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Executor, Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.scheduler import Scheduler, Task

EPOCH = 1_780_000_000.0
"""The time at which the simulation begins, in seconds since 1970."""

STEADY = 1000.0
"""The reading of the steady clock at that time."""


class VirtualClock:
    """Replaces ``litelog.system.clock.SystemClock``."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> int:
        return round((EPOCH + self._scheduler.now) * 1e6)

    def monotonic(self) -> float:
        return STEADY + self._scheduler.now


class _Lock:
    def __init__(self, scheduler: Scheduler, *, reentrant: bool = False) -> None:
        self._scheduler = scheduler
        self._reentrant = reentrant
        self._owner: object = None
        self._depth = 0
        self._queue: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = self._scheduler.current or "outside"
        if self._reentrant and self._owner is me:
            self._depth += 1
            return True
        while self._owner is not None:
            if not blocking:
                return False
            if self._scheduler.current is None:
                raise RuntimeError("a lock that a task holds is asked for outside of all tasks")
            self._queue.append(self._scheduler.current)
            if not self._scheduler.park(timeout if timeout >= 0 else None):
                return False
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            if self._queue:
                self._scheduler.wake(self._queue.popleft())

    def locked(self) -> bool:
        return self._owner is not None

    def release_all(self) -> int:
        depth, self._depth = self._depth, 1
        self.release()
        return depth

    def acquire_all(self, depth: int) -> None:
        self.acquire()
        self._depth = depth

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _Condition:
    def __init__(self, scheduler: Scheduler, lock: _Lock | None = None) -> None:
        self._scheduler = scheduler
        self._lock = lock or _Lock(scheduler, reentrant=True)
        self._waiters: list[Task] = []
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        task = self._scheduler.current
        if task is None:
            raise RuntimeError("nothing can be waited for outside of all tasks")
        self._waiters.append(task)
        depth = self._lock.release_all()
        woken = self._scheduler.park(timeout)
        if task in self._waiters:
            self._waiters.remove(task)
        self._lock.acquire_all(depth)
        return woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = None if timeout is None else self._scheduler.now + timeout
        while not (result := predicate()):
            left = None if until is None else until - self._scheduler.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        for task in self._waiters[:n]:
            self._waiters.remove(task)
            self._scheduler.wake(task)

    def notify_all(self) -> None:
        self.notify(len(self._waiters))


class Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._waiters: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiters, self._waiters = self._waiters, []
        for task in waiters:
            self._scheduler.wake(task)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        until = None if timeout is None else self._scheduler.now + timeout
        while not self._set:
            left = None if until is None else until - self._scheduler.now
            if left is not None and left <= 0:
                break
            task = self._scheduler.current
            if task is None:
                raise RuntimeError("nothing can be waited for outside of all tasks")
            self._waiters.append(task)
            self._scheduler.park(left)
            if task in self._waiters:
                self._waiters.remove(task)
        return self._set


class _Barrier:
    """The part of a barrier that the library uses: it opens once."""

    def __init__(self, scheduler: Scheduler, parties: int, timeout: float | None = None) -> None:
        self._left = parties
        self._timeout = timeout
        self._open = Event(scheduler)

    def wait(self) -> int:
        self._left -= 1
        if self._left == 0:
            self._open.set()
        if not self._open.wait(self._timeout):
            raise threading.BrokenBarrierError
        return self._left


class _Thread:
    def __init__(
        self,
        scheduler: Scheduler,
        target: Callable[..., object],
        name: str = "thread",
        daemon: bool = False,
        args: tuple[Any, ...] = (),
    ) -> None:
        self._scheduler = scheduler
        self._work: Callable[[], object] = lambda: target(*args)
        self.name = name
        self._ended = Event(scheduler)
        self._task: Task | None = None

    def start(self) -> None:
        assert self._scheduler.current is not None

        def run() -> None:
            try:
                self._work()
            finally:
                self._ended.set()

        self._task = self._scheduler.spawn(self._scheduler.current.process, self.name, run)
        self._task.thread = self

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done


class Pool(Executor):
    """A pool of a limited number of tasks. Work that is submitted outside of all tasks is done at once."""

    def __init__(self, scheduler: Scheduler, width: int, name: str) -> None:
        self._scheduler = scheduler
        self._width = max(1, width)
        self._name = name
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._idle: deque[Task] = deque()
        self._running = 0
        self._closed = False
        self._ended = _Condition(scheduler)

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        task = self._scheduler.current
        if task is None:
            _carry_out(future, lambda: work(*args, **kwargs))
            return future
        self._queue.append((future, lambda: work(*args, **kwargs)))
        if self._running < self._width:
            self._running += 1
            self._scheduler.spawn(task.process, self._name, self._run)
        return future

    def _run(self) -> None:
        while self._queue:
            future, work = self._queue.popleft()
            _carry_out(future, work)
        self._running -= 1
        with self._ended:
            self._ended.notify_all()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        if cancel_futures:
            while self._queue:
                self._queue.popleft()[0].cancel()
        if wait and self._scheduler.current is not None:
            with self._ended:
                self._ended.wait_for(lambda: not self._running)


def _carry_out(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - handed on, as an executor does
        future.set_exception(error)


def make_threading(scheduler: Scheduler) -> SimpleNamespace:
    """Replaces the module ``threading``."""
    outside = object()

    def make_condition(lock: _Lock | None = None) -> _Condition:
        return _Condition(scheduler, lock)

    def make_thread(**arguments: Any) -> _Thread:
        arguments.pop("kwargs", None)
        return _Thread(scheduler, **arguments)

    return SimpleNamespace(
        Lock=lambda: _Lock(scheduler),
        RLock=lambda: _Lock(scheduler, reentrant=True),
        Condition=make_condition,
        Event=lambda: Event(scheduler),
        Barrier=lambda parties, timeout=None: _Barrier(scheduler, parties, timeout),
        BrokenBarrierError=threading.BrokenBarrierError,
        Thread=make_thread,
        current_thread=lambda: scheduler.current.thread if scheduler.current is not None else outside,
        get_ident=lambda: id(scheduler.current or outside),
    )


def make_pool(scheduler: Scheduler) -> Callable[..., Pool]:
    """Replaces ``ThreadPoolExecutor``."""

    def pool(max_workers: int = 4, thread_name_prefix: str = "pool") -> Pool:
        return Pool(scheduler, max_workers, thread_name_prefix)

    return pool
