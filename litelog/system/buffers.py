"""Room for the large buffers of a process: the parts of uploads, what is read ahead of them, and WAL segments.

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

    def try_take(self, size: int, limit: int | None = None) -> bool:
        """Take room for ``size`` bytes if it is there now, and return whether it was. ``limit``: a lower one."""
        with self._changed:
            fits = self._used + size <= (self._limit if limit is None else limit)
            if fits:
                self._used += size
            return fits

    def take_anyway(self, size: int) -> None:
        """Take room for ``size`` bytes, even if it is not there."""
        with self._changed:
            self._used += size

    def give_back(self, size: int) -> None:
        """Return room for ``size`` bytes."""
        with self._changed:
            self._used -= size
            self._changed.notify_all()


class Portion:
    """What one of several users has taken of a room, without waiting. Used by one thread at a time.

    One alone may take all of the room. Several take half of it together: the buffers of several threads leave gaps in
    the heap, which take as much again.
    """

    def __init__(self, room: Room) -> None:
        self.room = room
        self.size = 0

    def has_room(self, size: int) -> bool:
        """Whether ``try_take`` would take room for ``size`` bytes."""
        return self.room.used + size <= self._limit()

    def try_take(self, size: int) -> Share | None:
        """Take room for ``size`` bytes; None if it is not there."""
        return Share(self, size) if self.room.try_take(size, self._limit()) else None

    def take_anyway(self, size: int) -> Share:
        """Take room for ``size`` bytes, even if it is not there."""
        self.room.take_anyway(size)
        return Share(self, size)

    def _limit(self) -> int:
        return self.room.limit if self.room.used == self.size else self.room.limit // 2


class Share:
    """The part of a portion that one buffer takes. Its size changes with that of the buffer."""

    def __init__(self, portion: Portion, size: int) -> None:
        """``size``: what the room has given already."""
        self._portion = portion
        self._size = size
        portion.size += size

    def resize(self, size: int) -> None:
        """Take ``size`` bytes from now on, even if there is no room for as many."""
        more, self._size = size - self._size, size
        self._portion.size += more
        if more > 0:
            self._portion.room.take_anyway(more)
        else:
            self._portion.room.give_back(-more)

    def give_back(self) -> None:
        """Take nothing any more. Idempotent."""
        self.resize(0)


DEFAULT_BYTES = 24 << 20
"""The limit of a process that sets none."""

PARTS = Room(DEFAULT_BYTES * 2 // 3)
"""For the parts of uploads, which are created and sent. A part waits for room."""

AHEAD = Room(DEFAULT_BYTES // 3)
"""For what is read and compressed before an upload needs it. Without room nothing is read ahead, and nothing waits: an
upload that waits for its next part may hold some of it."""

RUNS = Room(DEFAULT_BYTES)
"""For what is read of logs for WAL segments, and for these until they are put. Nobody waits for it, as a store that
hangs would hold up all others: without room, WAL segments are smaller."""


def limit_buffers(size: int) -> None:
    """Limit the buffers of this process to ``size`` bytes, and those of WAL segments to as many. Each upload, each log
    segment that is sealed, and each log that is shipped may hold one buffer in any case."""
    PARTS.set_limit(size * 2 // 3)
    AHEAD.set_limit(size // 3)
    RUNS.set_limit(size)
