"""Seals log segments of one log in the background, a few at a time, each in a turn of a shared thread.

A turn holds its thread for one log segment only, so logs with the same destination share the threads fairly.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from litelog.dataclass import dataclass
from litelog.system.memory import clear_error_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Task = TypeVar("Task")
Made = TypeVar("Made")


class JobStoppedError(Exception):
    """The work was stopped."""


class InlineRunner:
    """Runs work in the calling thread, one piece after another. Work that a piece submits runs after it."""

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
class JobOutcome(Generic[Made]):
    """The outcome of a job: the results of its first tasks, in their order, and the error of the next task."""

    made: tuple[Made, ...]
    error: BaseException | None


class SealingJob(Generic[Task, Made]):
    """Calls ``make(task, result of the one before)`` for each task, in the background. Starts nothing after an
    error."""

    def __init__(
        self,
        tasks: Sequence[Task],
        make: Callable[[Task, Made | None], Made],
        *,
        width: int,
        submit: Callable[[Callable[[], None]], object],
        on_done: Callable[[], None],
    ) -> None:
        """``width``: how many tasks run at a time. With 1, each gets the result of the one before; else it gets None.

        ``submit`` runs work in a thread. ``on_done`` is called in such a thread when no task runs any more.
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
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start the first tasks."""
        with self._changed:
            self._running = max(1, min(self._width, len(self._tasks)))
            turns = self._running
        for _ in range(turns):
            self._queue_turn()

    def stop(self) -> None:
        """Start no more tasks; ``raise_if_stopped`` stops those that run."""
        with self._changed:
            self._stopped = True

    def raise_if_stopped(self) -> None:
        """Raise JobStoppedError once the job is stopped."""
        if self._stopped:
            raise JobStoppedError

    @property
    def done(self) -> bool:
        """Whether no task runs any more."""
        return not self._running

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` until no task runs; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, seconds)

    def outcome(self) -> JobOutcome[Made] | None:
        """Return the outcome; None while a task runs."""
        with self._changed:
            if self._running:
                return None
            count = next(at for at in range(len(self._tasks) + 1) if at not in self._made)
            error = self._errors.get(count)
            if error is None and count < len(self._tasks):
                error = next(iter(self._errors.values()), JobStoppedError())
            return JobOutcome(tuple(self._made[at] for at in range(count)), error)

    def _queue_turn(self) -> None:
        """Queue for a turn of a thread. If the executor refuses it, the process is ending."""
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
        except BaseException as error:  # noqa: BLE001 - ``outcome`` reports it
            clear_error_frames(error)
            with self._changed:
                self._errors[at] = error
        else:
            with self._changed:
                self._made[at] = made
        self._queue_turn()

    def _end_turns(self) -> None:
        with self._changed:
            self._running -= 1
            over = not self._running
            self._changed.notify_all()
        if over:
            self._on_done()
