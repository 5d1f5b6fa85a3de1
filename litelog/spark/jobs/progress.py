"""How far Spark is with a job, asked now and then while it runs."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Progress: TypeAlias = "Callable[[int, int], None]"
"""``progress(tasks that are done, all of them)``."""

ASK_SECONDS = 0.5


@contextmanager
def watching(spark: Any, progress: Progress | None) -> Iterator[None]:
    """Tell ``progress`` of the tasks of all stages that run meanwhile. Nothing over Spark Connect, which is silent."""
    context = None if progress is None else getattr(spark, "sparkContext", None)
    if context is None or progress is None:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_ask, args=(context.statusTracker(), progress, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _ask(tracker: Any, progress: Progress, done: threading.Event) -> None:
    while not done.wait(ASK_SECONDS):
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        if known:
            progress(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))
