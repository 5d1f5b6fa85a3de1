"""LZ4's own command as a yardstick: compresses the files of a log, in one process or in two, and syncs the output."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from measuring import empty, measure, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ONE, TWO = "cat | lz4 -1", "lz4 -1, two processes"


def yardsticks(log: Path, place: Path) -> dict[str, Callable[[], float]]:
    """Calls that return the seconds of each yardstick, by its name."""
    return {ONE: partial(time_one, log, place), TWO: partial(time_two, log, place)}


def time_one(log: Path, place: Path) -> float:
    """Seconds to compress all files, joined, in one process."""
    target = empty(place) / "all.lz4"
    return measure(lambda: run(["sh", "-c", f"cat {log}/*.log | lz4 -1 > {target} && sync {target}"]))


def time_two(log: Path, place: Path) -> float:
    """Seconds to compress each file by itself, two at a time."""
    empty(place)
    script = f"ls {log}/*.log | xargs -P2 -I FILE sh -c 'lz4 -1 -q FILE {place}/$(basename FILE).lz4' && sync {place}/*"
    return measure(lambda: run(["sh", "-c", script]))
