"""How far Spark is with a job, asked now and then while it runs."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Progress: TypeAlias = "Callable[[int, int], None]"
"""``progress(bytes that are done, all of them)``."""

ASK_SECONDS = 0.5


@contextmanager
def watching(spark: Any, progress: Progress | None, size: int, *, before: int = 0, behind: int = 0) -> Iterator[None]:
    """Tell ``progress`` how much is done of the ``size`` bytes that Spark reads meanwhile, by the tasks that are over.

    ``before`` and ``behind``: bytes of the same job that are done already, and that come later. Nothing is told over
    Spark Connect, which is silent.
    """
    context = None if progress is None else getattr(spark, "sparkContext", None)
    if context is None or progress is None:
        yield
        return
    done = threading.Event()

    def ask() -> None:
        tracker, seen = context.statusTracker(), dict[int, tuple[int, int]]()
        while not done.wait(ASK_SECONDS):
            for number in tracker.getActiveStageIds():
                stage = tracker.getStageInfo(number)
                if stage is not None:
                    seen[number] = (stage.numCompletedTasks, stage.numTasks)
            if seen:
                over, tasks = (sum(column) for column in zip(*seen.values(), strict=True))
                progress(before + size * over // tasks, before + size + behind)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
