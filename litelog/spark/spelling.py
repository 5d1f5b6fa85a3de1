"""Options as Spark takes them: as text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from litelog.errors import ConfigError
from litelog.units import parse_size

if TYPE_CHECKING:
    from collections.abc import Mapping

_SUFFIXES = {"k": 10, "m": 20, "g": 30, "t": 40}
_PLAIN_SIZE = re.compile(r"([0-9]{1,15})([kmgt]?)", re.IGNORECASE)


def format_options(options: Mapping[str, object] | None) -> dict[str, str]:
    """Every value as text; booleans as ``true`` and ``false``."""
    given = options or {}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def parse_size_option(name: str, text: str) -> int:
    """Parse a size in bytes: a plain number, a number with Spark's k, m, g or t, or a size with its unit."""
    plain = _PLAIN_SIZE.fullmatch(text.strip())
    try:
        size = int(plain[1]) << _SUFFIXES.get(plain[2].lower(), 0) if plain else parse_size(text)
    except ValueError as error:
        raise ConfigError(f"{name}={text!r} {error}") from None
    if size < 1:
        raise ConfigError(f"{name}={text!r} must be at least 1 byte")
    return size
