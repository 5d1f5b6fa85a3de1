"""Verified, ordered and bounded reads: objects are read again if a check fails, and work ahead is limited.

Bytes may change on their way, so one failed check proves nothing about the store.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from litelog.errors import CorruptObjectError, LitelogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor
    from types import TracebackType
    from typing import Self

_Checked = TypeVar("_Checked")
_Read = TypeVar("_Read")

READS = 3
"""How often an object is read before what is wrong with it is believed to be wrong in the store."""


def read_checked(read: Callable[[], _Read], check: Callable[[_Read], _Checked], held: _Read | None = None) -> _Checked:
    """What ``check`` makes of what was read. Where it raises CorruptObjectError the object is read again; the last
    error is passed on. ``held``: what was read already, which is the first read."""
    for number in range(READS - 1):
        body = read() if number or held is None else held
        try:
            return check(body)
        except CorruptObjectError:
            pass
    return check(read())


_Result = TypeVar("_Result")

AHEAD_BYTES = 16 << 20
"""What is held ahead of the reader at most, but for one piece that is larger."""

AHEAD_JOBS = 8
"""Requests at a time at most: they wait on the store, and not on each other."""


def ahead(
    executor: Executor,
    jobs: Iterable[tuple[int, Callable[[], _Result]]],
    most_bytes: int = AHEAD_BYTES,
    most_jobs: int = AHEAD_JOBS,
) -> Iterator[_Result]:
    """The results of ``jobs`` (what each holds in bytes, and what to call) in their order; their errors, too, and that
    of the making of ``jobs``: all before it was given.

    Jobs are taken as there is room for them. Those that were not begun when this ends never are.
    """
    waiting: deque[tuple[int, Future[_Result]]] = deque()
    making, held = iter(jobs), 0
    failure: LitelogError | None = None
    try:
        while True:
            try:
                size, job = next(making)
            except StopIteration:
                break
            except LitelogError as error:
                failure = error
                break
            while waiting and (held + size > most_bytes or len(waiting) == most_jobs):
                taken, future = waiting.popleft()
                yield future.result()
                held -= taken
            waiting.append((size, executor.submit(job)))
            held += size
        while waiting:
            yield waiting.popleft()[1].result()
        if failure is not None:
            raise failure
    finally:
        for _, future in waiting:
            future.cancel()


_Item = TypeVar("_Item")


AHEAD_PER_WORKER = 4


class OrderedPool:
    """Threads that work through items that are taken as they are needed; one worker is the caller's own thread."""

    def __init__(self, workers: int) -> None:
        self._ahead = workers * AHEAD_PER_WORKER
        self._executor = ThreadPoolExecutor(workers, "verify") if workers > 1 else None

    def map(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """``work`` of each item, in their order; at most AHEAD_PER_WORKER items a worker are held."""
        if self._executor is None:
            yield from map(work, items)
            return
        waiting: deque[Future[_Result]] = deque()
        try:
            for item in items:
                waiting.append(self._executor.submit(work, item))
                if len(waiting) >= self._ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
