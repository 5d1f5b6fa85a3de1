"""Reports the progress of a job: asks Spark at intervals."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Progress: TypeAlias = "Callable[[int, int], None]"
"""``progress(bytes done, total bytes)``."""

ASK_SECONDS = 0.5


@contextmanager
def watching(spark: Any, progress: Progress | None, size: int, *, before: int = 0, after: int = 0) -> Iterator[None]:
    """While the block runs, report to ``progress`` how many of ``size`` bytes Spark has read, from its finished tasks.

    ``before`` and ``after``: bytes of the same job that were done earlier, and that follow. Makes no calls under Spark
    Connect, which does not report progress.
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
                progress(before + size * over // tasks, before + size + after)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
