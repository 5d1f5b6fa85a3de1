"""ChangeSignal: calls those who wait for a change in another thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ChangeSignal:
    """A set of functions that are called after each change. Any thread calls the methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: set[Callable[[], None]] = set()

    def listen(self, call: Callable[[], None]) -> None:
        """Call ``call`` after each change, from the thread that changes something. It must neither block nor raise."""
        with self._lock:
            self._calls.add(call)

    def forget(self, call: Callable[[], None]) -> None:
        """Revoke ``listen``. A call that is under way may still arrive."""
        with self._lock:
            self._calls.discard(call)

    def notify(self) -> None:
        """Report a change."""
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call()
