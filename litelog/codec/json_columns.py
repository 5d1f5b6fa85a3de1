"""Columns of whole numbers in JSON: most as the difference of each from the one before, and long ones packed.

A column is written as a list. A long column without gaps whose numbers are small, except for the first, is written as
that first number and one text: base64 of the others, i32 each, little-endian. That is half as long, and faster to read.

Specified in litelog/objects/README.md#columns.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Column: TypeAlias = tuple[int, ...]
Gapped: TypeAlias = tuple[int | None, ...]
"""A column in which some entries have no value."""

LIMIT = 1 << 64
"""The exclusive limit of every number in a column, and of every intermediate sum."""

PACKED_COUNT = 64
"""Columns shorter than this are written as lists, which people can read."""

_SMALL = 1 << 31


def write_column(column: Sequence[int | None]) -> list[Any]:
    """The numbers unchanged."""
    if len(column) < PACKED_COUNT or None in column:
        return list(column)
    rest: Any = column[1:]
    if not -_SMALL <= min(rest) <= max(rest) < _SMALL:
        return list(column)
    return [column[0], b64encode(struct.pack(f"<{len(rest)}i", *rest)).decode()]


def write_differences(column: Sequence[int]) -> list[Any]:
    """Each number minus the one before it; the first minus 0."""
    return write_column([after - before for before, after in pairwise((0, *column))])


def write_gapped(column: Sequence[int | None]) -> list[Any]:
    """As ``write_differences``, over the entries that have a value. The others stay None."""
    found: list[int | None] = []
    before = 0
    for value in column:
        found.append(None if value is None else value - before)
        before = before if value is None else value
    return write_column(found)


def read_plain(name: str, written: object, count: int | None = None) -> Column:
    """The column that ``write_column`` wrote. Raises ValueError for anything else, or if its length is not
    ``count``."""
    numbers = _read(name, written, count)
    _check(name, numbers)
    return tuple(numbers)


def read_differences(name: str, written: object, count: int | None = None) -> Column:
    """The column that ``write_differences`` wrote. Raises ValueError as ``read_plain``."""
    values = tuple(accumulate(read_plain(name, written, count)))
    _check(name, values)
    return values


def read_plain_gapped(name: str, written: object, count: int | None = None) -> Gapped:
    """As ``read_plain``, for a column in which some entries are None."""
    numbers = _read(name, written, count)
    _check(name, [number for number in numbers if number is not None] if None in numbers else numbers)
    return tuple(numbers)


def read_gapped(name: str, written: object, count: int | None = None) -> Gapped:
    """The column that ``write_gapped`` wrote. Raises ValueError as ``read_plain``."""
    steps = read_plain_gapped(name, written, count)
    values = tuple(accumulate(step for step in steps if step is not None))
    _check(name, values)
    if len(values) == len(steps):
        return values
    left = iter(values)
    return tuple(None if step is None else next(left) for step in steps)


def _read(name: str, written: object, count: int | None) -> list[Any]:
    if not isinstance(written, list):
        raise ValueError(f"{name} is {type(written).__name__}, not a list")
    if len(written) == 2 and isinstance(written[1], str):
        try:
            packed = b64decode(written[1], validate=True)
            written = [written[0], *struct.unpack(f"<{len(packed) // 4}i", packed)]
        except (ValueError, struct.error) as error:
            raise ValueError(f"{name} is not packed as 32-bit numbers in base64: {error}") from error
    if count is not None and len(written) != count:
        raise ValueError(f"{name} has {len(written)} entries, not {count}")
    return written


def _check(name: str, numbers: Sequence[Any]) -> None:
    if not set(map(type, numbers)) <= {int}:
        raise ValueError(f"{name} holds a value that is not a whole number")
    if numbers and not -LIMIT < min(numbers) <= max(numbers) < LIMIT:
        raise ValueError(f"{name} holds a number out of range")
