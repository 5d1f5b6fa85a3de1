"""Spark drivers in processes of their own, which tests kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

AWAITED_SECONDS = 200
"""Time for an awaited state on a busy machine."""


@contextmanager
def driver(script: str, *arguments: str, output: Path) -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Start a process in its own group, and kill the group at the end. Yields a function that waits for a condition."""
    with open(output, "wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments], stdout=file, stderr=file, start_new_session=True
        )
    deadline = time.monotonic() + AWAITED_SECONDS

    def wait(condition: Callable[[], Any]) -> None:
        while not condition():
            assert process.poll() is None, output.read_text()[-3000:]
            assert time.monotonic() < deadline, output.read_text()[-3000:]
            time.sleep(0.01)

    try:
        yield wait
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
