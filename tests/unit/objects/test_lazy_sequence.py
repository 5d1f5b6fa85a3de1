"""Sequences that make their items when they are asked for them."""

from __future__ import annotations

import pickle
from typing import Any

from litelog.objects.lazy_sequence import LazySequence


class Squares(LazySequence[int]):
    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        return tuple(each * each for each in range(self._count))[number]


def test_it_equals_a_tuple_of_its_items_and_has_its_hash() -> None:
    assert Squares(3) == (0, 1, 4) == Squares(3)
    assert hash(Squares(3)) == hash((0, 1, 4))
    assert Squares(3) != (0, 1)
    assert Squares(3) != (0, 1, 5)
    assert Squares(3) != Squares(4)
    assert Squares(3) != [0, 1, 4]


def test_it_is_pickled_as_a_tuple() -> None:
    assert type(pickle.loads(pickle.dumps(Squares(3)))) is tuple
    assert pickle.loads(pickle.dumps(Squares(3))) == (0, 1, 4)
