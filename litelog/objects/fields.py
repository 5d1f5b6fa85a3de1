"""The fields of an object's JSON: each object has one table that says how each of its fields is read.

A reader takes the field's name and its JSON value, None for a field that is not there. It returns the value in its own
type, or raises ValueError.

Specified in litelog/objects/README.md#what-a-decoder-checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from litelog.codec.checksum import is_sha256
from litelog.codec.decoding import MOST, abbreviate, is_valid_text
from litelog.codec.json_columns import LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

Reader: TypeAlias = "Callable[[str, object], T]"


def read_all(readers: Mapping[str, Reader[Any]], fields: Mapping[str, object]) -> dict[str, Any]:
    """Read the fields that ``readers`` name, in their order; others are ignored."""
    return {name: reader(name, fields.get(name)) for name, reader in readers.items()}


def text(name: str, value: object) -> str:
    """Read text."""
    if not isinstance(value, str) or not is_valid_text(value):
        refuse(name, value)
    return value


def sha256(name: str, value: object) -> str:
    """Read a SHA-256 in hex."""
    if not is_sha256(digest := text(name, value)):
        refuse(name, value)
    return digest


def flag(name: str, value: object) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        refuse(name, value)
    return value


def number(low: int = 0, below: int = MOST) -> Reader[int]:
    """Return the reader of a whole number from ``low`` to ``below``, exclusive. A boolean is not a number."""

    def read(name: str, value: object) -> int:
        if type(value) is not int or not low <= value < below:
            refuse(name, value)
        return value

    return read


COUNT = number()
CRC = number(below=1 << 32)
SEQUENCE = number(below=LIMIT)
TIMESTAMP = number(1 - LIMIT, LIMIT)
"""Readers of the numbers that several objects state."""


def parsed(parse: Callable[[str], T]) -> Reader[T]:
    """Return the reader of a text that ``parse`` turns into a value, or refuses with a ValueError."""
    return lambda name, value: parse(text(name, value))


def optional(reader: Reader[T], default: T | None = None) -> Reader[T | None]:
    """Return the reader of a field that may be null or left out: then it is ``default``."""
    return lambda name, value: default if value is None else reader(name, value)


def require(holds: bool, name: str, value: object) -> None:
    """Refuse ``value`` unless ``holds`` is true."""
    if not holds:
        refuse(name, value)


def refuse(name: str, value: object) -> NoReturn:
    """Raise ValueError for a field with an impossible value."""
    raise ValueError(f"{name} is {abbreviate(value)}")
