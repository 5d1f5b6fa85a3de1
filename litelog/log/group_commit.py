"""Group commit: appends from many threads are put in one order and written a group at a time.

The thread that holds the write lock writes the queue for all threads. A thread that waits for its own append takes
the write lock itself, so a single writing thread pays for no hand-over. One background thread writes for asynchronous
appends. It alone resolves their futures, in order and without the write lock, so a callback may append again. If
appends are acknowledged elsewhere, a second thread does that: no write and no sync waits for an acknowledgement.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from litelog.dataclass import dataclass
from litelog.errors import ClosedError, PoisonedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from litelog.log.acknowledgement import Acknowledgement
    from litelog.system.clock import Clock

QUEUE_BYTES = 32 << 20
"""How many bytes of commits may wait; one more append may exceed it. Room for a second of a slow disk."""

GROUP_BYTES = 4 << 20
"""How many bytes of commits are written and synced at once; at least one append. The first append waits for all."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The position of an append in the log: sequences from ``first`` up to, but not including, ``next``."""

    first: int
    next: int
    epoch: int
    mirrored: bool | None = None
    """Whether a mirror has the records durably; None if the writer does not wait for mirrors."""


class EncodedCommit(NamedTuple):
    """A commit's bytes, and the fields that the tail of the log keeps."""

    first: int
    next: int
    highest: int
    data: bytearray


@dataclass(slots=True, eq=False)
class Pending:
    """One append that is queued or being written."""

    commits: list[EncodedCommit]
    appended: Appended
    size: int
    future: Future[Appended] | None = None
    done: bool = False
    error: BaseException | None = None


class GroupCommit:
    """The queue and the write lock. ``write`` gets groups of appends in order, with the write lock held."""

    def __init__(
        self,
        write: Callable[[list[Pending]], None],
        name: str,
        clock: Clock,
        acknowledgement: Acknowledgement | None = None,
    ) -> None:
        self._write = write
        self._acknowledgement = acknowledgement
        self._clock = clock
        self._name = name
        lock = threading.Lock()
        self.changed = threading.Condition(lock)
        """Guards the queue. Notified when the queue has room, when sequences become durable, and at the end."""
        self._work = threading.Condition(lock)  # for the background threads alone
        self.write_lock = threading.RLock()
        self._queue: deque[Pending] = deque()
        self._queued_bytes = 0
        self._resolvable: deque[tuple[Future[Appended], Pending]] = deque()
        self._closing = False
        self._ended = False
        self._poison: BaseException | None = None
        self._reported = False
        self._thread: threading.Thread | None = None
        self._resolver: threading.Thread | None = None
        """Resolves futures instead of ``_thread``, if there is an acknowledgement to wait for."""
        self._tick: Callable[[], None] | None = None
        self._tick_seconds: float | None = None

    def submit(self, make: Callable[[], Pending]) -> Pending:
        """Queue what ``make`` returns. It runs with the queue's order held, so its decisions stay true.

        Waits while the queue is full. Raises ClosedError, PoisonedError, and what ``make`` raises; in each case nothing
        is queued.
        """
        with self.changed:
            while self._queued_bytes >= QUEUE_BYTES and threading.current_thread() is not self._thread:
                self.require_open()
                self.changed.wait()
            self.require_open()
            pending = make()
            if pending.future is not None:
                self._start()
            self._queue.append(pending)
            self._queued_bytes += pending.size
            if pending.future is not None:
                self._work.notify_all()
        return pending

    def finish(self, pending: Pending) -> None:
        """Return when ``pending`` is written as the policy says. Raises PoisonedError if that failed."""
        with self.write_lock:
            while not pending.done:
                self._write_group()
        if pending.error is not None:
            raise self._report()

    def flush(self) -> None:
        """Write the whole queue. Call it with the write lock held. Raises PoisonedError if a write failed."""
        while self._write_group():
            pass
        self.require_sound()

    def guard(self, action: Callable[[], None], *, needs_open: bool = False) -> None:
        """Run ``action`` with the write lock held. If it fails, the log is poisoned. ``needs_open``: raise ClosedError
        once the log is closed, because another writer may have it then."""
        with self.write_lock:
            if needs_open:
                self.require_open()
            self.flush()
            try:
                action()
            except BaseException as error:
                self._fail(error)
                if isinstance(error, OSError):
                    raise self._report() from error
                raise
        with self.changed:
            self.changed.notify_all()

    def tick_every(self, seconds: float, tick: Callable[[], None]) -> None:
        """Have the background thread call ``tick`` every ``seconds``, with the write lock held."""
        self._tick, self._tick_seconds = tick, seconds
        with self.changed:
            self._start()

    @property
    def poisoned(self) -> bool:
        """Whether a write or sync failed."""
        return self._poison is not None

    @property
    def ended(self) -> bool:
        """Closed or poisoned: nothing more becomes durable."""
        return self._ended or self._poison is not None

    def require_sound(self) -> None:
        """Raise PoisonedError if an earlier write failed."""
        if self._poison is not None:
            raise self._report()

    def require_acknowledged(self) -> None:
        """Raise PoisonedError if a write or sync failed and no caller has seen it: a future may never be read."""
        if not self._reported:
            self.require_sound()

    def stop(self) -> bool:
        """Accept no more appends. False if it already accepted none."""
        with self.changed:
            if self._closing:
                return False
            self._closing = True
            self._work.notify_all()
            self.changed.notify_all()
        return True

    def finish_all(self, last: Callable[[], None]) -> None:
        """Write the queue and run ``last``, unless a write failed. Then resolve all futures. Raises PoisonedError."""
        try:
            with self.write_lock:
                while self._write_group():
                    pass
                if not self.poisoned:
                    self.guard(last)
        finally:
            with self.changed:
                self._ended = True  # only now: the awaited sequence may have just become durable
                self.changed.notify_all()
            threads = [thread for thread in (self._thread, self._resolver) if thread is not None]
            if threads and threading.current_thread() not in threads:
                for thread in threads:
                    thread.join()  # takes as long as the disk, an acknowledgement or a callback takes
                self._resolve()

    def require_open(self) -> None:
        """Raise PoisonedError or ClosedError if no append is possible."""
        self.require_sound()
        if self._closing:
            raise ClosedError(f"{self._name}: the writer is closed")

    def _report(self) -> PoisonedError:
        """Return the error that a caller gets, and record that one got it."""
        self._reported = True
        return self._poisoned()

    def _poisoned(self) -> PoisonedError:
        error = PoisonedError(
            f"{self._name}: a write or sync failed ({self._poison}); what is durable is unknown; open the log again"
        )
        error.__cause__ = self._poison
        return error

    def _write_group(self) -> bool:
        """Write the front of the queue, with the write lock held. False if the queue was empty."""
        with self.changed:
            group, size = list[Pending](), 0
            while self._queue and (not group or size + self._queue[0].size <= GROUP_BYTES):
                group.append(self._queue.popleft())
                size += group[-1].size
        if not group:
            return False
        try:
            if self._poison is not None:
                raise self._poisoned()
            self._write(group)
        except BaseException as error:
            self._settle(group, size, error)
            self._fail(error)
            if not isinstance(error, (OSError, PoisonedError)):
                raise  # a bug or an interrupt: the thread that holds the write lock must end, too
        else:
            self._settle(group, size, None)
        return True

    def _settle(self, group: list[Pending], size: int, error: BaseException | None) -> None:
        with self.changed:
            self._queued_bytes -= size
            for pending in group:
                pending.error = error
                pending.done = True
            asynchronous = [(pending.future, pending) for pending in group if pending.future is not None]
            self._resolvable.extend(asynchronous)
            if asynchronous:
                self._work.notify_all()
            self.changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        """Poison the log, and fail all queued appends."""
        with self.changed:
            if self._poison is None:
                self._poison = error
            group, size = list(self._queue), self._queued_bytes
            self._queue.clear()
        self._settle(group, size, error)

    def _start(self) -> None:
        if self._thread is None and not self._closing:
            self._thread = threading.Thread(target=self._run, name=f"append {self._name}", daemon=True)
            self._thread.start()
            if self._acknowledgement is not None:
                self._resolver = threading.Thread(target=self._run_resolver, name=f"resolve {self._name}", daemon=True)
                self._resolver.start()

    def _run(self) -> None:
        due = self._clock.monotonic() + (self._tick_seconds or 0.0)
        while True:
            with self.changed:
                self._work.wait_for(
                    self._has_work, None if self._tick is None else max(0.0, due - self._clock.monotonic())
                )
                if self._closing and not self._queue and not self._resolves_too():
                    return
                idle = not self._queue
            try:
                if not idle:
                    with self.write_lock:
                        self._write_group()
            finally:
                if self._acknowledgement is None:
                    self._resolve()
            if self._tick is not None and self._tick_seconds is not None and self._clock.monotonic() >= due:
                self._do_tick(self._tick)
                due = self._clock.monotonic() + self._tick_seconds

    def _run_resolver(self) -> None:
        while True:
            with self.changed:
                self._work.wait_for(lambda: self._resolvable or self._closing)
                if not self._resolvable and not self._queue:
                    return  # ``finish_all`` resolves what is being written
            self._resolve()

    def _has_work(self) -> bool:
        return bool(self._queue or self._resolves_too() or self._closing)

    def _resolves_too(self) -> bool:
        """Whether there are futures to resolve, and the thread that writes does it."""
        return self._acknowledgement is None and bool(self._resolvable)

    def _do_tick(self, tick: Callable[[], None]) -> None:
        with self.write_lock:
            if self._closing or self.poisoned:
                return
            try:
                tick()
            except OSError as error:
                self._fail(error)
        with self.changed:
            self.changed.notify_all()

    def acknowledged(self, appended: Appended) -> Appended:
        """Wait until written records are acknowledged elsewhere, if that is wanted. Return what the caller gets."""
        if self._acknowledgement is None:
            return appended
        return replace(appended, mirrored=self._acknowledgement.wait(appended.next))

    def _resolve(self) -> None:
        while True:
            with self.changed:
                if not self._resolvable:
                    return
                resolvable = [self._resolvable.popleft() for _ in range(len(self._resolvable))]
            self._await_all([pending for _, pending in resolvable if pending.error is None])
            for future, pending in resolvable:
                if pending.error is None:
                    future.set_result(pending.appended)
                elif isinstance(pending.error, (OSError, PoisonedError)):
                    future.set_exception(self._poisoned())
                else:
                    future.set_exception(pending.error)

    def _await_all(self, written: list[Pending]) -> None:
        """Wait for the last one's acknowledgement, which is that of all before it."""
        if self._acknowledgement is None or not written:
            return
        try:
            mirrored = self.acknowledged(written[-1].appended).mirrored
        except Exception as error:  # noqa: BLE001 - those who wait for the futures get it
            for pending in written:
                pending.error = error
            return
        for pending in written:
            pending.appended = replace(pending.appended, mirrored=mirrored)
