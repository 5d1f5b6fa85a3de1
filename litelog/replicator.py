"""When each log is synced with each of its replicas: on events, polls, intervals and back-off, with a bounded pool."""

from __future__ import annotations

import logging
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING

from litelog.clock import SystemClock
from litelog.destination_threads import DestinationThreads
from litelog.errors import ConfigError, FinalSyncError, LitelogError, SourceError, SourceMissingError
from litelog.opening import Tools, open_logs
from litelog.registry import redact
from litelog.shipping.back_off import is_worth_saying, needs_help
from litelog.shipping.barrier import Barrier, Unreached
from litelog.shipping.replica_status import ReplicaStatus, measure, status_of
from litelog.shipping.replica_task import LASTING, OVER, Phase, ReplicaTask
from litelog.shipping.requests import Answer, Requests
from litelog.shipping.scrubs import Scrubs
from litelog.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from litelog.claim import Claim
    from litelog.clock import Clock
    from litelog.config import Config
    from litelog.position import Position
    from litelog.replica_client import ReplicaClient
    from litelog.segment_iterator import SegmentIterator
    from litelog.shipping.archive import Archive
    from litelog.shipping.listener import Listener, Scrubbed, Sealed, Shipped, Snapped
    from litelog.shipping.requests import Request

_logger = logging.getLogger(__name__)

POLLING_THREADS = 4
"""How many sweeps over idle logs there are at a time: a folder may hang, too."""

LIMIT_CHECK_SECONDS = 0.1
"""How often a busy log is looked at for having grown by a whole WAL segment before its interval is over."""

NEVER_SECONDS = 3600.0

REQUEST_SECONDS = 1.0
"""How often it is looked for requests where no file-system event tells of them."""

STOP_SECONDS = 1.0
"""How long a request of an archive is waited for that is under way when all else has ended."""

MAX_ONCE_FAILURES = 5
"""How often a replica may fail in a row where nobody waits for it to come back."""


class _Silent:
    """A listener that listens to nothing."""

    def shipped(self, event: Shipped) -> None: ...

    def began(self, log: str, replica: str, claim: Claim) -> None: ...

    def sealed(self, event: Sealed) -> None: ...

    def snapped(self, event: Snapped) -> None: ...

    def scrubbed(self, event: Scrubbed) -> None: ...


def _do_nothing() -> None: ...


class Replicator:
    """All logs of a configuration and their replicas. ``run`` blocks; the rest is called from other threads."""

    def __init__(
        self,
        config: Config,
        *,
        state_dir: str,
        host: str,
        clock: Clock | None = None,
        random: Random | None = None,
        listener: Listener | None = None,
        watcher: Watcher | None = None,
        on_turn: Callable[[], None] | None = None,
    ) -> None:
        """``on_turn``: called by the main loop at each of its turns, a second apart at most; must neither block nor
        fail."""
        self._config = config
        self._state_dir = state_dir
        self._host = host
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._listener = listener or _Silent()
        self._watcher = watcher or Watcher()
        self._on_turn = on_turn or _do_nothing
        self._changed = threading.Condition()
        self._tasks: list[ReplicaTask] = []
        self._by_place: dict[tuple[str, str], ReplicaTask] = {}
        self._wakes: dict[ReplicaTask, Callable[[], None]] = {}
        self._archives: dict[ReplicaTask, float] = {}  # when to look at those that wait for something
        self._requests = Requests(state_dir)
        self._looked_at = 0.0
        self._clients: list[ReplicaClient] = []
        self._polling = ThreadPoolExecutor(POLLING_THREADS, "poll")
        self._compressing = ThreadPoolExecutor(max(2, os.cpu_count() or 1), "compress")
        self._threads = DestinationThreads()
        self._abandoned = False
        self._stopping = False
        self._stop_requested = threading.Event()  # the same, for waits that do not hold the lock
        self._final = False
        self._deadline: float | None = None
        self._last_turn = self._clock.monotonic()
        self._bug: BaseException | None = None
        self._scrubs = Scrubs(self._threads, self._listener, self._stop_requested, self._guard, self._look_again)

    # --- from outside

    def run(self, *, once: bool = False) -> None:
        """Replicate until ``stop``, then sync a last time; with ``once``, only that.

        Raises FinalSyncError if the last sync did not reach every replica in time, and what ended replicas for good
        (FencedError, CorruptionError) once none is left.
        """
        try:
            self._open()
            if once:
                with self._changed:
                    self._final = True
                    if self._stopping:
                        self._set_deadline()
            self._follow()
            if not once and any(task.phase not in OVER for task in self._tasks):
                self._begin_final()
                self._follow()
            self._finish_archives()
            self._judge(once=once)
        finally:
            self._close()

    def stop(self) -> None:
        """Begin the final sync; where that is all there is (``once``), bound it. Idempotent."""
        self._stop_requested.set()
        with self._changed:
            self._stopping = True
            if self._final and self._deadline is None:
                self._set_deadline()
            self._changed.notify_all()

    def status(self) -> list[ReplicaStatus]:
        """Where every replica stands."""
        with self._changed:  # no thread begins to use a replica that is asked here
            now = self._clock.monotonic()
            return [status_of(task, now) for task in self._tasks]

    def measure(self) -> None:
        """Look at the logs' folders, for the lag that ``status`` tells: about once a second, by one thread at a time.
        It may hang, as file systems do, and holds up nothing else."""
        with self._changed:
            tasks = list(self._tasks)
        measure(tasks, self._clock)

    @property
    def last_turn(self) -> float:
        """When the main loop took its last turn, in the clock's monotonic seconds: it takes one a second at least."""
        return self._last_turn

    def is_ready(self) -> bool:
        """Whether the first sync is done: every log is whole in a replica, and the other replicas were tried."""
        with self._changed:
            synced = {task.log for task in self._tasks if task.caught_up > -math.inf}
            tried = all(task.log in synced and (task.caught_up > -math.inf or task.failures) for task in self._tasks)
            return tried and bool(self._tasks)

    def barrier(self, log: str | None, replica: str | None, timeout: float) -> Barrier:
        """Wait until all that the logs hold now is durable in the replicas, for ``timeout`` seconds at most.

        ``log``, a folder, and ``replica``, a URL as ``status`` tells it, choose among them; None: all. Nothing is sent
        sooner for it: it rides the next batch. ConfigError where they name none.
        """
        with self._changed:
            tasks = [t for t in self._tasks if log in (None, t.log) and replica in (None, t.url)]
            if not tasks:
                raise ConfigError("no such log and replica here")
            now = self._clock.monotonic()
            for task in tasks:
                if task.phase is Phase.IDLE:
                    task.due = now
            self._changed.notify_all()
            self._changed.wait_for(lambda: all(t.caught_up >= now or t.phase in OVER for t in tasks), timeout)
            behind = [task for task in tasks if task.caught_up < now]
            return Barrier(
                len(tasks),
                tuple(
                    Unreached(t.log, t.url, t.phase.value, None if t.error is None else str(t.error)) for t in behind
                ),
            )

    def reload(self, config: Config) -> None:
        """Replicate what ``config`` says from now on. What did not change is not disturbed. ConfigError, and nothing
        has changed, where that cannot be."""
        raise NotImplementedError

    def subscribe(self, log: str, url: str, start: Position | None = None) -> SegmentIterator:
        """The WAL segments of one replica as they are acknowledged (see ``Replica.subscribe``); both named as the
        configuration names them."""
        task = self._by_place.get((log, url))
        if task is None or task.replica is None:
            raise ConfigError(f"{log} is not replicated to {redact(url)} here")
        return task.replica.subscribe(start)

    @property
    def abandoned(self) -> bool:
        """Whether threads were left behind that wait for a store: then the process can only be ended hard."""
        return self._abandoned

    # --- opening and closing

    def _open(self) -> None:
        self._requests.prepare()
        tools = Tools(
            clock=self._clock,
            random=self._random,
            listener=self._listener,
            compressing=self._compressing,
            threads=self._threads,
            stop_requested=self._stop_requested,
            guard=self._guard,
        )
        for opened in open_logs(self._config, self._state_dir, self._host, tools):
            self._clients.append(opened.client)
            task = opened.task
            self._tasks.append(task)
            self._scrubs.add(task)
            self._by_place[opened.log, opened.url] = task
            self._wakes[task] = partial(self._wake, task)
            if opened.error is not None:
                task.fail(opened.error, self._clock.monotonic(), self._random)
                if task.phase is Phase.BACKING_OFF:
                    raise opened.error
                if not self._has_one_replica():
                    _logger.error("%s", opened.error, extra=task.fields("not-opened"))
            if task.replica is not None:
                task.replica.on_change = partial(self._archive_changed, task)

    def _has_one_replica(self) -> bool:
        """Whether the run ends with its error, so that whoever called it says so."""
        return sum(len(log.replicas) for log in self._config.logs) == 1

    def _close(self) -> None:
        self._watcher.close()
        self._stop_requested.set()
        hung = self._stop_archives() or not self._scrubs.wait()
        hung = self._abandoned = hung or any(task.phase is Phase.SYNCING for task in self._tasks)
        self._polling.shutdown(wait=not hung, cancel_futures=True)
        self._threads.shutdown(wait=not hung)
        self._compressing.shutdown(wait=not hung, cancel_futures=True)
        for task in self._tasks:
            if task.replica is not None and task.phase is not Phase.SYNCING:
                try:
                    task.replica.close()
                except LitelogError as error:
                    _logger.warning("%s", error, extra=task.fields("not-closed"))
        for client in self._clients:
            client.close()

    # --- the loop: whoever is due gets a thread

    def _follow(self) -> None:
        now = self._clock.monotonic()
        with self._changed:
            for task in self._tasks:
                if task.phase not in OVER and task.phase is not Phase.SYNCING:
                    task.due = now
            while not self._is_over():
                self._last_turn = self._clock.monotonic()
                self._on_turn()
                self._changed.wait(min(1.0, self._serve_due()))

    def _is_over(self) -> bool:
        if self._bug is not None or (self._stopping and not self._final):
            return True
        if self._deadline is not None and self._clock.monotonic() >= self._deadline:
            return True
        return all(task.phase in OVER for task in self._tasks)

    def _serve_due(self) -> float:
        """Give threads to those that are due; how many seconds there are until the next one is."""
        now = self._clock.monotonic()
        polled: list[ReplicaTask] = []
        next_due = now + 3600.0 if self._deadline is None else self._deadline
        idle = Phase.IDLE
        for task in self._tasks:
            if task.phase is idle and task.due > now:  # nearly all of them, nearly always
                if task.due < next_due:  # noqa: PLR1730 - min() takes three times as long, for each idle log, each second
                    next_due = task.due
                continue
            if task.phase in OVER or task.phase is Phase.SYNCING:
                continue
            if task.phase is Phase.SPACING and task.due > now:
                assert task.replica is not None
                if task.replica.pending_bytes() >= task.limit:
                    task.due = now
                next_due = min(next_due, max(now, min(task.due, now + LIMIT_CHECK_SECONDS)))
            if task.due <= now:
                if task.phase is idle and task.replica is not None and task.replica.started:
                    task.phase = Phase.SYNCING
                    polled.append(task)
                else:
                    self._submit(task)
            else:
                next_due = min(next_due, task.due)
        next_due = min(next_due, self._serve_archives(now, next_due), self._serve_requests(now))
        if not self._final:
            next_due = self._scrubs.serve(now, next_due)
        if polled:
            self._polling.submit(self._guard, partial(self._poll, polled))
        return max(0.0, next_due - now)

    def _submit(self, task: ReplicaTask) -> None:
        task.phase = Phase.SYNCING
        task.woken = False
        self._threads.syncing(task.url).submit(self._guard, partial(self._sync, task))

    def _guard(self, work: Callable[[], None]) -> None:
        """Do ``work``; a bug in it ends the process rather than one log in silence."""
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            with self._changed:
                self._bug = error
                self._changed.notify_all()

    # --- in the pool

    def _poll(self, tasks: list[ReplicaTask]) -> None:
        """Look at idle logs without an event: polling is the truth, an event only a hint."""
        dirty = set()
        looked = self._clock.monotonic()
        for task in tasks:
            assert task.replica is not None
            try:
                if task.replica.changed() or not task.replica.settled:
                    dirty.add(task)
            except LitelogError:
                dirty.add(task)  # the sync meets it again, and deals with it
        with self._changed:
            now = self._clock.monotonic()
            for task in tasks:
                if task in dirty or task.woken or self._final:
                    self._submit(task)
                else:
                    task.caught_up = looked
                    task.rest(now)
            self._changed.notify_all()

    def _sync(self, task: ReplicaTask) -> None:
        assert task.replica is not None
        started = self._clock.monotonic()
        final = self._final
        cut = False

        def may_go_on() -> bool:
            nonlocal cut
            cut = not self._may_go_on()
            return not cut

        try:
            try:
                shipped = task.replica.sync(may_go_on)
                quiet = not shipped or started + task.sync_interval <= self._clock.monotonic()
                if quiet and not self._final:
                    task.watched = self._watcher.arm(task.log, self._wakes[task])
                more = quiet and task.replica.changed()
            except OSError as error:
                raise SourceError(f"{task.log}: {error}") from error
        except LitelogError as error:
            self._failed(task, error)
            return
        with self._changed:
            if task.failures:
                said, extra = "%s to %s: goes on after %d failures", task.fields("recovered", task.failures)
                _logger.info(said, task.log, task.url, task.failures, extra=extra)
            task.succeed()
            if not cut:
                task.caught_up = started
            self._note_archive(task)
            if self._final and final and not cut:
                task.phase = Phase.DONE
            elif self._final and self._may_go_on():
                self._submit(task)  # this one began, or was cut short, before the last one was due
            elif self._final:
                task.phase = Phase.FAILED
            elif not quiet:
                task.phase, task.due = Phase.SPACING, started + task.sync_interval
            elif not cut and (more or task.woken):
                self._submit(task)
            else:
                task.rest(self._clock.monotonic())
            self._changed.notify_all()

    def _failed(self, task: ReplicaTask, error: LitelogError) -> None:
        with self._changed:
            now = self._clock.monotonic()
            task.fail(error, now, self._random)
            if isinstance(error, SourceMissingError) and task.phase is Phase.BACKING_OFF:
                task.due = min(task.due, now + task.poll_interval)  # a look costs nothing
            if self._has_one_replica() and (task.phase in OVER or (self._deadline is None and self._final)):
                pass  # the run ends with this error, and whoever called it says so
            elif task.phase in OVER:
                extra = task.fields(task.phase.value, task.failures)
                _logger.error("%s to %s: %s: %s", task.log, task.url, task.phase.value, error, extra=extra)
            elif is_worth_saying(task.failures):
                level = logging.ERROR if needs_help(error) else logging.WARNING
                said = "%s to %s: failure %d in a row, tried again in %.1f s: %s"
                extra = task.fields("sync-failed", task.failures)
                _logger.log(level, said, task.log, task.url, task.failures, task.due - now, error, extra=extra)
            if self._final and task.phase is Phase.BACKING_OFF:
                late = self._deadline is not None and task.due >= self._deadline
                hopeless = self._deadline is None and task.failures >= MAX_ONCE_FAILURES
                if late or hopeless or needs_help(error) or isinstance(error, SourceMissingError):
                    task.phase = Phase.FAILED
            self._changed.notify_all()

    def _may_go_on(self) -> bool:
        if self._final:
            return self._deadline is None or self._clock.monotonic() < self._deadline
        return not self._stopping

    def _wake(self, task: ReplicaTask) -> None:
        """Something happened in a log's folder."""
        with self._changed:
            if task.replica is not None:
                task.replica.notice()
            if task.phase is Phase.IDLE:
                self._submit(task)
            else:
                task.woken = True

    def _look_again(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # --- archives: sealed segments and snapshots, beside all that

    def _archive_changed(self, task: ReplicaTask) -> None:
        with self._changed:
            self._note_archive(task)
            self._changed.notify_all()

    def _note_archive(self, task: ReplicaTask) -> None:
        due = task.replica.archive.due if task.replica is not None and task.replica.archive is not None else None
        if due is None:
            self._archives.pop(task, None)
        else:
            self._archives[task] = due

    def _serve_archives(self, now: float, next_due: float) -> float:
        """Have those work that are due; when the next one is, or ``next_due``."""
        for task, due in list(self._archives.items()):
            if due > now:
                next_due = min(next_due, due)
                continue
            del self._archives[task]  # until it tells of a change
            if task.replica is not None and task.replica.archive is not None:
                task.replica.archive.poke()
        return next_due

    def _serve_requests(self, now: float) -> float:
        """Have snapshots written that somebody asks for; when to look again."""
        if self._final:
            return now + NEVER_SECONDS
        watched = self._watcher.arm(self._requests.folder, self._look_again)
        if now >= self._looked_at + LIMIT_CHECK_SECONDS:
            self._looked_at = now
            for request in self._requests.take():
                self._serve_request(request)
        elif watched:
            return self._looked_at + LIMIT_CHECK_SECONDS
        return now + (NEVER_SECONDS if watched else REQUEST_SECONDS)

    def _serve_request(self, request: Request) -> None:
        task = next((task for task in self._tasks if task.state_folder == request.folder), None)
        archive = task.replica.archive if task is not None and task.replica is not None else None
        if archive is None or task is None or task.phase in OVER:
            reason = "it is not replicated here" if task is None else f"it is not shipped now ({task.phase.value})"
            self._requests.answer(request, Answer(None, reason))
            return
        requests = self._requests
        archive.ask(lambda status: requests.answer(request, Answer(status.snapshot, status.error)))

    def _open_archives(self) -> list[Archive]:
        replicas = [task.replica for task in self._tasks if task.phase is Phase.DONE]
        return [replica.archive for replica in replicas if replica is not None and replica.archive is not None]

    def _finish_archives(self) -> None:
        """Seal what is finished and write the last snapshots, as far as there is time: the WAL segments hold it all."""
        archives = self._open_archives()
        for archive in archives:
            archive.finish()
        with self._changed:
            while self._bug is None and self._may_go_on() and any(archive.busy for archive in archives):
                self._changed.wait(LIMIT_CHECK_SECONDS)
                for archive in archives:
                    archive.poke()

    def _stop_archives(self) -> bool:
        """Have them begin nothing more; whether one of them is still waiting for its store."""
        replicas = [task.replica for task in self._tasks if task.replica is not None]
        archives = [replica.archive for replica in replicas if replica.archive is not None]
        for archive in archives:
            archive.stop()
        return not all(archive.wait(STOP_SECONDS) for archive in archives)

    # --- the end

    def _begin_final(self) -> None:
        with self._changed:
            self._final = True
            self._set_deadline()

    def _set_deadline(self) -> None:
        self._deadline = self._clock.monotonic() + self._config.shutdown_timeout

    def _judge(self, *, once: bool) -> None:
        """Raise what the run ended with, the worst first."""
        if self._bug is not None:
            raise self._bug
        unfinished = [task for task in self._tasks if task.phase not in LASTING and task.phase is not Phase.DONE]
        if unfinished:
            if once and unfinished[0].error is not None:
                raise unfinished[0].error
            raise FinalSyncError("; ".join(_unfinished(task) for task in unfinished))
        for phase in LASTING:
            for task in self._tasks:
                if task.phase is phase and task.error is not None:
                    raise task.error


def _unfinished(task: ReplicaTask) -> str:
    reason = task.error if task.error is not None else "not done in time"
    return f"final sync of {task.log} to {task.url} failed: {reason}"
