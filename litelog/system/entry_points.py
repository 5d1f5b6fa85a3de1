"""Entry points: objects that installed packages offer under a group and a name. Nothing is imported before it is
requested, so a broken package does not stop users of other packages. A program may also register an object itself."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from litelog.errors import ConfigError, LitelogError


@dataclass(frozen=True, slots=True)
class RegisteredEntry:
    """An object that this process registered under a name, in place of an entry point."""

    name: str
    registered: object

    @property
    def value(self) -> str:
        """The object as messages call it."""
        return repr(self.registered)

    def load(self) -> object:
        """The object."""
        return self.registered


_registered: dict[tuple[str, str], RegisteredEntry] = {}


def register(group: str, name: str, registered: object) -> None:
    """Offer an object under a name in this process, as an entry point would. A later call replaces an earlier one.

    Raises ConfigError if an installed package provides the name.
    """
    if installed := _find_installed(group, name):
        raise ConfigError(f"{name}: {installed.value} provides it already; choose another name")
    _registered[group, name] = RegisteredEntry(name, registered)


def names_of(group: str) -> list[str]:
    """The names that installed packages and this process offer in a group, sorted."""
    here = {name for entry_group, name in list(_registered) if entry_group == group}
    return sorted(here | {entry.name for entry in entry_points(group=group)})


def find_entry(group: str, name: str) -> EntryPoint | RegisteredEntry | None:
    """The object that this process registered under that name, or else the entry point. Raises ConfigError if two
    packages provide different ones."""
    return _registered.get((group, name)) or _find_installed(group, name)


def _find_installed(group: str, name: str) -> EntryPoint | None:
    found = {entry.value: entry for entry in _entries(group, tuple(sys.path)) if entry.name == name}
    if len(found) > 1:
        raise ConfigError(f"{name}: two packages provide it ({', '.join(sorted(found))}); uninstall one of them")
    return next(iter(found.values()), None)


def load_entry(entry: EntryPoint | RegisteredEntry, what: str, advice: str = "") -> object:
    """Import the object that an entry point names. Raises ConfigError if that fails: the message says that ``what``
    cannot be loaded, and ends with ``advice``."""
    try:
        return entry.load()
    except LitelogError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or entry.value.startswith(error.name):
            raise ConfigError(f"{what}: {entry.value} cannot be loaded: {error}{advice}") from error
        raise ConfigError(f"{what} needs {error.name}, which is not installed{advice}") from error
    except Exception as error:  # a third party's module may fail in any way
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{what}: {entry.value} cannot be loaded: {reason}{advice}") from error


@lru_cache(maxsize=16)
def _entries(group: str, _path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """A group's entry points. The search reads a file of each package installed on ``_path``, so its result is kept for
    all logs of a process."""
    return tuple(entry_points(group=group))
