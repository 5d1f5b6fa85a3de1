"""Which logs a configuration means now: its folders are looked at, again and again."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.errors import SourceError
from litelog.events import fields, is_worth_saying
from litelog.replicator.discovery import LogFinder, choose_logs
from litelog.replicator.status import NotReplicated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from litelog.config import Config, FolderConfig, LogConfig
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Failures:
    """That something fails, again and again."""

    since: float
    """Monotonic seconds."""
    count: int = 0
    reason: str = ""

    def add(self, error: Exception) -> bool:
        """Once more; whether that is worth saying."""
        self.count += 1
        self.reason = str(error)
        return is_worth_saying(self.count)


class Finders:
    """Used by one thread at a time."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._clock = clock
        self._finders: list[LogFinder] = []
        self._names: dict[str, list[str]] = {}
        self._failures: dict[str, Failures] = {}
        self._refused: dict[tuple[str, str], float] = {}
        """Since when, monotonic seconds."""
        self.set(config)

    def set(self, config: Config) -> None:
        """Look for the logs of ``config`` from now on. ConfigError."""
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
        """Look into the folders that are watched, and those that were never looked into; with ``all_of_them``, into
        all. Whether other logs are there than before. A folder that cannot be read holds what it held."""
        before = dict(self._names)
        for finder in self._finders:
            if finder.folder.watch or all_of_them or _key(finder.folder) not in self._names:
                self._look(finder)
        return self._names != before

    def choose(self, is_known: Callable[[str], bool]) -> list[LogConfig]:
        """The logs that are to be replicated now, those with their own entry first; what cannot be, is said once."""
        found = [(finder.folder, self._names.get(_key(finder.folder), ())) for finder in self._finders]
        chosen, refused = choose_logs(self._config, found, is_known)
        before, self._refused = self._refused, {}
        for each in refused:
            since = before.get((each.log, each.reason))
            if since is None:
                extra = fields("log-refused", log=each.log)
                _logger.error("%s: was found, and is not replicated: %s", each.log, each.reason, extra=extra)
            self._refused[each.log, each.reason] = self._clock.monotonic() if since is None else since
        return chosen

    def not_replicated(self) -> Iterator[NotReplicated]:
        """The logs that were refused, and the folders that could not be looked into."""
        for (log, reason), since in self._refused.items():
            yield NotReplicated(log, reason, since)
        for finder in self._finders:
            failures = self._failures.get(_key(finder.folder))
            if failures is not None:
                yield NotReplicated(finder.folder.dir, f"cannot look for logs: {failures.reason}", failures.since)

    def watched_folders(self) -> Iterable[str]:
        """The folders whose changes may make a log come or go."""
        for finder in self._finders:
            if finder.folder.watch:
                yield from finder.looked_into()

    def _look(self, finder: LogFinder) -> None:
        key = _key(finder.folder)
        try:
            self._names[key] = finder.find()
        except SourceError as error:
            failures = self._failures.setdefault(key, Failures(self._clock.monotonic()))
            if failures.add(error):
                said = "%s: cannot look for logs (%d times in a row); those that are known stay"
                extra = fields("not-looked", log=finder.folder.dir, failures=failures.count)
                _logger.warning(said, error, failures.count, extra=extra)
        else:
            self._failures.pop(key, None)


def _key(folder: FolderConfig) -> str:
    """What makes a finder find what it finds."""
    names = (folder.dir, folder.pattern, folder.recursive, folder.format, folder.segment_pattern)
    return "\0".join(map(str, names))
