"""LazySequence: items that are made when a caller takes them; it compares and pickles as a tuple of them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import eq
from typing import TypeVar

Item_co = TypeVar("Item_co", covariant=True)


class LazySequence(Sequence[Item_co]):
    """A sequence that equals a tuple of the same items, and that pickles as one."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | LazySequence):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, (list(self),)
