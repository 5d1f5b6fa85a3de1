"""How tests wait: for a condition, with a limit that only a hang reaches, even on a busy machine."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_SECONDS = 240
"""The bound of each wait. A test that reaches it hangs."""


def wait_until(
    holds: Callable[[], object], what: str = "", why: Callable[[], object] = lambda: "", pause: float = 0.01
) -> None:
    """Ask every ``pause`` seconds until the condition holds. If it never does, AssertionError says ``what`` was waited
    for, and ``why`` it does not hold."""
    deadline = time.monotonic() + WAIT_SECONDS
    between = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS} s in vain: {what}; {why()}"
        between.wait(pause)
