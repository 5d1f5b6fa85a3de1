"""Two generations of one log. Its log segments have different indexes in each."""

from __future__ import annotations

from tests.builders.replica_builder import ReplicaBuilder, make_log

LOG = make_log([[2, 1], [3], [1, 1], [2], [1, 2]])


def grown(shift: int, *, claimed: int | None = None, final: bool = False) -> ReplicaBuilder:
    """Two generations. The first began at LOG[``shift``], and ended in LOG[2]; the second holds the whole log."""
    builder = ReplicaBuilder()
    first = builder.add()
    for segment in LOG[shift:2]:
        first.ship_segment(segment)
    first.ship_segment(LOG[2], final="last" if final else None, upto=None if final else 1)
    second = builder.add(builder.claim(shift=shift if claimed is None else claimed))
    for segment in LOG[:4]:
        second.ship_segment(segment)
    second.ship_segment(LOG[4], final=None)
    return builder


def sealed(shift: int, *, claimed: int | None = None) -> ReplicaBuilder:
    """As ``grown``, with every log segment except the last of each generation sealed and pruned."""
    builder = grown(shift, claimed=claimed)
    first, second = builder.generations
    if shift < 2:
        first.snapshot(2 - shift)
        first.prune(2 - shift)
    second.snapshot(4)
    second.prune(4)
    return builder
