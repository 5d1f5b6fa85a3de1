"""Entry points: objects that litelog and installed packages offer under a group and a name. Nothing is imported before
it is requested, so a broken package does not stop users of other packages. Installed packages are searched only for a
name that is not built in. A program may also register an object itself."""

from __future__ import annotations

import importlib
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, LitelogError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.metadata import EntryPoint


class Entry(Protocol):
    """The offer under a name: an entry point of a package, or an instance of a class below."""

    @property
    def value(self) -> str:
        """The object as messages call it: ``package.module:attribute``."""

    def load(self) -> object:
        """The object. Any exception of the module that holds it."""


@dataclass(frozen=True, slots=True)
class BuiltInEntry:
    """An object of litelog itself, as ``package.module:attribute``."""

    value: str

    def load(self) -> object:
        """The object. Any exception of the module that holds it."""
        module, _, attribute = self.value.partition(":")
        return getattr(importlib.import_module(module), attribute)


@dataclass(frozen=True, slots=True)
class RegisteredEntry:
    """An object that this process registered under a name, in place of an entry point."""

    registered: object

    @property
    def value(self) -> str:
        """The object as messages call it."""
        return repr(self.registered)

    def load(self) -> object:
        """The object."""
        return self.registered


_registered: dict[tuple[str, str], RegisteredEntry] = {}


@dataclass(frozen=True, slots=True)
class EntryPointGroup:
    """The objects of one group: litelog's own, those of this process, and those of installed packages, in that order.

    Attributes:
        group: The group's name in the pyproject.toml of a package.
        built_in: litelog's own entries: ``package.module:attribute`` for each name. No package can replace them.
    """

    group: str
    built_in: Mapping[str, str]

    def register(self, name: str, registered: object) -> None:
        """Offer an object under a name in this process, as an entry point would. A later call replaces an earlier one.

        Raises ConfigError if litelog or an installed package provides the name.
        """
        if provided := self._provided(name):
            raise ConfigError(f"{name}: {provided.value} provides it already; choose another name")
        _registered[self.group, name] = RegisteredEntry(registered)

    def names(self) -> list[str]:
        """The names that litelog, this process and installed packages offer, sorted."""
        here = {name for group, name in list(_registered) if group == self.group}
        return sorted({*self.built_in, *here, *(entry.name for entry in _installed(self.group, tuple(sys.path)))})

    def find(self, name: str) -> Entry | None:
        """The object of that name, which is not imported yet; None if no package offers it.

        Raises ConfigError if two packages provide different ones.
        """
        return _registered.get((self.group, name)) or self._provided(name)

    def _provided(self, name: str) -> Entry | None:
        if value := self.built_in.get(name):
            return BuiltInEntry(value)
        found = {entry.value: entry for entry in _installed(self.group, tuple(sys.path)) if entry.name == name}
        if len(found) > 1:
            raise ConfigError(f"{name}: two packages provide it ({', '.join(sorted(found))}); uninstall one of them")
        return next(iter(found.values()), None)


def load_entry(entry: Entry, what: str, advice: Callable[[], str] = str) -> object:
    """Import the object that an entry names. Raises ConfigError if that fails: the message says that ``what`` cannot be
    loaded, and ends with what ``advice`` returns."""
    try:
        return entry.load()
    except LitelogError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or entry.value.startswith(error.name):
            raise ConfigError(f"{what}: {entry.value} cannot be loaded: {error}{advice()}") from error
        raise ConfigError(f"{what} needs {error.name}, which is not installed{advice()}") from error
    except Exception as error:  # a third party's module may fail in any way
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{what}: {entry.value} cannot be loaded: {reason}{advice()}") from error


@lru_cache(maxsize=16)
def _installed(group: str, _path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The entry points of a group. The search reads a file of each package installed on ``_path``, so its result is
    kept for all logs of a process."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - 15 ms, which no built-in name needs

    return tuple(entry_points(group=group))
