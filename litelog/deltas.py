"""Columns of whole numbers, written as the difference of each from the one before: short in JSON, and quick to read."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

Column: TypeAlias = tuple[int, ...]
Gapped: TypeAlias = tuple[int | None, ...]
"""A column in which some have no value."""

_Numbers = TypeVar("_Numbers", bound="Sequence[int]")

LIMIT = 1 << 64
"""What every number of a column, and every sum on the way, stays below."""


def differences(column: Sequence[int]) -> list[int]:
    """Each number less the one before it; the first less 0."""
    return [after - before for before, after in pairwise((0, *column))]


def gapped_differences(column: Sequence[int | None]) -> list[int | None]:
    """As ``differences``, of those that have a value; the others stay None."""
    found: list[int | None] = []
    before = 0
    for value in column:
        found.append(None if value is None else value - before)
        before = before if value is None else value
    return found


def read_plain(name: str, written: object, count: int | None = None) -> Column:
    """A column that was written as it is; ValueError if it is none, or has not ``count`` numbers."""
    _check_list(name, written, count)
    assert isinstance(written, list)
    _check_numbers(name, written)
    return tuple(written)


def read_differences(name: str, written: object, count: int | None = None) -> Column:
    """The column that ``differences`` made ``written`` of; ValueError as ``read_plain``."""
    return _in_range(name, tuple(accumulate(read_plain(name, written, count))))


def read_gapped(name: str, written: object, count: int | None = None) -> Gapped:
    """The column that ``gapped_differences`` made ``written`` of; ValueError as ``read_plain``."""
    _check_list(name, written, count)
    assert isinstance(written, list)
    known = [step for step in written if step is not None]
    _check_numbers(name, known)
    values = _in_range(name, tuple(accumulate(known)))
    if len(known) == len(written):
        return values
    left = iter(values)
    return tuple(None if step is None else next(left) for step in written)


def _check_list(name: str, written: object, count: int | None) -> None:
    if not isinstance(written, list):
        raise ValueError(f"{name} is {type(written).__name__}, not a list")
    if count is not None and len(written) != count:
        raise ValueError(f"{name} has {len(written)} entries, not {count}")


def _check_numbers(name: str, numbers: Sequence[object]) -> None:
    if not set(map(type, numbers)) <= {int}:
        raise ValueError(f"{name} holds what is no whole number")
    _in_range(name, cast("Sequence[int]", numbers))


def _in_range(name: str, numbers: _Numbers) -> _Numbers:
    if numbers and not -LIMIT < min(numbers) <= max(numbers) < LIMIT:
        raise ValueError(f"{name} holds a number out of range")
    return numbers
