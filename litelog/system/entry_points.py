"""Entry points: what installed packages offer under a group and a name. Nothing is imported before it is requested, so
a broken package does not stop users of other packages."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from litelog.errors import ConfigError, LitelogError


def names_of(group: str) -> list[str]:
    """The names that installed packages offer in a group, sorted."""
    return sorted({entry.name for entry in entry_points(group=group)})


def find_entry(group: str, name: str) -> EntryPoint | None:
    """The entry point of that name. Raises ConfigError if two packages provide different ones."""
    found = {entry.value: entry for entry in _entries(group, tuple(sys.path)) if entry.name == name}
    if len(found) > 1:
        raise ConfigError(f"{name}: two packages provide it ({', '.join(sorted(found))}); uninstall one of them")
    return next(iter(found.values()), None)


def load_entry(entry: EntryPoint, what: str, advice: str = "") -> object:
    """Import what an entry point names. A ConfigError says ``what`` cannot be loaded, and ends with ``advice``."""
    try:
        return entry.load()
    except LitelogError:
        raise
    except Exception as error:  # a third party's module may fail in any way
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{what}: {entry.value} cannot be loaded: {reason}{advice}") from error


@lru_cache(maxsize=16)
def _entries(group: str, _path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """A group's entry points. To find them reads a file of each package installed on ``_path``: once is enough for all
    logs of a process."""
    return tuple(entry_points(group=group))
