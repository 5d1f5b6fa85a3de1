"""Work side by side, results in order: so many tasks ahead of the oldest unfinished one, and no more."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Self

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

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
