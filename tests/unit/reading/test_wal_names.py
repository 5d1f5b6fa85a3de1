"""The names of WAL segments as columns behave as a tuple of their values does."""

from __future__ import annotations

from random import Random

import pytest

from litelog.objects.position import Generation, Position
from litelog.reading.wal_names import WalNames
from litelog.stores.replica_client import WalSegmentInfo

G = Generation("0000000100000000")


@pytest.mark.parametrize("count", [0, 1, 7])
def test_names_are_a_sequence_of_their_values(count: int) -> None:
    random = Random(count)
    wanted = tuple(
        WalSegmentInfo(Position(G, random.getrandbits(64), random.getrandbits(64)), random.getrandbits(40))
        for _ in range(count)
    )
    names = WalNames(G, wanted)
    assert names == wanted
    assert [*names] == [*wanted]
    assert len(names) == count
    assert names[2:5] == wanted[2:5]
    assert names[-3:] == wanted[-3:]
    assert [*reversed(names)] == [*reversed(wanted)]
    assert hash(names) == hash(wanted)
    assert names != (*wanted, WalSegmentInfo(Position(G, 0, 0), 1))
    assert repr(names) == repr(wanted)
    with pytest.raises(IndexError):
        names[count]
