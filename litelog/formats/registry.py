"""The registry of log formats, by their names. Ours and those of other packages are found through entry points alike.

A package adds a format with one line in its pyproject.toml:

    [project.entry-points."litelog.formats"]
    journal = "my_package.journal:Journal"  # called without arguments, or with a pattern; returns a LogFormat

A program registers its own format with ``register_format``.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, cast

from litelog.errors import ConfigError, UnknownFormatError
from litelog.system.entry_points import find_entry, load_entry, names_of, register

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.formats.log_format import LogFormat

FORMATS = "litelog.formats"


def register_format(name: str, open_format: Callable[[], LogFormat] | Callable[[str], LogFormat]) -> None:
    """Let this process read and replicate logs of a format, without an installed package: for tests and notebooks.

    A later call for the name replaces an earlier one.

    Args:
        name: The format's name, which the claims of its replicas hold.
        open_format: The format's class, or a function: called without arguments, or with a pattern.

    Raises:
        ConfigError: The name is empty, or an installed package provides it.
    """
    if not name:
        raise ConfigError("a log format needs a name")
    register(FORMATS, name, open_format)


def format_names() -> list[str]:
    """The log formats that are installed, sorted."""
    return names_of(FORMATS)


def open_format(name: str, pattern: str | None = None) -> LogFormat:
    """Open the log format of that name.

    Args:
        name: The format's name, as ``format_names`` lists it.
        pattern: Which file names are log segments, if the format needs a pattern.

    Raises:
        UnknownFormatError: No installed package has the format.
        ConfigError: A pattern is missing, or the format takes none.
    """
    entry = find_entry(FORMATS, name)
    if entry is None:
        raise UnknownFormatError(name, format_names())
    factory = cast("Callable[..., LogFormat]", load_entry(entry, f"format {name}"))
    arguments = () if pattern is None else (pattern,)
    try:
        inspect.signature(factory).bind(*arguments)
    except TypeError:
        fault = "needs a pattern for its file names" if pattern is None else "knows its file names and takes no pattern"
        raise ConfigError(f"format {name} {fault}") from None
    return factory(*arguments)


def open_stored_format(name: str, pattern: str | None = None) -> LogFormat:
    """The format of a replica's log. A format that needs a pattern and has none takes every name: a replica holds
    only log segments. Raises as ``open_format``."""
    try:
        return open_format(name, pattern)
    except UnknownFormatError:
        raise
    except ConfigError:
        if pattern is not None:
            raise
        return open_format(name, "*")
