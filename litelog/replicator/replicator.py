"""The replicator: its main loop, and its methods for other threads."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, FinalSyncError, LitelogError, NotReplicatedError, SourceMissingError, StoreError
from litelog.replicator.background import Archives, SnapshotRequests, TaskEvents, Truncations
from litelog.replicator.barrier import NOT_REPLICATED, OPENING, Barrier, Unreached, wait_for, wait_until_settled
from litelog.replicator.live_log import LiveLog, ShippedSignals
from litelog.replicator.members import MemberContext, Members
from litelog.replicator.periodic_jobs import LockExtensions, Scrubs
from litelog.replicator.run_state import RunState
from litelog.replicator.scheduler import SyncScheduler
from litelog.replicator.status import ReplicaStatus, measure, status_of
from litelog.replicator.task import FINISHED, TERMINAL_PHASES, Phase, ReplicaTask
from litelog.replicator.thread_pools import DestinationThreads, raise_limit
from litelog.replicator.wiring import ProcessContext, check_openable
from litelog.stores.registry import redact
from litelog.stores.trial import StoreTrials
from litelog.system.buffers import limit_buffers
from litelog.system.clock import SystemClock
from litelog.system.inotify import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from litelog.config import Config
    from litelog.log.source_position import SourcePosition
    from litelog.objects.claim import Claim
    from litelog.objects.position import Position
    from litelog.reading.segment_iterator import SegmentIterator
    from litelog.replicator.status import NotReplicated
    from litelog.replicator.task import Duty
    from litelog.shipping.events import (
        ReplicaListener,
        ScrubFinished,
        SegmentSealed,
        SnapshotWritten,
        WalSegmentShipped,
    )
    from litelog.system.change_signal import ChangeSignal
    from litelog.system.clock import Clock

CLOSING_SECONDS = 1.0
"""Seconds of the shutdown timeout that are kept for closing and exiting; at most a tenth of it."""

TURN_SECONDS = 1.0
"""The longest wait of the main loop, in seconds. Watchdogs rely on it."""


PAUSE_SECONDS = 10.0
"""If the main loop is late by as many seconds, its process or machine stood still. Much may have happened to a replica
meanwhile, so acknowledged objects are proved before the next put."""


class _Silent:
    """A listener that ignores all events."""

    def on_wal_segment_shipped(self, event: WalSegmentShipped) -> None: ...

    def on_generation_started(self, log: str, replica: str, claim: Claim) -> None: ...

    def on_segment_sealed(self, event: SegmentSealed) -> None: ...

    def on_snapshot_written(self, event: SnapshotWritten) -> None: ...

    def on_scrub_finished(self, event: ScrubFinished) -> None: ...


def _do_nothing() -> None: ...


class Replicator:
    """Replicates all logs of a configuration. ``run`` blocks; other threads call the other methods."""

    def __init__(
        self,
        config: Config,
        *,
        state_dir: str,
        host: str,
        clock: Clock | None = None,
        random: Random | None = None,
        listener: ReplicaListener | None = None,
        watcher: Watcher | None = None,
        on_turn: Callable[[], None] | None = None,
    ) -> None:
        """Prepare to replicate. ``run`` opens the logs.

        Args:
            config: The logs, their replicas and the settings.
            state_dir: The folder for the state of all logs and replicas.
            host: The name of this host, for claims.
            clock: The source of times; None: the system's clock.
            random: For ids and jitter; None: the system's source.
            listener: Receives the events of all replicas, from the threads that ship; None: none does.
            watcher: Reports file-system events; None: a new one.
            on_turn: Called by the main loop in each turn, at most a second apart. It must neither block nor fail.
        """
        self._config = config
        limit_buffers(config.buffer_memory)
        self._state_dir = os.path.realpath(state_dir)
        self._clock = clock or SystemClock()
        self._watcher = watcher or Watcher()
        self._on_turn = on_turn or _do_nothing
        random = random or SystemRandom()
        self._signals = signals = ShippedSignals(listener or _Silent())
        self._compressing = ThreadPoolExecutor(max(2, os.cpu_count() or 1), "compress")
        self._threads = DestinationThreads()
        self._abandoned = False
        self._ready = False
        self._last_turn = self._clock.monotonic()
        run_state = self._run_state = RunState(self._clock)
        self._archives = Archives(run_state)
        self._scheduler = SyncScheduler(run_state, self._threads, self._watcher, random, self._archives.note)
        self._requests = SnapshotRequests(run_state, self._watcher, state_dir)
        scrubs, truncations = Scrubs(run_state, self._threads, signals), Truncations(run_state)
        tools = ProcessContext(
            clock=self._clock,
            random=random,
            listener=signals,
            compressing=self._compressing,
            threads=self._threads,
            trials=StoreTrials(random),
            stop_requested=run_state.stop_requested,
            guard=run_state.guard,
            make_events=partial(TaskEvents, self._scheduler, self._archives, truncations),
        )
        lock_extensions = LockExtensions(run_state, self._threads)
        duties = (self._archives, scrubs, lock_extensions, self._scheduler, self._requests, truncations)
        context = MemberContext(run_state, self._scheduler, duties, self._watcher, tools, state_dir, host)
        self._members = Members(config, context)
        self._duties: tuple[Duty, ...] = (*duties, self._members)
        """In the order in which they are stopped: first those that may wait for a store."""

    def run(self, *, once: bool = False) -> None:
        """Replicate until ``stop``, then sync a last time. Blocks.

        Args:
            once: Sync each replica once, and return.

        Raises:
            FinalSyncError: The last sync did not reach every replica in time.
            FencedError, CorruptionError: Final errors of replicas, once no replica is left.
            NotReplicatedError: Logs could not be opened. Only with ``once``, or if no replica was opened at all.
            LitelogError: With ``once``, the error of the first replica that failed.
        """
        raise_limit()
        try:
            self._requests.prepare()
            self._members.open_first()
            if once:
                with self._run_state.changed:
                    self._run_state.final = True
                    if self._run_state.stopping:
                        self._set_deadline()
            self._follow()
            if not once and any(task.phase not in FINISHED for task in self._scheduler.tasks):
                self._begin_final()
                self._follow()
            self._archives.finish_all()
            self._raise_outcome(once=once)
        finally:
            self._close()

    def stop(self) -> None:
        """Begin the final sync. In a run with ``once``, limit it to the shutdown timeout. Idempotent."""
        run_state = self._run_state
        run_state.stop_requested.set()
        with run_state.changed:
            run_state.stopping = True
            if run_state.final and run_state.deadline is None:
                self._set_deadline()
            run_state.wake()
            run_state.progress.notify_all()

    def status(self) -> list[ReplicaStatus]:
        """Return the status of every open replica."""
        with self._run_state.changed:  # no thread begins to use a replica that is queried here
            now = self._clock.monotonic()
            return [status_of(task, now) for task in self._scheduler.tasks]

    def not_replicated(self) -> tuple[NotReplicated, ...]:
        """Return the logs that the configuration names but that cannot be opened. ``status`` does not have them."""
        return self._members.not_replicated

    @property
    def opened(self) -> bool:
        """Whether everything that existed when the run began has been opened, if it could be."""
        return self._members.opened

    def measure(self) -> None:
        """Examine the logs' folders, for the lag in ``status``. Call it about once a second, in one thread at a time.
        It may hang if a file system hangs, and delays nothing else."""
        with self._run_state.changed:
            tasks = list(self._scheduler.tasks)
        measure(tasks, self._clock)

    @property
    def state_dir(self) -> str:
        """The folder for the state of all logs and replicas."""
        return self._state_dir

    @property
    def config(self) -> Config:
        """The current configuration."""
        return self._config

    @property
    def clock(self) -> Clock:
        """The source of times."""
        return self._clock

    @property
    def last_turn(self) -> float:
        """When the main loop took its last turn, in the clock's monotonic seconds. It takes at least one a second."""
        return self._last_turn

    def is_ready(self) -> bool:
        """Return whether all existing logs were synced: each is complete in one replica, and its other replicas were
        tried. A log whose folder is missing, or holds no log segment, does not count. Once True, it stays True."""
        with self._run_state.changed:
            tasks = self._scheduler.tasks
            if not self._ready and self._members.opened and all(task.is_synced or task.failures for task in tasks):
                done = {task.log for task in tasks if task.is_synced or task.awaits_log}
                self._ready = all(task.log in done for task in tasks) and (bool(tasks) or self._members.awaits_more)
            return self._ready

    def is_syncing_first(self) -> bool:
        """Return whether a replica's first sync is in progress, and its last attempt did not fail."""
        with self._run_state.changed:
            return any(not task.is_synced and task.error is None for task in self._scheduler.tasks)

    def awaited_logs(self) -> list[str]:
        """Return the logs whose folders do not exist yet, or hold no log segment."""
        with self._run_state.changed:
            return sorted({task.log for task in self._scheduler.tasks if task.awaits_log})

    def barrier(self, log: str | None, replica: str | None, timeout: float) -> Barrier:
        """Wait until everything that the logs hold now is durable in the replicas.

        It waits for the next regular sync, and sends nothing earlier. It also waits for replicas that are being opened
        or opened again. A replica that cannot be opened counts as not reached.

        Args:
            log: The folder of one log; None: all logs.
            replica: The URL of one replica, as in ``status``; None: all replicas.
            timeout: Seconds.

        Returns:
            How many replicas it waited for, and which of them were not reached in time.

        Raises:
            ConfigError: No replica matches.
        """
        with self._run_state.changed:
            left = wait_until_settled(lambda: self._members.is_settled, self._run_state, timeout)
            if left is None:  # the replicas are not known yet
                return Barrier(1, (Unreached(log or "", replica or "", OPENING, "logs are still being opened"),))
            chosen = [
                task
                for task in self._scheduler.tasks
                if log in (None, task.log) and replica in (None, task.url) and not task.leaving
            ]
            missing = [
                Unreached(other.log, other.replica or "", NOT_REPLICATED, other.reason)
                for other in self._members.not_replicated
                if log in (None, other.log) and replica in (None, other.replica)
            ]
            if not chosen and not missing and (log is not None or replica is not None):
                what = " to ".join(filter(None, (log, redact(replica) if replica is not None else None)))
                raise ConfigError(f"{what}: is not replicated here")
            barrier = wait_for(chosen, self._scheduler, self._run_state, left)
            return Barrier(barrier.replicas + len(missing), (*barrier.unreached, *missing))

    def reload(self, config: Config) -> bool:
        """Replicate what ``config`` names from now on. Replicas whose entries did not change continue undisturbed.
        Others are closed after the running sync and opened again. Removed ones are synced a last time and closed.

        Args:
            config: The new configuration.

        Returns:
            False if the end of the run has begun.

        Raises:
            ConfigError: An entry cannot be opened. Nothing has changed then.
        """
        for entry in config.logs:
            if entry not in self._config.logs:
                check_openable(entry)
        with self._run_state.changed:
            if self._run_state.is_ending():
                return False
            self._config = config
            limit_buffers(config.buffer_memory)
            self._members.set_config(config)
            return True

    def subscribe(self, log: str, url: str, start: Position | None = None) -> SegmentIterator:
        """Iterate over the WAL segments of one replica as they are acknowledged.

        Args:
            log: The log, as the configuration names it.
            url: The replica's URL, as the configuration names it.
            start: The slot of the first WAL segment; None: the generation's first slot.

        Returns:
            An iterator as of ``Replica.subscribe``.

        Raises:
            ConfigError: The log is not replicated there.
            NotYetAvailableError, PrunedError: As ``Replica.subscribe``.
        """
        member = self._members.members.get((log, url))
        if member is None or member.task.replica is None:
            raise ConfigError(f"{log} is not replicated to {redact(url)} here")
        return member.task.replica.subscribe(start)

    @property
    def log_changes(self) -> ChangeSignal:
        """Reports that ``live_logs`` or ``opened`` may have changed."""
        return self._members.changes

    def live_logs(self) -> dict[str, LiveLog]:
        """Return the logs that have an open replica, by their folders as the configuration names them."""
        with self._run_state.changed:
            members = list(self._members.members.values())
        found: dict[str, LiveLog] = {}
        for member in members:
            path, replica = member.log.path, member.task.replica
            if replica is None or member.task.leaving:
                continue
            before = found[path].replicas if path in found else ()
            urls = tuple((each.url, each.options) for each in member.log.replicas)
            find_start = partial(self._find_shipped, path)
            truncate = member.log.truncate
            found[path] = LiveLog(
                replica.source,
                member.log.pattern,
                (*before, *urls),
                self._state_dir,
                self._signals.shipped,
                find_start,
                None if truncate is None else truncate.wait_for_mirrors,
            )
        return found

    def _find_shipped(self, log: str) -> tuple[Claim, SourcePosition] | None:
        """The claim and acknowledged position of the first replica of a log that has begun."""
        for member in list(self._members.members.values()):
            task = member.task
            if member.log.path == log and not task.leaving and task.replica is not None:
                shipped = task.replica.shipped
                if shipped is not None:
                    return shipped
        return None

    @property
    def abandoned(self) -> bool:
        """Whether the run left threads that wait for a store. If so, the process can only be killed."""
        return self._abandoned

    def _follow(self) -> None:
        run_state = self._run_state
        with run_state.changed:
            self._scheduler.schedule_all_now()
            while not self._is_over():
                now = self._clock.monotonic()
                if now - self._last_turn > TURN_SECONDS + PAUSE_SECONDS:
                    self._scheduler.doubt_all()
                self._last_turn = now
                self._on_turn()
                run_state.wake_at = math.inf
                wake_at = _next_turn(now, min(run_state.ends_by, *[duty.serve(now) for duty in self._duties]))
                if run_state.wake_at == math.inf:  # no call has woken it meanwhile
                    run_state.wake_at = wake_at
                    run_state.changed.wait(max(0.0, wake_at - self._clock.monotonic()))

    def _is_over(self) -> bool:
        run_state = self._run_state
        if run_state.bug is not None or (run_state.stopping and not run_state.final):
            return True
        if run_state.is_late(self._clock.monotonic()):
            return True
        if self._members.awaits_more and not run_state.final:
            return False
        return all(task.phase in FINISHED for task in self._scheduler.tasks) and (
            run_state.final or not self._members.is_moving
        )

    def _begin_final(self) -> None:
        with self._run_state.changed:
            self._run_state.final = True
            self._set_deadline()

    def _set_deadline(self) -> None:
        whole = self._config.shutdown_timeout
        self._run_state.deadline = self._clock.monotonic() + whole - min(CLOSING_SECONDS, whole / 10)

    def _raise_outcome(self, *, once: bool) -> None:
        """Raise the errors with which the run ended, the worst first."""
        if self._run_state.bug is not None:
            raise self._run_state.bug
        tasks = [task for task in self._scheduler.tasks if not _is_gone(task)]
        unfinished = [task for task in tasks if task.phase not in TERMINAL_PHASES and task.phase is not Phase.DONE]
        if unfinished:
            if once and unfinished[0].error is not None:
                raise _named(unfinished[0].error, unfinished[0].url)
            raise FinalSyncError("; ".join(_unfinished(task) for task in unfinished))
        for phase in TERMINAL_PHASES:
            for task in tasks:
                if task.phase is phase and task.error is not None:
                    raise _named(task.error, task.url)
        missing = self._members.not_replicated
        if missing and (once or not tasks):
            raise NotReplicatedError("; ".join(f"{log.log}: is not replicated: {log.reason}" for log in missing))

    def _close(self) -> None:
        self._watcher.close()
        self._run_state.stop_requested.set()
        with self._run_state.changed:
            self._run_state.stopping = True  # makes the thread that opens logs stop
        ended = True
        for duty in self._duties:
            ended = duty.stop(wait=ended) and ended
        self._abandoned = not ended
        self._threads.shutdown(wait=ended)
        self._compressing.shutdown(wait=ended, cancel_futures=True)
        self._members.close()


def _next_turn(now: float, due: float) -> float:
    """Return when the main loop wakes: at ``due`` if that is soon enough. If not, at the same time as for idle logs, so
    that it wakes once."""
    return due if due <= now + TURN_SECONDS else (now // TURN_SECONDS + 1) * TURN_SECONDS


def _is_gone(task: ReplicaTask) -> bool:
    """Whether a log was gone before the end of the run."""
    return task.leaving and isinstance(task.error, SourceMissingError)


def _named(error: LitelogError, url: str) -> LitelogError:
    """Return the error with which the run ends; an error of a store begins with the replica's URL."""
    if isinstance(error, StoreError) and url not in str(error):
        error.place = url
    return error


def _unfinished(task: ReplicaTask) -> str:
    reason = task.error if task.error is not None else "not done in time"
    return f"final sync of {task.log} to {task.url} failed: {reason}"
