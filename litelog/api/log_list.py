"""LogList: the logs in a folder, or those that a daemon serves, with a signal when logs are added or removed."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Protocol, Self

from litelog.config.loading import make_folder
from litelog.errors import ConfigError, SourceError, StoreError
from litelog.replicator.discovery import SEARCH_SPACING, LogFinder
from litelog.stores.replica_address import address_of
from litelog.stores.served_logs import ServedLogsView
from litelog.system.clock import SystemClock
from litelog.system.inotify import Watcher

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from litelog.stores.replica_address import Replica

LONGEST_SECONDS = 5.0
"""How many seconds a daemon is asked to wait for news at a time: ``close`` does not end a request."""


class _Place(Protocol):
    """The place of the logs."""

    def find(self, seconds: float) -> tuple[str, ...]:
        """Return the names of the logs, sorted, after a change or after ``seconds`` at the latest."""

    def close(self) -> None:
        """Release what is open, and end the wait of ``find`` in another thread, if that is possible."""


class LogList:
    """The logs of a place. A context manager.

        with litelog.LogList("/var/lib/logs", pattern="app-*") as logs:
            while logs.wait():
                print(logs.names())

    One thread waits; any thread may close.
    """

    def __init__(
        self,
        place: Replica,
        *,
        pattern: str = "*",
        recursive: bool = False,
        log_format: str = "litelog",
        segment_pattern: str | None = None,
        poll_interval: float = 1.0,
    ) -> None:
        """Prepare to look. The first look comes with ``names`` or ``wait``.

        Args:
            place: The folder that contains the logs; or ``http://HOST:PORT/logs``, the logs that a daemon serves. A
                ReplicaConfig has the options of such a URL, for example its token.
            pattern: Which names are listed: a shell pattern, for each part of the path below a folder, such as ``*/*``.
            recursive: Whether the pattern matches the last parts of a path at any depth. For a folder.
            log_format: The format of the logs in a folder.
            segment_pattern: Which names are log segments, for the formats ``lines`` and ``raw``. For a folder.
            poll_interval: Seconds between two looks if no event and no daemon reports a change.

        Raises:
            ConfigError: The arguments contradict each other, or no such format is installed.
        """
        url, options = address_of(place)
        self._place: _Place
        if "://" in url:
            if recursive or segment_pattern is not None:
                raise ConfigError("recursive and segment_pattern are for the logs in a folder")
            self._place = _DaemonPlace(url, options, pattern, poll_interval)
        else:
            named = {"pattern": pattern, "recursive": recursive, "format": log_format}
            values = {**named, "segment_pattern": segment_pattern, "poll_interval": poll_interval}
            self._place = _FolderPlace({"dir": os.path.abspath(url), **values}, poll_interval)
        self._poll_interval = poll_interval
        self._clock = SystemClock()
        self._seen: tuple[str, ...] = ()
        self._closed = threading.Event()

    def names(self) -> tuple[str, ...]:
        """Look now. Return the names of the logs, sorted: their paths below the folder, or their names at the daemon.

        Raises:
            SourceMissingError, SourceError: The folder does not exist, or cannot be read.
            StoreError: The daemon cannot be asked.
            ConfigError: The daemon serves no logs.
        """
        self._seen = self._place.find(0.0)
        return self._seen

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the logs differ from those that ``names`` returned last. Many changes are one signal.

        A place that cannot be read now keeps its logs, and is looked at again.

        Args:
            timeout: How many seconds to wait; None: for ever.

        Returns:
            Whether they differ. False after ``timeout``, and after ``close``.

        Raises:
            StoreError: The daemon refuses to answer.
            ConfigError: The daemon serves no logs.
        """
        until = None if timeout is None else self._clock.monotonic() + timeout
        seconds = 0.0
        while not self._closed.is_set():
            found = self._look(seconds)
            if found is not None and found != self._seen:
                return True
            left = LONGEST_SECONDS if until is None else until - self._clock.monotonic()
            if left <= 0:
                return False
            seconds = min(left, LONGEST_SECONDS)
            if found is None:
                self._closed.wait(min(left, self._poll_interval))
                seconds = 0.0
        return False

    def close(self) -> None:
        """End a wait: at a folder at once, and at a daemon within seconds. Idempotent."""
        self._closed.set()
        self._place.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _look(self, seconds: float) -> tuple[str, ...] | None:
        """The names, after ``seconds`` at the latest; None if the place cannot be read now."""
        try:
            return self._place.find(seconds)
        except SourceError:
            return None
        except StoreError as error:
            if not error.retryable:
                raise
            return None


class _FolderPlace:
    """A folder of logs."""

    def __init__(self, values: Mapping[str, object], poll_interval: float) -> None:
        folder = make_folder("LogList", values)
        self._dir = folder.dir
        self._finder = LogFinder(folder, SystemClock())
        self._poll_interval = poll_interval
        self._clock = SystemClock()
        self._searched_at = 0.0
        """Monotonic seconds."""
        self._lock = threading.Lock()
        self._watcher: Watcher | None = None
        self._news = threading.Event()
        self._see_change = self._news.set  # one object: it identifies a watch
        self._closed = threading.Event()

    def find(self, seconds: float) -> tuple[str, ...]:
        self._await_change(min(seconds, self._poll_interval))
        self._searched_at = self._clock.monotonic()
        watcher = self._open_watcher()
        armed: set[str] = set()
        while not armed or not armed.issuperset(self._finder.watched_folders()):
            armed = {self._dir, *self._finder.watched_folders()}
            for folder in armed:
                if watcher is not None:
                    watcher.arm(folder, self._see_change)
            found = self._finder.find()
        return tuple(found)

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.close()
        self._news.set()

    def _await_change(self, seconds: float) -> None:
        """Wait for a change. A busy folder is searched every SEARCH_SPACING seconds at most."""
        until = self._clock.monotonic() + seconds
        if self._news.wait(seconds):
            self._closed.wait(max(0.0, min(until, self._searched_at + SEARCH_SPACING) - self._clock.monotonic()))
        self._news.clear()

    def _open_watcher(self) -> Watcher | None:
        with self._lock:
            if self._watcher is None and not self._closed.is_set():
                self._watcher = Watcher()
            return self._watcher


class _DaemonPlace:
    """The logs that a daemon serves."""

    def __init__(self, url: str, options: Mapping[str, object], pattern: str, poll_interval: float) -> None:
        self._view = ServedLogsView(f"{url.rstrip('/')}/{pattern}", options)
        self._poll_interval = poll_interval
        self._closed = threading.Event()

    def find(self, seconds: float) -> tuple[str, ...]:
        if not self._view.waits:
            self._closed.wait(min(seconds, self._poll_interval))
        return tuple(log.name for log in self._view.look(seconds))

    def close(self) -> None:
        self._closed.set()
        self._view.close()
