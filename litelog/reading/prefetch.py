"""Work done ahead of who takes it, in order, and no more of it at a time than memory allows."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

from litelog.errors import LitelogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor, Future

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
