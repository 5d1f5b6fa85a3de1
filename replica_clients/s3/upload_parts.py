"""Limits the parts of bodies that a process holds in memory at a time, across all uploads.

When a daemon meets its logs for the first time, many uploads run at once: several per destination, and there may be
many destinations. A part is created once there is room for it, and returns the room after it was sent. An upload waits
for room only while all that it holds is being sent, so uploads that wait for each other always finish.
"""

from __future__ import annotations

import threading
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

PARTS_IN_PROCESS = 4
"""Parts that a process creates or sends at a time: of S3's 8 MiB each, 32 MiB."""


class PartBudget:
    """Room for a number of parts. For use from any thread."""

    def __init__(self, parts: int = PARTS_IN_PROCESS) -> None:
        self._room = threading.Semaphore(parts)

    def take(self) -> None:
        """Wait for room for one part."""
        self._room.acquire()

    def give_back(self) -> None:
        """Return the room of one part."""
        self._room.release()


OF_PROCESS = PartBudget()
"""The budget of all uploads in this process: the limit of memory is per process."""


class UploadPart:
    """The bytes of one part. Dropping it, or leaving its context, releases them and returns their room."""

    def __init__(self, content: bytes, budget: PartBudget) -> None:
        self.content = [content]
        """The only reference to the bytes: clearing it frees them."""
        self._budget = budget

    def __enter__(self) -> UploadPart:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def drop(self) -> None:
        """Release the bytes. Idempotent."""
        if self.content:
            self.content.clear()
            self._budget.give_back()


class Parts:
    """A body's buffers, joined into parts of ``part_bytes`` each and a shorter last one."""

    def __init__(self, body: Iterable[Buffer], part_bytes: int, budget: PartBudget) -> None:
        self._buffers = iter(body)
        self._part_bytes = part_bytes
        self._budget = budget
        self._rest = memoryview(b"")

    def has_more(self) -> bool:
        """Whether there is another part. Reads ahead only one buffer of the body, not a whole part."""
        while not len(self._rest):
            buffer = next(self._buffers, None)
            if buffer is None:
                return False
            self._rest = memoryview(buffer).cast("B")
        return True

    def take(self) -> UploadPart:
        """The next part, created once there is room for it; empty after the end. The caller must always drop it."""
        self._budget.take()
        try:
            made = BytesIO()
            made.seek(self._part_bytes - 1)  # at full size at once: growing would fragment memory
            made.write(b"\0")
            made.seek(0)
            while (room := self._part_bytes - made.tell()) and self.has_more():
                made.write(self._rest[:room])
                self._rest = self._rest[room:]
            made.truncate()
            return UploadPart(made.getvalue(), self._budget)  # no copy: this is the buffer that was written
        except BaseException:
            self._budget.give_back()
            raise
