"""Runs a script that restores with a fault at each of its system calls in turn, one file or folder at a time.

strace counts calls for each thread on its own, so each path is walked by itself: what changes it is always the same
thread.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.restore.journal import JOURNAL_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[2]
TEMPORARY = ".out.litelog-restoring"
"""Beside ``out``, where all of these restores write to."""

MOST_STEPS = 200
"""More than a restore of so small a log takes."""


def touched_by_copies(names: Iterable[str]) -> tuple[str, ...]:
    """What a restore over an older copy and a follower touch, below the place that holds ``out``."""
    files = [*names, JOURNAL_NAME, ".lock"]
    return (".", "out", TEMPORARY, *(f"{folder}/{name}" for folder in ("out", TEMPORARY) for name in files))


def run_with(inject: str, script: str, place: Path, touched: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script with a fault in the calls that name ``touched``, or a descriptor of it."""
    paths = ["-P", str(place / touched)]
    if "/" in touched and "openat" in inject:
        paths += ["-P", Path(touched).name]  # opened below the descriptor of its folder
    command = ["strace", "-f", "-qq", "-o", "/dev/null", *paths, "-e", f"inject={inject}"]
    return subprocess.run(
        [*command, sys.executable, "-c", script, *arguments, str(place / "out")],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=60,
    )


def walk(
    call: str, fault: str, script: str, template: Path, folder: Path, touched: Iterable[str], *arguments: str
) -> Iterator[tuple[Path, subprocess.CompletedProcess[str]]]:
    """Each run that met the fault, with the place where it ran, a copy of ``template``; at last, for each path,
    one that met none."""
    for number, path in enumerate(touched):
        for step in range(1, MOST_STEPS):
            place = folder / f"{number}-{step}"
            shutil.copytree(template, place)
            done = run_with(f"{call}:{fault}:when={step}", script, place, path, *arguments)
            yield place, done
            if done.returncode == 0:
                break
        else:
            pytest.fail(f"a fault in call {MOST_STEPS} of {path} still shows")
