"""Early syncs that end when a test says so."""

from __future__ import annotations

import threading

from litelog.log.early_sync import await_sync
from tests.waiting import WAIT_SECONDS


class HeldSyncs:
    """Takes the place of ``await_sync``. Each ``may_end.release`` lets one sync end."""

    def __init__(self) -> None:
        self.may_end = threading.Semaphore(0)
        self.number = 0
        """The number of the error with which syncs end; 0 without one."""
        self.begun = 0

    def __call__(self, pipe: int) -> int:
        found = await_sync(pipe)
        if found < 0:
            return found
        self.begun += 1
        assert self.may_end.acquire(timeout=WAIT_SECONDS)
        return self.number
