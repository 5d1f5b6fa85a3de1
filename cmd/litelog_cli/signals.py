"""Signals as values: a handler puts a number into a queue, a thread takes it out and acts.

A daemon takes a second to import, to read its configuration and to open its files. A signal that arrives meanwhile is
held, and acted on as soon as there is something that can be stopped.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)

STARTING_SECONDS = 60.0
"""How long a start may still take after a signal that ends it: one that hangs (a configuration on a mount that is gone)
has nothing to sync, and must end. A cold start takes seconds, also on a busy machine."""


class HeldSignals:
    """The signals that arrive before anybody acts on them. Only for the main thread.

    A second one of those that end the process ends it at once, as later, and so does the end of ``STARTING_SECONDS``.
    """

    def __init__(self, starting_seconds: float = STARTING_SECONDS) -> None:
        self._starting_seconds = starting_seconds
        self._arrived: list[int] = []
        self._previous: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def hold(self) -> None:
        """Begin to hold SIGTERM, SIGINT and SIGHUP; SIGHUP not where it is ignored, as nohup has it."""
        for number in (*STOPPING, signal.SIGHUP):
            if number in STOPPING or signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._keep)

    def take(self, numbers: tuple[signal.Signals, ...]) -> list[int]:
        """Those of ``numbers`` that have arrived, in their order: call it once somebody else handles them. The others
        do from now on what they would have done."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        taken = [number for number in self._arrived if number in numbers]
        self._let_through([number for number in self._previous if number not in numbers])
        return taken

    def release(self) -> None:
        """Hold nothing any more; what has arrived does what it would have done."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._let_through(list(self._previous))

    def _let_through(self, numbers: list[int]) -> None:
        for number in numbers:
            signal.signal(number, self._previous.pop(number) or signal.SIG_DFL)
        for number in [number for number in self._arrived if number in numbers]:
            os.kill(os.getpid(), number)

    def _keep(self, number: int, _frame: FrameType | None) -> None:
        if number in STOPPING and any(before in STOPPING for before in self._arrived):
            os._exit(128 + number)
        if number in STOPPING:
            signal.signal(signal.SIGALRM, self._give_up)
            signal.setitimer(signal.ITIMER_REAL, self._starting_seconds)
        self._arrived.append(number)

    def _give_up(self, _number: int, _frame: FrameType | None) -> None:
        ended_by = next(number for number in self._arrived if number in STOPPING)
        late = f"the start did not end within {self._starting_seconds:g} s of it"
        os.write(2, f"litelog: signal {ended_by} came while the daemon started; {late}: nothing was synced\n".encode())
        os._exit(128 + ended_by)


@contextmanager
def acting_on_signals(
    act: Callable[[int], None],
    numbers: tuple[signal.Signals, ...] = STOPPING,
    held: HeldSignals | None = None,
) -> Iterator[None]:
    """Call ``act`` with the number of each of these signals, in a thread of its own, while the block runs; first with
    those that were ``held``.

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
    for number in held.take(numbers) if held is not None else ():
        arrived.put(number)
    thread.start()
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        arrived.put(None)
        thread.join(1)
