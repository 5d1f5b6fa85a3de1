"""The logs that a daemon serves, found by a URL whose last part is a pattern."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.stores.object_store import ListsLogs
from litelog.stores.opening import naming_store
from litelog.stores.registry import open_store, redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WILD = "*["
"""A URL with any of these in its path is a pattern. A question mark would begin a query."""


@dataclass(frozen=True, slots=True)
class NamedLog:
    """A served log."""

    name: str
    """Its name there, a relative path without ``..``."""
    url: str


def is_pattern(url: str) -> bool:
    """Whether a URL stands for all logs that match it: ``http://HOST:PORT/logs/app-*``."""
    parts = urlsplit(url) if url.startswith(("http://", "https://")) else None
    return parts is not None and any(letter in parts.path for letter in WILD)


class ServedLogsView:
    """Looks at the logs of a daemon again and again. One thread looks; any thread closes."""

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        """``url``, ``options``: as for ``find_served_logs``. Makes no request. Raises ConfigError."""
        store = open_store(url, options)
        if not isinstance(store, ListsLogs):
            store.close()
            raise ConfigError(f"{url}: is not a pattern for the logs of a daemon: write http://HOST:PORT/logs/PATTERN")
        self._url = redact(url)
        self._store = store
        self._revision: str | None = None

    @property
    def waits(self) -> bool:
        """Whether the next look lasts until the logs change. A daemon of an older litelog answers at once."""
        return self._revision is not None

    def look(self, seconds: float = 0.0) -> Sequence[NamedLog]:
        """Return the served logs that match, sorted by name. The daemon answers after ``seconds``, or as soon as its
        logs differ from those at the last look. Raises as ``find_served_logs``."""
        with naming_store(self._url):
            self._revision, listed = self._store.list_logs(self._revision, seconds)
        found = [NamedLog(name, where) for name, where in listed]
        return sorted((log for log in found if _is_relative(log.name)), key=lambda log: log.name)

    def close(self) -> None:
        self._store.close()


def find_served_logs(url: str, options: Mapping[str, object]) -> Sequence[NamedLog]:
    """Return the served logs that match a pattern, sorted by name.

    A name that would lead out of a folder is skipped.

    Args:
        url: The pattern.
        options: The options of the URL's store.

    Raises:
        ConfigError: The URL is invalid, or no daemon is there that serves logs.
        StoreError: The daemon cannot be asked.
    """
    with closing(ServedLogsView(url, options)) as view:
        return view.look()


def _is_relative(name: str) -> bool:
    return "\0" not in name and all(part not in ("", ".", "..") for part in name.split("/"))
