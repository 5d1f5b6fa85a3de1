"""Handles signals as values: a handler puts a number into a queue, and a thread takes it out and acts.

A daemon takes a second to import modules, read its configuration and open its files. A signal that arrives meanwhile is
held until there is something to stop.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event, Thread, Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)

STARTING_SECONDS = 60.0
"""Seconds that a start may still take after a signal to stop. A start that hangs (a configuration on a lost mount) has
nothing to sync, and must end. A cold start takes seconds, even on a busy machine."""

ENDING_SECONDS = 5.0
"""Seconds that a program which may be killed at any moment takes to end. A request to a machine that was cut off from
the network may take a minute."""


class HeldSignals:
    """Holds the signals that arrive before anything can act on them. For the main thread only.

    The process exits at once on a second signal to stop, as it also does later, and after ``starting_seconds``.
    """

    def __init__(self, starting_seconds: float = STARTING_SECONDS) -> None:
        self._starting_seconds = starting_seconds
        self._arrived: list[int] = []
        self._previous: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def hold(self) -> None:
        """Start to hold SIGTERM, SIGINT and SIGHUP; not SIGHUP if it is ignored, as under nohup."""
        for number in (*STOPPING, signal.SIGHUP):
            if number in STOPPING or signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._keep)

    def take(self, numbers: tuple[signal.Signals, ...]) -> list[int]:
        """Return the signals among ``numbers`` that have arrived, in order. The caller handles these signals by now.

        Other signals have their default effect from now on.
        """
        signal.setitimer(signal.ITIMER_REAL, 0)
        taken = [number for number in self._arrived if number in numbers]
        self._let_through([number for number in self._previous if number not in numbers])
        return taken

    def release(self) -> None:
        """Stop holding. Signals that have arrived have their default effect."""
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
        late = f"the start took longer than {self._starting_seconds:g} s after it"
        os.write(2, f"litelog: signal {ended_by} came while the daemon started; {late}: nothing was synced\n".encode())
        os._exit(128 + ended_by)


@contextmanager
def acting_on_signals(
    act: Callable[[int], None],
    numbers: tuple[signal.Signals, ...] = STOPPING,
    held: HeldSignals | None = None,
) -> Iterator[None]:
    """Call ``act`` with the number of each of these signals while the block runs, first with the ``held`` ones.

    For the main thread only; a separate thread calls ``act``. The handlers only put values into a queue, since a
    handler may interrupt code that holds any lock.
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


@contextmanager
def ending_on_signals(stop: Event, advice: str, seconds: float = ENDING_SECONDS) -> Iterator[list[int]]:
    """Set ``stop`` at the first signal to stop. If the block still runs ``seconds`` after it, print ``advice``, and end
    the process as a second signal does: at once. Yields the signals that have arrived. For what may be killed at any
    moment; for the main thread only."""
    late: list[Timer] = []
    arrived: list[int] = []

    def give_up(number: int) -> None:
        os.write(2, f"litelog: ended by force {seconds:g} s after the signal; {advice}\n".encode())
        os._exit(128 + number)

    def end(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        arrived.append(number)
        stop.set()
        late.append(Timer(seconds, give_up, (number,)))
        late[0].daemon = True
        late[0].start()

    try:
        with acting_on_signals(end):
            yield arrived
    finally:
        for timer in late:
            timer.cancel()
