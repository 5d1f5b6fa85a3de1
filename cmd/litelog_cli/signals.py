"""Signals as values: a handler puts a number into a queue, a thread takes it out and acts."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def acting_on_signals(act: Callable[[int], None], numbers: tuple[signal.Signals, ...] = STOPPING) -> Iterator[None]:
    """Call ``act`` with the number of each of these signals, in a thread of its own, while the block runs.

    Only for the main thread. A handler may do nothing but put: it interrupts whatever holds whichever lock.
    """
    arrived: SimpleQueue[int | None] = SimpleQueue()

    def handle(number: int, _frame: FrameType | None) -> None:
        arrived.put(number)

    def wait() -> None:
        while (number := arrived.get()) is not None:
            act(number)

    thread = Thread(target=wait, name="signals", daemon=True)
    previous = {number: signal.signal(number, handle) for number in numbers}
    thread.start()
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        arrived.put(None)
        thread.join(1)
