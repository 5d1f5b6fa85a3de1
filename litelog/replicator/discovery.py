"""Finds the logs that a configuration names, in entries of their own or in folders of logs. It searches folders at
intervals, soon after an event, and again after failures."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from typing import TYPE_CHECKING, Generic, TypeVar

from litelog.config.entries import SearchedFolder
from litelog.config.models import place_of
from litelog.dataclass import dataclass
from litelog.errors import SourceError, SourceMissingError
from litelog.events import fields, is_worth_logging
from litelog.formats.capabilities import is_log_folder
from litelog.formats.registry import open_format
from litelog.replicator.status import NotReplicated
from litelog.stores.registry import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from litelog.config import Config, FolderConfig, LogConfig
    from litelog.replicator.run_state import RunState
    from litelog.system.clock import Clock
    from litelog.system.inotify import Watcher


_Folder = TypeVar("_Folder", bound=SearchedFolder)

MAX_DEPTH = 32
"""How many levels below a folder are searched for logs."""

MAX_FOLDERS = 1 << 16
"""How many folders are listed for one entry."""

SETTLED_MICROSECONDS = 100_000
"""A folder that changed more recently may change again within the same tick of its time stamp."""


@dataclass(slots=True)
class _Seen:
    """The contents of a folder when it was listed."""

    modified: int | None
    """Nanoseconds; None if it must be listed again."""
    below: tuple[str, ...] = ()
    """The names of the folders in it."""
    is_log: bool = False
    """Whether it held log segments, at this listing or an earlier one."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A log that was found but cannot be replicated as the configuration says."""

    log: str
    reason: str


class LogFinder(Generic[_Folder]):
    """Finds the logs of one folder entry. Repeated searches list only folders that have changed. Used by one thread at
    a time."""

    def __init__(self, folder: _Folder, clock: Clock) -> None:
        self.folder = folder
        self._clock = clock
        self._format = open_format(folder.format, folder.segment_pattern)
        self._depth = len(folder.pattern.split("/"))
        self._seen: dict[str, _Seen] = {}
        self._open: list[tuple[str, _Seen]] = []
        """The folders whose changes may add or remove a log."""
        self._found: list[str] | None = None

    def find(self) -> list[str]:
        """Return the names of the logs that exist, sorted. SourceMissingError if ``dir`` does not exist, which does not
        mean that its logs are gone; SourceError if a folder cannot be read."""
        if self._found is not None and not any(self._has_changed(name, seen) for name, seen in self._open):
            return self._found
        self._found = None
        still: dict[str, _Seen] = {}
        found: list[str] = []
        left: list[tuple[str, int]] = [("", 0)]
        while left:
            name, depth = left.pop()
            seen = self._look(name, depth)
            if seen is None:
                continue
            still[name] = seen
            if len(still) > MAX_FOLDERS:
                raise SourceError(f"{self.folder.dir}: more than {MAX_FOLDERS} folders; a narrower pattern is needed")
            if seen.is_log:
                found.append(name)
            if depth < self._deepest:
                left += [(f"{name}/{below}" if name else below, depth + 1) for below in seen.below]
        self._seen = still
        self._open = [(name, seen) for name, seen in still.items() if not (seen.is_log and self._is_deepest(name))]
        self._found = sorted(found)
        return self._found

    def watched_folders(self) -> list[str]:
        """Return the folders whose changes may add or remove a log."""
        return [self._path(name) for name, _ in self._open]

    def _path(self, name: str) -> str:
        return os.path.join(self.folder.dir, name) if name else self.folder.dir

    def _is_deepest(self, name: str) -> bool:
        return name.count("/") + 1 == self._deepest if name else False

    def _has_changed(self, name: str, seen: _Seen) -> bool:
        try:
            return os.stat(self._path(name)).st_mtime_ns != seen.modified
        except OSError:
            return True

    @property
    def _deepest(self) -> int:
        return MAX_DEPTH if self.folder.recursive else self._depth

    def _look(self, name: str, depth: int) -> _Seen | None:
        """Return the contents of a folder; None if it is gone."""
        before = self._seen.get(name)
        if before is not None and before.is_log and depth == self._deepest:
            return before  # the folder above has just listed it
        path = self._path(name)
        try:
            modified = os.stat(path).st_mtime_ns
            if before is not None and before.modified == modified:
                return before
            return self._list(path, name, depth, modified, was_log=before is not None and before.is_log)
        except (FileNotFoundError, NotADirectoryError):
            if name:
                return None
            raise SourceMissingError(path, "no such folder") from None
        except OSError as error:
            raise SourceError(f"{path}: cannot be read: {error.strerror}") from error

    def _list(self, path: str, name: str, depth: int, modified: int, *, was_log: bool) -> _Seen:
        may_be_log = bool(name) and self.folder.means(name) and is_log_folder(self._format, os.path.basename(name))
        below: list[str] = []
        is_log = was_log
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if depth < self._deepest and self._may_hold_log(name, entry.name):
                        below.append(entry.name)
                elif may_be_log and not is_log and entry.is_file(follow_symlinks=False):
                    is_log = self._format.segment_order(entry.name) is not None
        settled = self._clock.now() - modified // 1000 >= SETTLED_MICROSECONDS
        return _Seen(modified if settled else None, tuple(below), is_log)

    def _may_hold_log(self, name: str, below: str) -> bool:
        """Whether a folder may be a log, or contain one."""
        return self.folder.leads_to(f"{name}/{below}" if name else below)


class ReplicaPlaces:
    """The places of replicas. No two replicas may share a place, and none may lie within another."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, ...], str] = {}
        self._above: Counter[tuple[str, ...]] = Counter()

    def find(self, url: str) -> str | None:
        """Return the URL of a replica at, within or above the place of ``url``; None if there is none."""
        parts = _parts(url)
        for length in range(1, len(parts) + 1):
            if (other := self._at.get(parts[:length])) is not None:
                return other
        if parts in self._above:
            return next(other for at, other in self._at.items() if at[: len(parts)] == parts)
        return None

    def take(self, log: LogConfig, *, own: bool = False) -> str:
        """Occupy the places of a log's replicas. If a place is occupied, return the reason, unless the log has its
        ``own`` entry."""
        for replica in log.replicas:
            other = None if own else self.find(replica.url)
            if other is not None:
                return f"its replica {redact(replica.url)} would be at, in or above {redact(other)}"
        for replica in log.replicas:
            self._add(replica.url)
        return ""

    def _add(self, url: str) -> None:
        parts = _parts(url)
        self._at[parts] = url
        self._above.update(parts[:length] for length in range(1, len(parts)))


def _parts(url: str) -> tuple[str, ...]:
    place, mark, query = url.partition("?") if "://" in url else (url, "", "")
    place = place_of(place)
    if "://" not in place:
        place = f"file://{place}"
    scheme, _, path = place.partition("://")
    return (f"{scheme}{mark}{query}", *path.split("/"))


def choose_logs(
    config: Config, found: Iterable[tuple[FolderConfig, Iterable[str]]], is_known: Callable[[str], bool]
) -> tuple[list[LogConfig], list[Refused]]:
    """Return the logs that are to be replicated, those with their own entry first, and those that cannot be.

    ``is_known``: whether the log in a folder is replicated already. If the replicas of two logs would share a place, a
    known log gets it.
    """
    chosen = list(config.own_logs)
    refused: list[Refused] = []
    paths = {os.path.abspath(log.path) for log in chosen}
    places = ReplicaPlaces()
    for log in chosen:
        places.take(log, own=True)
    logs: list[LogConfig] = []
    for folder, names in found:
        for name in names:
            path = os.path.abspath(os.path.join(folder.dir, name))
            if path in paths:
                continue
            paths.add(path)
            try:
                logs.append(folder.named(name))
            except ValueError as error:
                refused.append(Refused(path, str(error)))
    if any(places.take(log) for log in logs):  # then known logs come first; this is rare, and reads the disk
        places = ReplicaPlaces()
        for log in chosen:
            places.take(log, own=True)
        logs.sort(key=lambda log: not is_known(log.path))
        for log in list(logs):
            reason = places.take(log)
            if reason:
                refused.append(Refused(log.path, reason))
                logs.remove(log)
    return chosen + logs, refused


def find_logs(config: Config, clock: Clock) -> list[LogConfig]:
    """Return the logs that exist now, as a daemon that starts would find them. Raises SourceError."""
    found = [(folder, LogFinder(folder, clock).find()) for folder in config.folders]
    return choose_logs(config, found, lambda _: False)[0]


_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Failures:
    """Failures in a row of one thing."""

    since: float
    """Monotonic seconds."""
    count: int = 0
    reason: str = ""

    def add(self, error: Exception) -> bool:
        """Count a failure. Return whether it is to be logged."""
        self.count += 1
        self.reason = str(error)
        return is_worth_logging(self.count)


class LogDiscovery:
    """Finds the logs of all folder entries. Used by one thread at a time."""

    def __init__(self, config: Config, clock: Clock) -> None:
        """It finds nothing before ``set``, which opens the logs' formats."""
        self._config = config
        self._clock = clock
        self._finders: list[LogFinder[FolderConfig]] = []
        self._names: dict[str, list[str]] = {}
        self._failures: dict[str, Failures] = {}
        self._refused: dict[tuple[str, str], float] = {}
        """The time since which each log is refused, in monotonic seconds, by log and reason."""

    def set(self, config: Config) -> None:
        """Look for the logs of ``config`` from now on. Raises ConfigError."""
        before = {_key(finder.folder): finder for finder in self._finders}
        finders = []
        for folder in config.folders:
            finder = before.get(_key(folder)) or LogFinder(folder, self._clock)
            finder.folder = folder
            finders.append(finder)
        self._config, self._finders = config, finders
        keys = {_key(folder) for folder in config.folders}
        self._names = {key: names for key, names in self._names.items() if key in keys}
        self._failures = {key: failures for key, failures in self._failures.items() if key in keys}

    def look(self, *, all_of_them: bool) -> bool:
        """Search the watched folders and those that were never searched; with ``all_of_them``, all folders. Return
        whether the logs have changed. A folder that cannot be read keeps its logs."""
        before = dict(self._names)
        for finder in self._finders:
            if finder.folder.watch or all_of_them or _key(finder.folder) not in self._names:
                self._look(finder)
        return self._names != before

    def choose(self, is_known: Callable[[str], bool]) -> list[LogConfig]:
        """Return the logs that are to be replicated now, those with their own entry first. Logs each refusal once."""
        found = [(finder.folder, self._names.get(_key(finder.folder), ())) for finder in self._finders]
        chosen, refused = choose_logs(self._config, found, is_known)
        before, self._refused = self._refused, {}
        for found_log in refused:
            log, reason = found_log.log, found_log.reason
            since = before.get((log, reason))
            if since is None:
                _logger.error("%s: found, but not replicated: %s", log, reason, extra=fields("log-refused", log=log))
            self._refused[log, reason] = self._clock.monotonic() if since is None else since
        return chosen

    def not_replicated(self) -> Iterator[NotReplicated]:
        """Yield the refused logs, and the folders that could not be searched."""
        for (log, reason), since in self._refused.items():
            yield NotReplicated(log, reason, since)
        for finder in self._finders:
            failures = self._failures.get(_key(finder.folder))
            if failures is not None:
                yield NotReplicated(finder.folder.dir, f"cannot look for logs: {failures.reason}", failures.since)

    def watched_folders(self) -> Iterable[str]:
        """Yield the folders whose changes may add or remove a log."""
        for finder in self._finders:
            if finder.folder.watch:
                yield from finder.watched_folders()

    def _look(self, finder: LogFinder[FolderConfig]) -> None:
        key = _key(finder.folder)
        try:
            self._names[key] = finder.find()
        except SourceError as error:
            failures = self._failures.setdefault(key, Failures(self._clock.monotonic()))
            if failures.add(error):
                message = "%s: cannot look for logs (%d times in a row); known logs stay"
                extra = fields("folder-unreadable", log=finder.folder.dir, consecutive_failures=failures.count)
                _logger.warning(message, error, failures.count, extra=extra)
        else:
            self._failures.pop(key, None)


def _key(folder: FolderConfig) -> str:
    """Return a key of the fields that decide what a finder finds."""
    names = (folder.dir, folder.pattern, folder.recursive, folder.format, folder.segment_pattern)
    return "\0".join(map(str, names))


RETRY_SECONDS = 5.0
"""How many seconds pass before opening is retried, if no folder is watched."""

SEARCH_SPACING = 0.1
"""The least seconds between two searches for logs, no matter how many events arrive."""


class LogSearch:
    """Schedules the searches, and watches the folders. Everything except ``search`` is called under the run state's
    lock; ``search`` runs in one thread at a time."""

    def __init__(self, run_state: RunState, watcher: Watcher) -> None:
        self._run_state = run_state
        self._watcher = watcher
        self._due = 0.0
        self._running = False
        self._searched_at = 0.0
        self._event_pending = False
        """Whether an event came from a folder since the last search began."""
        self._hint = self._see_hint  # one object: it identifies a watch

    def begin(self, now: float) -> bool:
        """Begin a search if one is due, and none is running. Return whether it is to run now."""
        if self._running or now < self._due:
            return False
        self._running = True
        return True

    @property
    def due(self) -> float:
        """When to ``begin`` the next search, in monotonic seconds; infinity while one is running."""
        return math.inf if self._running else self._due

    def search(self, discovery: LogDiscovery) -> tuple[bool, bool]:
        """Search for logs, and again if a folder was found that was not watched during its search. Return whether the
        logs have changed, and whether events report all further changes."""
        self._event_pending = False
        found, watched = False, True
        armed: set[str] | None = None
        while armed is None or not armed.issuperset(discovery.watched_folders()):
            armed = set(discovery.watched_folders())
            for folder in armed:
                watched = self._watcher.arm(folder, self._hint) and watched
            found = discovery.look(all_of_them=False) or found
        return found, watched

    def end(self, begun: float, config: Config, *, watched: bool) -> None:
        """Schedule the search that follows the search begun at ``begun``."""
        self._searched_at = begun
        intervals = [folder.poll_interval for folder in config.folders if folder.watch]
        spacing = (2 if watched else 1) * min(intervals, default=RETRY_SECONDS)
        self._due = begun + (SEARCH_SPACING if self._event_pending else spacing)
        self._running = False

    def _see_hint(self) -> None:
        """Record a change in a folder that contains logs, and search soon."""
        with self._run_state.changed:
            self._event_pending = True
            self._due = min(self._due, self._searched_at + SEARCH_SPACING)
            self._run_state.wake_by(self._due)
