"""ServedLogs: the logs that a daemon gives to other processes, by the names that requests use.

A log's buffer runs only while it has readers: a served log without readers costs nothing.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from litelog.config.access import ALL
from litelog.errors import LogError, NotYetAvailableError
from litelog.live.mirrors import MirrorPositions
from litelog.live.reader_limits import LimitCounts, ReaderLimits, ServingStatus
from litelog.live.served_log import LiveReader, ServedLog
from litelog.log.mirror_registry import MirrorRegistry
from litelog.log.replica_registry import log_state_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from litelog.replicator.live_log import LiveLog
    from litelog.system.change_signal import ChangeSignal
    from litelog.system.clock import Clock
    from litelog.system.inotify import Watcher

IDLE_SECONDS = 60.0
"""How many seconds a buffer runs after its last reader has left: readers come back after a break of the network."""


class TooManyReadersError(LogError):
    """The daemon already has as many readers as it permits."""


class UnknownLogError(LogError):
    """No log of that name is served here, or the token does not permit it."""


def unknown_log(name: str) -> UnknownLogError:
    """The error of a request for a log that is not there, or that its token may not read."""
    what = f"{name}: no such log is served here" if name else "the request names no log"
    return UnknownLogError(f"{what}; /logs lists the served logs")


class LiveLogs(Protocol):
    """The part of a replicator that ``ServedLogs`` needs."""

    @property
    def opened(self) -> bool:
        """Whether all logs that existed at the start have been opened, if they could be."""

    @property
    def log_changes(self) -> ChangeSignal:
        """Reports that ``live_logs`` or ``opened`` may have changed."""

    def live_logs(self) -> Mapping[str, LiveLog]:
        """Return the logs that have an open replica, by their folders."""


class ServedLogs:
    """Finds served logs by their names, and runs the buffers of those that have readers. Any thread may use it."""

    def __init__(
        self, logs: LiveLogs, served: str | Iterable[str], watcher: Watcher, clock: Clock, limits: ReaderLimits
    ) -> None:
        """``served``: ALL, or the names of logs."""
        self._logs = logs
        self._served = ALL if served == ALL else frozenset(served)
        self._watcher = watcher
        self._clock = clock
        self.limits = limits
        self.counts = LimitCounts()
        self._lock = threading.Lock()
        self._running: dict[str, ServedLog] = {}
        self._mirrors: dict[str, MirrorPositions] = {}
        """By the logs' folders. They outlive the buffers."""
        self._sent: Counter[str] = Counter()
        """By the logs' folders: bytes that readers got of buffers that have ended."""
        self._idle_since: dict[str, float] = {}
        self._closed = False

    @property
    def changes(self) -> ChangeSignal:
        """Reports that ``names`` may have changed."""
        return self._logs.log_changes

    def names(self) -> list[str]:
        """The served logs, sorted. Raises NotYetAvailableError while the daemon is opening its logs: the list is not
        whole."""
        if not self._logs.opened:
            raise NotYetAvailableError("the daemon is still opening its logs")
        return sorted(self._find_all())

    def get(self, name: str) -> ServedLog:
        """Return a log to look at. Its buffer may not run.

        Raises:
            UnknownLogError: No such log is served here.
            NotYetAvailableError: The daemon is still opening its logs, or is ending.
        """
        with self._lock:
            running = self._running.get(name)
            self._require_open(name)
        if running is not None:
            return running
        log = self._find_all().get(name)
        if log is None and not self._logs.opened:
            raise NotYetAvailableError(f"{name}: the daemon is still opening its logs")
        if log is None:
            raise unknown_log(name)
        return self._look_at(name, log)

    def get_all(self, names: Iterable[str]) -> Iterator[ServedLog]:
        """Yield the logs of these names that are still served, as ``get``: the replicator's logs are gone through once.
        Raises NotYetAvailableError as ``get``."""
        found = self._find_all()
        for name in names:
            with self._lock:
                running = self._running.get(name)
                self._require_open(name)
            if running is not None:
                yield running
            elif name in found:
                yield self._look_at(name, found[name])

    def _look_at(self, name: str, log: LiveLog) -> ServedLog:
        """A log whose buffer does not run."""
        with self._lock:
            mirrors = self._mirrors.get(log.source.folder)
            if mirrors is None:
                registry = MirrorRegistry(log_state_folder(log.state_dir, log.source.folder))
                mirrors = self._mirrors[log.source.folder] = MirrorPositions(registry)
        return ServedLog.of(name, log, self._watcher, self._clock, mirrors)

    def status(self) -> ServingStatus:
        """The readers and mirrors of all logs."""
        now = self._clock.monotonic()
        with self._lock:
            known, sent = dict(self._mirrors), Counter(self._sent)
            running = {served.log.source.folder: served for served in self._running.values()}
        ends = {folder: served.durable_end() for folder, served in running.items()}
        mirrors = {folder: found.status(ends.get(folder), now) for folder, found in known.items()}
        sent.update({folder: served.sent_bytes for folder, served in running.items()})
        live = self._logs.live_logs() if known else {}
        counts = self.counts
        return ServingStatus(
            self.limits,
            counts.refused,
            counts.slowed_seconds,
            counts.ended,
            {folder: len(served.readers) for folder, served in running.items()},
            sent,
            {folder: statuses for folder, statuses in mirrors.items() if statuses},
            {log.source.folder: log.mirror_wait for log in live.values() if mirrors.get(log.source.folder)},
        )

    def enter(self, name: str, reader: LiveReader, *, live: bool = True) -> ServedLog:
        """Return a log for a reader. With ``live``, its buffer runs until the reader leaves, and a while longer.

        Raises:
            UnknownLogError, NotYetAvailableError: As ``get``.
            TooManyReadersError: No further reader is permitted.
        """
        while True:
            found = self.get(name)
            with self._lock:
                self._require_open(name)
                if not found.has_ended:  # another thread may have stopped it meanwhile
                    return self._enter(found, reader, live=live)

    def _enter(self, found: ServedLog, reader: LiveReader, *, live: bool) -> ServedLog:
        """Add a reader to a log, under the lock."""
        if sum(len(each.readers) for each in self._running.values()) >= self.limits.readers:
            self.counts.add(refused=1)
            raise TooManyReadersError(f"{self.limits.readers} readers read already, and the daemon permits no more")
        served = self._running.get(found.name, found)
        if live:
            served.buffer.start()
        self._running[found.name] = served
        self._idle_since.pop(found.name, None)
        served.enter(reader)
        return served

    def leave(self, served: ServedLog, reader: LiveReader) -> None:
        """End a reader. Later, ``stop_idle`` stops a buffer without readers."""
        served.leave(reader)
        with self._lock:
            if not served.readers:
                self._idle_since[served.name] = self._clock.monotonic()

    def stop_idle(self) -> None:
        """Stop the buffers that have had no reader for a while."""
        now, ended = self._clock.monotonic(), list[ServedLog]()
        with self._lock:
            for name, since in list(self._idle_since.items()):
                if now - since >= IDLE_SECONDS:
                    del self._idle_since[name]
                    served = self._running.pop(name, None)
                    if served is not None:
                        served.has_ended = True
                        self._sent[served.log.source.folder] += served.sent_bytes
                        ended.append(served)
        for served in ended:
            served.buffer.stop()
            served.objects.close()

    def end_readers(self) -> None:
        """Let the streams of all readers end, and take no further reader. For the event loop's thread."""
        with self._lock:
            self._closed = True
        for served in self.running():
            for reader in served.all_readers():
                reader.end(_ending(served.name))

    def close(self) -> None:
        """Stop all buffers."""
        with self._lock:
            self._closed = True
            ended = list(self._running.values())
            self._running.clear()
        for served in ended:
            served.buffer.stop()
            served.objects.close()

    def running(self) -> Iterator[ServedLog]:
        """Yield the logs whose buffers run."""
        with self._lock:
            running = list(self._running.values())
        yield from running

    def _require_open(self, name: str) -> None:
        if self._closed:
            raise _ending(name)

    def _find_all(self) -> dict[str, LiveLog]:
        logs = self._logs.live_logs()
        names = {path: _name_of(path) for path in logs}
        counts = Counter(names.values())
        named = {name if counts[name] == 1 else path.strip("/"): logs[path] for path, name in names.items()}
        return named if self._served == ALL else {name: log for name, log in named.items() if name in self._served}


def _ending(name: str) -> NotYetAvailableError:
    return NotYetAvailableError(f"{name}: the daemon is ending")


def _name_of(path: str) -> str:
    return os.path.basename(os.path.abspath(path))
