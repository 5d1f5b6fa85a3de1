"""Room for the large buffers of a process: the parts of uploads, and what is read ahead of them.

A process has one limit, no matter how many logs, log segments and replicas it works on. The work draws room from it
before it takes memory, and returns the room when the memory is free again.
"""

from __future__ import annotations

import threading


class Room:
    """Room for a number of bytes. For use from any thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._changed = threading.Condition()

    @property
    def used(self) -> int:
        """The bytes that are taken now."""
        return self._used

    @property
    def limit(self) -> int:
        """The bytes that may be taken at a time."""
        return self._limit

    def set_limit(self, limit: int) -> None:
        """Change the limit. What is taken already stays taken."""
        with self._changed:
            self._limit = limit
            self._changed.notify_all()

    def take(self, size: int) -> None:
        """Wait for room for ``size`` bytes. If nothing is taken there is room for any size, so no caller
        waits forever."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + size <= self._limit)
            self._used += size

    def try_take(self, size: int) -> bool:
        """Take room for ``size`` bytes if it is there now, and return whether it was."""
        with self._changed:
            fits = self._used + size <= self._limit
            if fits:
                self._used += size
            return fits

    def give_back(self, size: int) -> None:
        """Return room for ``size`` bytes."""
        with self._changed:
            self._used -= size
            self._changed.notify_all()


DEFAULT_BYTES = 24 << 20
"""The limit of a process that sets none."""

PARTS = Room(DEFAULT_BYTES * 2 // 3)
"""For the parts of uploads, which are created and sent. A part waits for room."""

AHEAD = Room(DEFAULT_BYTES // 3)
"""For what is read and compressed before an upload needs it. Without room nothing is read ahead, and nothing waits: an
upload that waits for its next part may hold some of it."""


def limit_buffers(size: int) -> None:
    """Limit the buffers of this process to ``size`` bytes. Each upload and each log segment that is sealed may hold one
    buffer in any case."""
    PARTS.set_limit(size * 2 // 3)
    AHEAD.set_limit(size // 3)
