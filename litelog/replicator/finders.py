"""Which logs a configuration means now: its folders are looked at, again and again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from litelog.discovery import LogFinder, choose_logs
from litelog.errors import SourceError
from litelog.event_fields import fields, is_worth_saying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from litelog.clock import Clock
    from litelog.config import Config, FolderConfig, LogConfig

_logger = logging.getLogger(__name__)


class Finders:
    """Used by one thread at a time."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._clock = clock
        self._finders: list[LogFinder] = []
        self._names: dict[str, list[str]] = {}
        self._failures: dict[str, int] = {}
        self._refused: set[tuple[str, str]] = set()
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
        self._names = {key: names for key, names in self._names.items() if key in map(_key, config.folders)}

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
        for each in refused:
            if (each.log, each.reason) not in self._refused:
                extra = fields("log-refused", log=each.log)
                _logger.error("%s: was found, and is not replicated: %s", each.log, each.reason, extra=extra)
        self._refused = {(each.log, each.reason) for each in refused}
        return chosen

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
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            if is_worth_saying(failures):
                said = "%s: cannot look for logs (%d times in a row); those that are known stay"
                extra = fields("not-looked", log=finder.folder.dir, failures=failures)
                _logger.warning(said, error, failures, extra=extra)
        else:
            self._failures.pop(key, None)


def _key(folder: FolderConfig) -> str:
    """What makes a finder find what it finds."""
    names = (folder.dir, folder.pattern, folder.recursive, folder.format, folder.segment_pattern)
    return "\0".join(map(str, names))
