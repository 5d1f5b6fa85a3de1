"""The replicas that are open: kept in line with the configuration, and with the logs that appear and disappear.

One thread opens and closes replicas, because that needs disks and locks. It does not delay the threads that ship.
"""

from __future__ import annotations

import logging
import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import LitelogError, SourceMissingError
from litelog.events import fields
from litelog.log.replica_registry import log_state_folder
from litelog.replicator.discovery import Failures, LogDiscovery, LogSearch
from litelog.replicator.status import NotReplicated
from litelog.replicator.task import FINISHED, Duty, Phase
from litelog.replicator.thread_pools import DescriptorWatch
from litelog.replicator.wiring import ProcessContext, open_log
from litelog.stores.registry import redact
from litelog.system.change_signal import ChangeSignal
from litelog.system.memory import collect_cycles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from litelog.config import Config, LogConfig, ReplicaConfig
    from litelog.replicator.run_state import RunState
    from litelog.replicator.scheduler import SyncScheduler
    from litelog.replicator.task import ReplicaTask, TaskDuty
    from litelog.replicator.wiring import OpenedReplica
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.inotify import Watcher

_logger = logging.getLogger(__name__)

DRAINED_LOOK_SECONDS = 0.1
"""How often the main loop checks whether the work for a leaving member has ended, in seconds."""

COLLECTION_SHARE = 0.05
"""The share of the time that may be spent on freeing closed replicas."""

Key = tuple[str, str]
"""A log and a replica, as the configuration names them."""


@dataclass(slots=True, eq=False)
class Member:
    """An open replica of a log."""

    key: Key
    log: LogConfig
    """The log's entry, with this one replica."""
    task: ReplicaTask
    client: ReplicaClient
    closing: bool = False

    @property
    def has_left(self) -> bool:
        return self.task.leaving and self.task.phase in FINISHED and not self.closing


@dataclass(frozen=True, slots=True)
class MemberContext:
    """The parts of a replicator that an open replica uses."""

    run_state: RunState
    scheduler: SyncScheduler
    duties: Sequence[TaskDuty]
    """The duties to each open replica, ``scheduler`` among them."""
    watcher: Watcher
    tools: ProcessContext
    state_dir: str
    host: str


class Members(Duty):
    """The open replicas.

    The thread that runs calls ``open_first`` and ``close``; the main loop calls ``serve`` and ``stop``. One other
    thread opens and closes replicas meanwhile: it runs what ``_submit`` gets.
    """

    def __init__(self, config: Config, context: MemberContext) -> None:
        self._config = config
        self.awaits_more = _has_watched_folder(config)
        """Whether more logs may be found."""
        self._context = context
        self._run_state = context.run_state
        self._run_state.has_one_replica = _has_one_replica(config)
        self._clock = context.run_state.clock
        self._discovery = LogDiscovery(config, self._clock)
        self._search = LogSearch(context.run_state, context.watcher)
        self.members: dict[Key, Member] = {}
        self._leaving: list[Member] = []
        self._failures: dict[Key, Failures] = {}
        self.not_replicated: tuple[NotReplicated, ...] = ()
        """The logs and replicas that the configuration names beyond ``members``. Any thread may read it."""
        self.changes = ChangeSignal()
        """Reports each member that comes or leaves, and that all are open."""
        self.opened = False
        """Whether everything that existed when the run began has been opened."""
        self._descriptors = DescriptorWatch()
        self._executor = ThreadPoolExecutor(1, "members")
        self._pending = 0
        self._unsettled = False
        self._uncollected = False
        self._collect_at = 0.0

    @property
    def is_moving(self) -> bool:
        """Whether a replica is being opened or closed."""
        return self._pending > 0 or bool(self._leaving)

    @property
    def is_settled(self) -> bool:
        """Whether everything that the configuration names is open, if it can be: no replica is being opened, or will be
        opened again with its new configuration. Under the run state's lock."""
        return self.opened and not self._pending and all(member.task.final for member in self._leaving)

    def open_first(self) -> None:
        """Open everything that exists. Raises the error of a log with its own entry, unless that becomes its status. A
        configuration that is set meanwhile is applied afterwards."""
        config = self._config
        self._discovery.set(config)
        self._discovery.look(all_of_them=True)
        logs = self._discovery.choose(self._is_known)
        own = len(config.own_logs)
        for log in logs[:own]:
            for opened in self._open(log):
                self._take(log, opened)
                if opened.error is not None and opened.task.phase not in FINISHED:
                    raise opened.error
        for log in logs[own:]:
            self._open_found(log)
        self._descriptors.check(len(self.members))
        self._note_not_replicated()
        with self._run_state.changed:
            self.opened = True
            if self._config is not config:
                self.set_config(self._config)
            self._run_state.progress.notify_all()
        self.changes.notify()

    def set_config(self, config: Config) -> None:
        """Replicate what ``config`` names. Opens and closes in the background. Under the run state's lock."""
        self._config = config
        self.awaits_more = _has_watched_folder(config)
        self._run_state.has_one_replica = _has_one_replica(config)
        if self.opened:
            self._submit(partial(self._reconfigure, config))

    def serve(self, now: float) -> float:
        """As in ``Duty``. Searches for logs, and closes members that leave."""
        next_due = math.inf
        if self._run_state.final:
            return next_due
        if self.awaits_more or self._failures:
            if self._search.begin(now):
                self._submit(self._look)
            next_due = self._search.due
        for member in list(self._leaving):
            if member.has_left:
                self._close_drained(member)
            if not member.closing:
                next_due = min(next_due, now + DRAINED_LOOK_SECONDS)
        if self._uncollected and not self._leaving and now >= self._collect_at:
            self._uncollected = False
            self._submit(self._collect)
        return next_due

    def stop(self, *, wait: bool) -> bool:
        """As in ``Duty``. Opens and closes nothing more."""
        self._executor.shutdown(wait=wait, cancel_futures=True)
        return True

    def _close_drained(self, member: Member) -> None:
        """Close a member whose last sync is done, once all work for it has ended."""
        ended = [duty.finish(member.task) for duty in self._context.duties]
        if all(ended):
            member.closing = True
            self._submit(partial(self._release, member))

    def _submit(self, work: Callable[[], None]) -> None:
        self._pending += 1
        self._executor.submit(self._run_state.guard, partial(self._work, work))

    def _work(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            with self._run_state.changed:
                self._pending -= 1
                self._run_state.wake()
                self._run_state.progress.notify_all()

    def _reconfigure(self, config: Config) -> None:
        self._discovery.set(config)
        self._discovery.look(all_of_them=True)
        self._reconcile()

    def _look(self) -> None:
        begun = self._clock.monotonic()
        found, watched = self._search.search(self._discovery)
        if found or self._unsettled:
            self._reconcile()
        else:
            self._note_not_replicated()
        with self._run_state.changed:
            self._search.end(begun, self._config, watched=watched)

    def _reconcile(self) -> None:
        wanted: dict[Key, LogConfig] = {}
        for log in self._discovery.choose(self._is_known):
            for replica in log.replicas:
                wanted[log.path, replica.url] = log.model_copy(update={"replicas": (replica,)})
        self._unsettled = False
        with self._run_state.changed:
            if self._run_state.is_ending():
                return
            self._remove_unwanted(wanted)
            self._failures = {
                key: failures for key, failures in self._failures.items() if key[0] in {k[0] for k in wanted}
            }
            new = [log for key, log in wanted.items() if key not in self.members]
        for log in _by_path(new):
            if self._run_state.is_ending():
                return
            self._open_found(log)
        self._descriptors.check(len(self.members))
        self._note_not_replicated()

    def _note_not_replicated(self) -> None:
        failed = [
            NotReplicated(log, failures.reason, failures.since, redact(url) or None)
            for (log, url), failures in self._failures.items()
        ]
        self.not_replicated = (*self._discovery.not_replicated(), *failed)

    def _remove_unwanted(self, wanted: dict[Key, LogConfig]) -> None:
        """Make members leave that are no longer configured, or whose entry changed. The latter are opened again
        later."""
        now = self._clock.monotonic()
        for key, member in self.members.items():
            log = wanted.get(key)
            if member.task.leaving or log == member.log:
                continue
            self._leaving.append(member)
            self._context.scheduler.drain(member.task, now + self._config.shutdown_timeout, final=log is None)
            self.changes.notify()

    def _open_found(self, log: LogConfig) -> None:
        try:
            for opened in self._open(log):
                key = (opened.log, opened.url)
                if opened.error is not None and opened.task.phase not in FINISHED:
                    opened.client.close()
                    self._log_not_opened(key, opened.error)
                    continue
                self._failures.pop(key, None)
                self._take(log, opened)
            self._failures.pop((log.path, ""), None)
        except (LitelogError, OSError) as error:
            self._log_not_opened((log.path, ""), error)

    def _log_not_opened(self, key: Key, error: Exception) -> None:
        self._unsettled = True
        failures = self._failures.setdefault(key, Failures(self._clock.monotonic()))
        if failures.add(error):
            extra = fields("not-opened", log=key[0], consecutive_failures=failures.count)
            message = "%s: cannot be replicated (%d times in a row): %s"
            _logger.error(message, key[0], failures.count, error, extra=extra)

    def _open(self, log: LogConfig) -> Iterable[OpenedReplica]:
        context = self._context
        for opened in open_log(log, context.state_dir, context.host, context.tools):
            if opened.error is not None:
                opened.task.fail(opened.error, self._clock.monotonic(), context.tools.random)
            yield opened

    def _take(self, log: LogConfig, opened: OpenedReplica) -> None:
        replica: ReplicaConfig = next(config for config in log.replicas if config.url == opened.url)
        key, task = (opened.log, opened.url), opened.task
        member = Member(key, log.model_copy(update={"replicas": (replica,)}), task, opened.client)
        if task.phase in FINISHED and not self._run_state.has_one_replica:
            _logger.error("%s", opened.error, extra=task.fields("not-opened"))
        with self._run_state.changed:
            self.members[key] = member
            for duty in self._context.duties:
                duty.add(task)
        self.changes.notify()

    def _release(self, member: Member) -> None:
        task, left = member.task, 0
        if task.replica is not None:
            left = task.replica.pending_bytes()
            self._close(member)
        with self._run_state.changed:
            del self.members[member.key]
            self._leaving.remove(member)
            self._uncollected = True
            for duty in self._context.duties:
                duty.remove(task)
        self.changes.notify()
        self._log_gone(task, left)
        self._reconcile()

    def _collect(self) -> None:
        """Free closed replicas: clients refer to themselves, so each keeps megabytes until cycles are collected."""
        began = self._clock.monotonic()
        collect_cycles()
        now = self._clock.monotonic()
        self._collect_at = now + (now - began) / COLLECTION_SHARE

    def _log_gone(self, task: ReplicaTask, left: int) -> None:
        if not task.final:
            return
        if task.phase is Phase.DONE or (isinstance(task.error, SourceMissingError) and not left):
            extra = task.fields("log-removed")
            _logger.info("%s to %s: is no longer replicated; all of it was shipped", task.log, task.url, extra=extra)
        else:
            message = "%s to %s: is no longer replicated; its last sync failed, about %d bytes were not shipped: %s"
            reason = task.error or "not done in time"
            _logger.warning(message, task.log, task.url, left, reason, extra=task.fields("log-removed"))

    def close(self) -> None:
        """Close all members whose threads are done, several at a time: each may have a state to save."""
        with ThreadPoolExecutor(8, "close") as pool:
            list(pool.map(self._close, [member for member in self.members.values() if not member.closing]))

    def _close(self, member: Member) -> None:
        task = member.task
        if task.replica is not None and task.phase is not Phase.SYNCING:
            try:
                task.replica.close()
            except LitelogError as error:
                _logger.warning("%s", error, extra=task.fields("not-closed"))
        member.client.close()

    def _is_known(self, path: str) -> bool:
        """Whether the log in that folder is replicated, or was in an earlier run."""
        return path in {key[0] for key in self.members} or os.path.isdir(
            log_state_folder(self._context.state_dir, path)
        )


def _has_watched_folder(config: Config) -> bool:
    return any(folder.watch for folder in config.folders)


def _has_one_replica(config: Config) -> bool:
    return not config.folders and sum(len(log.replicas) for log in config.own_logs) == 1


def _by_path(logs: Iterable[LogConfig]) -> list[LogConfig]:
    """Merge logs that have one replica each by their path."""
    together: dict[str, LogConfig] = {}
    for log in logs:
        other = together.get(log.path)
        together[log.path] = (
            log if other is None else other.model_copy(update={"replicas": other.replicas + log.replicas})
        )
    return list(together.values())
