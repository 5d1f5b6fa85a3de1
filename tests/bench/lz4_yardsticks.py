"""LZ4's own command as a yardstick: it compresses the files of a log in one process or in two, and syncs the output."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from measuring import empty, measure, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ONE, TWO = "cat | lz4 -1", "lz4 -1, two processes"


def yardsticks(log: Path, folder: Path) -> dict[str, Callable[[], float]]:
    """Map the name of each yardstick to a function that runs it and returns the seconds."""
    return {ONE: partial(time_one, log, folder), TWO: partial(time_two, log, folder)}


def time_one(log: Path, folder: Path) -> float:
    """Compress all files, joined, in one process, and return the seconds."""
    target = empty(folder) / "all.lz4"
    return measure(lambda: run(["sh", "-c", f"cat {log}/*.log | lz4 -1 > {target} && sync {target}"]))


def time_two(log: Path, folder: Path) -> float:
    """Compress each file separately, two at a time, and return the seconds."""
    empty(folder)
    script = (
        f"ls {log}/*.log | xargs -P2 -I FILE sh -c 'lz4 -1 -q FILE {folder}/$(basename FILE).lz4' && sync {folder}/*"
    )
    return measure(lambda: run(["sh", "-c", script]))
