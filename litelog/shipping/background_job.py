"""Log segments of one log that go up sealed in the background: a few at a time, a turn of a shared thread for each.

No thread is held for longer than one log segment takes, so that logs that go to the same destination take turns.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from litelog.errors import release

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Task = TypeVar("Task")
Made = TypeVar("Made")


class UnderWayError(Exception):
    """What is asked for is being made in the background: ask again once that is done. Nothing has failed."""


class StoppedError(Exception):
    """Somebody has stopped the work."""


class Turns:
    """Does work in the thread that brings it, one piece behind the other: what a piece brings comes behind it."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._busy = False

    def __call__(self, work: Callable[[], None]) -> None:
        self._waiting.append(work)
        if self._busy:
            return
        self._busy = True
        try:
            while self._waiting:
                self._waiting.popleft()()
        finally:
            self._busy = False
            self._waiting.clear()


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Made]):
    """What came of a job: what was made of its first tasks, in their order, and what the task behind them raised."""

    made: tuple[Made, ...]
    error: BaseException | None


class SealingJob(Generic[Task, Made]):
    """Does ``make(task, made of the one before)`` for each task, in the background. After an error nothing is begun."""

    def __init__(
        self,
        tasks: Sequence[Task],
        make: Callable[[Task, Made | None], Made],
        *,
        width: int,
        submit: Callable[[Callable[[], None]], object],
        on_done: Callable[[], None],
    ) -> None:
        """``width``: how many are made at a time; 1: each one knows what was made of the one before, the others None.

        ``submit`` has work done in a thread; ``on_done`` is called in one, once nothing is being made any more.
        """
        self._tasks = tasks
        self._make = make
        self._width = width
        self._submit = submit
        self._on_done = on_done
        self._made: dict[int, Made] = {}
        self._errors: dict[int, BaseException] = {}
        self._next = 0
        self._running = 0
        self._stopped = False
        self._told = False
        self._changed = threading.Condition()

    def start(self) -> None:
        """Begin."""
        with self._changed:
            self._running = max(1, min(self._width, len(self._tasks)))
            turns = self._running
        for _ in range(turns):
            self._hand_on()

    def stop(self) -> None:
        """Begin nothing more; ``check_going_on`` stops what is being made."""
        with self._changed:
            self._stopped = True

    def check_going_on(self) -> None:
        """StoppedError once the job was stopped."""
        if self._stopped:
            raise StoppedError

    @property
    def done(self) -> bool:
        """Whether nothing is being made any more."""
        return not self._running

    def wait(self, seconds: float) -> bool:
        """Until nothing is being made; whether that came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, seconds)

    def outcome(self) -> Outcome[Made]:
        """What came of it. UnderWayError as long as it is not done."""
        with self._changed:
            if self._running:
                raise UnderWayError
            count = next(at for at in range(len(self._tasks) + 1) if at not in self._made)
            error = self._errors.get(count)
            if error is None and count < len(self._tasks):
                error = next(iter(self._errors.values()), StoppedError())
            return Outcome(tuple(self._made[at] for at in range(count)), error)

    def _hand_on(self) -> None:
        """Wait for a turn; where threads are no longer given, the process ends."""
        try:
            self._submit(self._take_turn)
        except RuntimeError:
            self.stop()
            self._end_turns()

    def _take_turn(self) -> None:
        with self._changed:
            at = self._next
            over = at == len(self._tasks) or bool(self._errors) or self._stopped
            if not over:
                self._next += 1
            before = self._made.get(at - 1) if self._width == 1 else None
        if over:
            self._end_turns()
            return
        try:
            made = self._make(self._tasks[at], before)
        except BaseException as error:  # noqa: BLE001 - raised where the outcome is asked for
            release(error)
            with self._changed:
                self._errors[at] = error
        else:
            with self._changed:
                self._made[at] = made
        self._hand_on()

    def _end_turns(self) -> None:
        with self._changed:
            self._running -= 1
            over = not self._running
            self._changed.notify_all()
        if over:
            self._on_done()
