"""The registry of log formats, by their names. litelog's own stand in ``FORMATS``.

Another package adds a format with one line in its pyproject.toml:

    [project.entry-points."litelog.formats"]
    journal = "my_package.journal:Journal"  # called without arguments, or with a pattern; returns a LogFormat

A program registers its own format with ``register_format``.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, cast

from litelog.errors import ConfigError, UnknownFormatError
from litelog.system.entry_points import EntryPointGroup, load_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.formats.log_format import LogFormat

FORMATS = EntryPointGroup(
    "litelog.formats",
    {
        "influxdb": "litelog.formats.influxdb:InfluxdbFormat",
        "kafka": "litelog.formats.kafka:KafkaFormat",
        "lines": "litelog.formats.lines:LinesFormat",
        "litelog": "litelog.formats.litelog:LitelogFormat",
        "netlog": "litelog.formats.netlog:NetlogFormat",
        "raw": "litelog.formats.raw:RawFormat",
        "redis-aof": "litelog.formats.redis_aof:RedisAofFormat",
        "spacetimedb": "litelog.formats.spacetimedb:SpacetimeDBFormat",
    },
)


def register_format(name: str, open_format: Callable[[], LogFormat] | Callable[[str], LogFormat]) -> None:
    """Let this process read and replicate logs of a format, without an installed package: for tests and notebooks.

    A later call for the name replaces an earlier one.

    Args:
        name: The format's name, which the claims of its replicas hold.
        open_format: The format's class, or a function: called without arguments, or with a pattern.

    Raises:
        ConfigError: The name is empty, or litelog or an installed package provides it.
    """
    if not name:
        raise ConfigError("a log format needs a name")
    FORMATS.register(name, open_format)


def format_names() -> list[str]:
    """The log formats that are installed, sorted."""
    return FORMATS.names()


def open_format(name: str, pattern: str | None = None) -> LogFormat:
    """Open the log format of that name.

    Args:
        name: The format's name, as ``format_names`` lists it.
        pattern: Which file names are log segments, if the format needs a pattern.

    Raises:
        UnknownFormatError: No installed package has the format.
        ConfigError: A pattern is missing, or the format takes none.
    """
    entry = FORMATS.find(name)
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
