"""The parts of bodies that are on their way to a store: a process holds a few at a time, whatever they belong to.

Many uploads run at once where a daemon meets its logs for the first time: several of each destination, and there may be
many destinations. A part is made when there is room for it, and gives the room back when it was sent. An upload waits
for room only while all that it holds is being sent, so uploads that wait for each other always come to an end.
"""

from __future__ import annotations

import threading
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

PARTS_IN_PROCESS = 4
"""Parts that a process makes or sends at a time: of S3's 8 MiB each, 32 MiB."""


class PartBudget:
    """Room for some parts. From any thread."""

    def __init__(self, parts: int = PARTS_IN_PROCESS) -> None:
        self._room = threading.Semaphore(parts)

    def take(self) -> None:
        """Wait for room for one part."""
        self._room.acquire()

    def give_back(self) -> None:
        """The part is gone."""
        self._room.release()


OF_PROCESS = PartBudget()
"""The one for all uploads of this process: a limit of memory is the process's."""


class Part:
    """One part's bytes, which are held until it is dropped, or its context ends; that gives its room back."""

    def __init__(self, content: bytes, budget: PartBudget) -> None:
        self.content = [content]
        """No other object keeps the bytes: they are gone when this is empty."""
        self._budget = budget

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def drop(self) -> None:
        """Release the bytes. Idempotent."""
        if self.content:
            self.content.clear()
            self._budget.give_back()


class Parts:
    """The bytes of a body's buffers, put together, in parts of ``part_bytes`` and a shorter last one."""

    def __init__(self, body: Iterable[Buffer], part_bytes: int, budget: PartBudget) -> None:
        self._buffers = iter(body)
        self._part_bytes = part_bytes
        self._budget = budget
        self._rest = memoryview(b"")

    def has_more(self) -> bool:
        """Whether there is another part. Holds one buffer of the body, and not a part, to know it."""
        while not len(self._rest):
            buffer = next(self._buffers, None)
            if buffer is None:
                return False
            self._rest = memoryview(buffer).cast("B")
        return True

    def take(self) -> Part:
        """The next part, made as soon as there is room for it; empty after the end. Drop it, whatever happens."""
        self._budget.take()
        try:
            made = BytesIO()
            made.seek(self._part_bytes - 1)  # in its full size at once: growing would leave holes in memory
            made.write(b"\0")
            made.seek(0)
            while (room := self._part_bytes - made.tell()) and self.has_more():
                made.write(self._rest[:room])
                self._rest = self._rest[room:]
            made.truncate()
            return Part(made.getvalue(), self._budget)  # no copy: it is the buffer that was written
        except BaseException:
            self._budget.give_back()
            raise
