"""Decides when each log is synced with each replica, by events, polls, intervals and back-off, with bounded pools."""

from __future__ import annotations

import logging
import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import LitelogError, SourceError, SourceMissingError
from litelog.replicator.run_state import DueTimes
from litelog.replicator.task import BUSY, FINISHED, Phase, ReplicaTask, TaskDuty
from litelog.shipping.backoff import describe_wait, is_worth_logging, needs_help
from litelog.system.memory import clear_error_frames
from litelog.units import format_count

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from litelog.replicator.run_state import RunState
    from litelog.replicator.thread_pools import DestinationThreads
    from litelog.shipping.replica import Replica
    from litelog.system.inotify import Watcher

_logger = logging.getLogger(__name__)

POLLING_THREADS = 4
"""How many sweeps over idle logs run at the same time: a folder may hang."""

LIMIT_CHECK_SECONDS = 0.1
"""How often a busy log is checked for a whole WAL segment's growth before its interval is over, at most: in seconds.
Its growth in the interval before tells when the first check is."""

LONGEST_CHECK_SECONDS = 1.0
"""The longest time between two such checks, in seconds: a log may begin to grow fast."""

LIMIT_CHECKS_PER_SECOND = 500
"""How many such checks run in all. With more busy logs, each is checked less often."""

LOOKS_PER_SECOND = 125
"""How many idle logs are examined each second although events report their changes. With more such logs, each is
examined less often. This takes a tenth of a percent of a processor or two."""

MAX_ONCE_FAILURES = 5
"""How many failures in a row end a replica in a run with ``once``, which does not wait for it to come back."""


class SyncScheduler(TaskDuty):
    """Gives threads to the tasks that are due. The main loop calls ``serve``, under the run state's lock. ``_poll``,
    ``_look`` and ``_sync`` run in the pools, and take the lock themselves."""

    def __init__(
        self,
        run_state: RunState,
        threads: DestinationThreads,
        watcher: Watcher,
        random: Random,
        on_synced: Callable[[ReplicaTask], None],
    ) -> None:
        """``on_synced`` is called, under the lock, after each sync without an error."""
        self.tasks: dict[ReplicaTask, None] = {}
        """The tasks, in the order in which they were added."""
        self._run_state = run_state
        self._clock = run_state.clock
        self._threads = threads
        self._watcher = watcher
        self._random = random
        self._on_synced = on_synced
        self._schedule: DueTimes[ReplicaTask] = DueTimes()
        self._spacing: set[ReplicaTask] = set()
        self._wakes: dict[ReplicaTask, Callable[[], None]] = {}
        self._polling = ThreadPoolExecutor(POLLING_THREADS, "poll")

    def add(self, task: ReplicaTask) -> None:
        """As in ``TaskDuty``. The task is due at once."""
        self.tasks[task] = None
        self._wakes[task] = partial(self._wake, task)
        if task.phase not in FINISHED:
            self.schedule_now(task)

    def remove(self, task: ReplicaTask) -> None:
        """As in ``TaskDuty``."""
        self._watcher.disarm(task.log, self._wakes.pop(task))
        self._schedule.drop(task)
        del self.tasks[task]

    def schedule_now(self, task: ReplicaTask) -> None:
        """Make a task due now. No thread may work on it."""
        task.due = self._clock.monotonic()
        self._put(task, task.due)

    def schedule_all_now(self) -> None:
        """Make all tasks due now, except those on which a thread works."""
        for task in self.tasks:
            if task.phase not in FINISHED and task.phase not in BUSY:
                self.schedule_now(task)

    def doubt_all(self) -> None:
        """Have each replica prove, before its next put, that it holds all acknowledged objects."""
        for task in self.tasks:
            if task.replica is not None:
                task.replica.doubt()

    def look(self, task: ReplicaTask, replica: Replica) -> None:
        """Check whether a task that waits for its sync interval has anything left, which is shipped after that."""
        task.phase = Phase.SYNCING
        task.wake_pending = False
        self._spacing.discard(task)
        self._polling.submit(self._run_state.guard, partial(self._look, task, replica))

    def drain(self, task: ReplicaTask, deadline: float, *, final: bool) -> None:
        """Bring a task to its end: after a last sync if ``final``, else after the running one."""
        task.leaving, task.leave_by = True, deadline
        task.final = final
        if task.phase in FINISHED or task.phase is Phase.SYNCING:
            self._run_state.wake()
        elif final and task.phase is Phase.SEALING:
            self._put(task, deadline)
        elif final and task.replica is not None:
            self._submit(task, task.replica)
        else:
            self._end(task, Phase.DONE)

    def stop(self, *, wait: bool) -> bool:
        """As in ``Duty``. Does not wait for syncs."""
        with self._run_state.changed:
            hung = any(task.phase is Phase.SYNCING for task in self.tasks)
        self._polling.shutdown(wait=wait and not hung, cancel_futures=True)
        return not hung

    def serve(self, now: float) -> float:
        """As in ``Duty``."""
        polled: list[tuple[ReplicaTask, Replica]] = []
        for task in self._schedule.take(now):
            replica = task.replica
            if task.phase is Phase.IDLE and replica is not None and replica.started:
                task.phase = Phase.SYNCING
                polled.append((task, replica))
                continue
            if task.phase is Phase.SEALING and task.leaving and now >= task.leave_by:
                self._end(task, Phase.FAILED)
            if replica is None or task.phase in FINISHED or task.phase in BUSY:
                continue
            rest = self._room_seconds(task, replica, now) if task.phase is Phase.THROTTLED else 0.0
            if rest and task.due > now:
                self._schedule.set(task, min(task.due, now + rest))
            else:
                self._submit(task, replica)
        if polled:
            self._polling.submit(self._run_state.guard, partial(self._poll, polled))
        return self._schedule.next

    def _limit_check_seconds(self) -> float:
        return max(LIMIT_CHECK_SECONDS, len(self._spacing) / LIMIT_CHECKS_PER_SECOND)

    def _room_seconds(self, task: ReplicaTask, replica: Replica, now: float) -> float:
        """When to check a busy log again, in seconds from ``now``; 0 if a whole WAL segment has grown."""
        pending = replica.pending_bytes()
        if grown := now - (task.spaced_until - task.sync_interval):
            task.growth = pending / grown
        return 0.0 if pending >= task.limit else self._check_seconds(task, task.limit - pending)

    def _check_seconds(self, task: ReplicaTask, room: int) -> float:
        """In how many seconds to check a busy log with room for so many bytes.

        If it grows slowly, that is a quarter of the time in which it would fill the room.
        """
        longest = room / task.growth / 4 if task.growth else math.inf
        return max(self._limit_check_seconds(), min(longest, LONGEST_CHECK_SECONDS))

    def _rest_seconds(self) -> float:
        return len(self.tasks) / LOOKS_PER_SECOND

    def _put(self, task: ReplicaTask, due: float) -> None:
        self._schedule.set(task, due)
        self._run_state.wake_by(due)

    def _submit(self, task: ReplicaTask, replica: Replica) -> None:
        task.phase = Phase.SYNCING
        task.wake_pending = False
        self._spacing.discard(task)
        self._threads.syncing(task.url).submit(self._run_state.guard, partial(self._sync, task, replica))

    def _end(self, task: ReplicaTask, phase: Phase) -> None:
        task.phase = phase
        self._spacing.discard(task)
        self._schedule.drop(task)
        self._run_state.wake()
        self._run_state.progress.notify_all()

    def _poll(self, tasks: list[tuple[ReplicaTask, Replica]]) -> None:
        """Examine idle logs without an event: the poll decides, an event is only a hint. A log that is found unchanged
        at the end needs no last sync."""
        dirty = set()
        last = self._run_state.final
        looked = self._clock.monotonic()
        for task, replica in tasks:
            try:
                if replica.changed() or not replica.settled:
                    dirty.add(task)
            except LitelogError:
                dirty.add(task)  # the sync raises it again, and handles it
        with self._run_state.changed:
            now = self._clock.monotonic()
            for task, replica in tasks:
                if task in dirty or task.wake_pending or (self._is_final(task) and not last):
                    self._submit(task, replica)
                    continue
                task.note_clean(looked)
                if last or task.leaving:
                    self._end(task, Phase.DONE)
                else:
                    task.rest(now, self._rest_seconds())
                    self._put(task, task.due)
            self._run_state.progress.notify_all()

    def _look(self, task: ReplicaTask, replica: Replica) -> None:
        looked = self._clock.monotonic()
        try:
            left, settled = replica.waiting or replica.changed(), replica.settled
        except LitelogError:
            left = settled = True  # the sync raises it again, and handles it
        with self._run_state.changed:
            if settled and not left:
                task.note_clean(looked)
            if self._is_final(task) or not (settled or left):
                self._submit(task, replica)
            elif task.leaving:
                self._end(task, Phase.DONE)
            elif task.wake_pending and not left:
                self.look(task, replica)  # a caller may have begun to wait after this look
            else:
                self._space(task)
            self._run_state.progress.notify_all()

    def _space(self, task: ReplicaTask) -> None:
        task.phase, task.due = Phase.THROTTLED, task.spaced_until
        self._spacing.add(task)
        self._put(task, min(task.due, self._clock.monotonic() + self._check_seconds(task, task.limit)))

    def _sync(self, task: ReplicaTask, replica: Replica) -> None:
        started = self._clock.monotonic()
        final = self._is_final(task)
        cut = False

        def should_continue() -> bool:
            nonlocal cut
            cut = not self._should_continue(task)
            return not cut

        try:
            try:
                shipped = replica.sync(should_continue)
                quiet = not shipped or started + task.sync_interval <= self._clock.monotonic()
                if quiet and not self._is_final(task):
                    watched = self._watcher.arm(task.log, self._wakes[task])
                    task.watched = watched and replica.withheld_by is None  # its watermark is in another folder
                more = quiet and replica.changed()
            except OSError as error:
                raise SourceError(f"{task.log}: {error}") from error
        except LitelogError as error:
            self._failed(task, error)
            return
        with self._run_state.changed:
            waiting = replica.waiting
            if not (cut or waiting):
                task.note_clean(started)
            if waiting and replica.sealing and not self._is_abandoned(task):
                task.phase = Phase.SEALING  # earlier failures stay: the next sync shows whether they are over
                if task.leaving:
                    self._put(task, task.leave_by)
            else:
                self._recover(task)
                last = final and not (cut or waiting)
                self._place(task, replica, started, was_final=last, again=not cut and (more or waiting), quiet=quiet)
            self._on_synced(task)
            self._run_state.progress.notify_all()

    def _recover(self, task: ReplicaTask) -> None:
        if task.failures:
            message, extra = "%s to %s: continues after %s", task.fields("recovered", task.failures)
            _logger.info(message, task.log, task.url, format_count(task.failures, "failure"), extra=extra)
        task.succeed()

    def _place(
        self, task: ReplicaTask, replica: Replica, started: float, *, was_final: bool, again: bool, quiet: bool
    ) -> None:
        """Decide what is next for a task whose sync had no error."""
        if self._is_final(task):
            if was_final:
                self._end(task, Phase.DONE)
            elif self._should_continue(task):
                self._submit(task, replica)  # this sync began, or was cut short, before the last one was due
            else:
                self._end(task, Phase.FAILED)
        elif task.leaving:
            self._end(task, Phase.DONE)
        elif not quiet:
            task.space(started)
            self._space(task)
        elif self._clock.monotonic() < task.spaced_until and not replica.waiting:
            self._space(task)
        elif again or task.wake_pending:
            self._submit(task, replica)
        else:
            task.rest(self._clock.monotonic(), self._rest_seconds())
            self._put(task, task.due)

    def _failed(self, task: ReplicaTask, error: LitelogError) -> None:
        run_state = self._run_state
        clear_error_frames(error)
        with run_state.changed:
            now = self._clock.monotonic()
            task.fail(error, now, self._random)
            missing = isinstance(error, SourceMissingError)
            if missing and task.phase is Phase.BACKING_OFF:
                task.due = min(task.due, now + task.poll_interval)  # looking at a folder costs nothing
            ends = task.phase in FINISHED or (run_state.deadline is None and run_state.final)
            owes_nothing = self._owes_nothing(task)
            if not (run_state.has_one_replica and ends) and not (missing and task.leaving) and not owes_nothing:
                self._log_failure(task, error, now)
            if owes_nothing:
                task.phase = Phase.DONE
            elif self._is_final(task) and task.phase is Phase.BACKING_OFF:
                hopeless = run_state.final and run_state.deadline is None and task.failures >= MAX_ONCE_FAILURES
                if self._is_late(task) or hopeless or needs_help(error) or missing:
                    task.phase = Phase.FAILED
            elif task.leaving and task.phase not in FINISHED:
                task.phase = Phase.DONE
            if task.phase in FINISHED:
                self._end(task, task.phase)
            else:
                self._put(task, task.due)
            run_state.progress.notify_all()

    def _owes_nothing(self, task: ReplicaTask) -> bool:
        """Return whether the daemon ends while it waits for the log's folder, and it never shipped anything of it."""
        if not (self._run_state.final and self._run_state.deadline is not None and task.awaits_log):
            return False
        return task.phase is Phase.BACKING_OFF and task.replica is not None and not task.replica.has_history

    def _log_failure(self, task: ReplicaTask, error: LitelogError, now: float) -> None:
        if task.phase in FINISHED:
            extra = task.fields(task.phase.value, task.failures)
            _logger.error("%s to %s: %s: %s", task.log, task.url, task.phase.value, error, extra=extra)
        elif isinstance(error, SourceMissingError) and task.awaits_log and not self._run_state.final:
            if task.failures == 1:
                _logger.info("waiting for %s to appear: %s", task.log, error.reason, extra=task.fields("log-awaited"))
        elif is_worth_logging(task.failures):
            level = logging.ERROR if needs_help(error) else logging.WARNING
            message = "%s to %s: failure %d in a row, %s: %s"
            extra = task.fields("sync-failed", task.failures)
            if isinstance(error, SourceMissingError):
                _logger.log(level, "waiting for the log %s, which goes to %s", error, task.url, extra=extra)
                return
            wait = describe_wait(error, task.due - now)
            _logger.log(level, message, task.log, task.url, task.failures, wait, error, extra=extra)

    def _is_abandoned(self, task: ReplicaTask) -> bool:
        """Whether a task ends without a last sync."""
        return task.leaving and not self._is_final(task)

    def _is_final(self, task: ReplicaTask) -> bool:
        return self._run_state.final or (task.leaving and task.final)

    def _should_continue(self, task: ReplicaTask) -> bool:
        if task.leaving and not self._run_state.final and self._clock.monotonic() >= task.leave_by:
            return False
        return self._run_state.should_continue()

    def _is_late(self, task: ReplicaTask) -> bool:
        if self._run_state.final:
            return self._run_state.is_late(task.due)
        return task.due >= task.leave_by

    def resume(self, task: ReplicaTask) -> None:
        """Sync a task again that waited for log segments to be sealed: they are, or sealing failed. Any thread may call
        it."""
        with self._run_state.changed:
            if task.phase is Phase.SEALING and task.replica is not None:
                self._submit(task, task.replica)

    def _wake(self, task: ReplicaTask) -> None:
        """Record that the log's folder changed, and sync the task if it is idle."""
        with self._run_state.changed:
            replica = task.replica
            if replica is None:
                return
            replica.notice()
            if task.phase is Phase.IDLE:
                self._submit(task, replica)
            else:
                task.wake_pending = True
