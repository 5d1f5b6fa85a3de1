"""Random replicas of one log, of several generations, each sealed and pruned up to any point."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.builders.replica_builder import GenerationBuilder, LogSegment, ReplicaBuilder, make_log

if TYPE_CHECKING:
    from litelog.objects.snapshot_entries import SnapshotEntry

SHAPES = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=5)
"""The number of records of each commit, by log segment."""


def draw_replica(data: Any, shape: list[list[int]], owners: int = 3) -> tuple[ReplicaBuilder, list[LogSegment]]:
    """A replica, and the log that its last owner shipped to the end.

    Each owner begins with some sealed log segments, some of them sealed by its predecessor. It ships up to one point,
    and seals, writes snapshots and prunes up to others."""
    builder, log = ReplicaBuilder(), make_log(shape)
    for left in reversed(range(data.draw(st.integers(1, owners), "owners"))):
        shift = data.draw(st.integers(0, 2), "shift") if builder.generations else 0
        _add_owner(data, builder, log, shift, is_last=left == 0)
    return builder, log


def _add_owner(data: Any, builder: ReplicaBuilder, log: list[LogSegment], shift: int, *, is_last: bool) -> None:
    before = builder.generations[-1] if builder.generations else None
    zero = (zero_of(before) if before is not None else 0) + shift
    sealed = data.draw(st.integers(0, len(log)), "sealed at first")
    built = builder.add(builder.claim(first=zero + sealed, shift=shift), start=False)
    built.start([_seal_first(data, built, before, zero + number, log[number], shift) for number in range(sealed)])
    whole = len(log) if is_last else data.draw(st.integers(sealed, len(log)), "finished")
    for segment in log[sealed:whole]:
        if data.draw(st.integers(0, 4)) == 0:
            built.stand_for_sealed(segment, frame_commits=data.draw(st.integers(1, 3)))
        else:
            final = data.draw(st.sampled_from(["last", "empty"]))
            built.ship_segment(segment, data.draw(st.sets(st.integers(0, 3))), final=final)
    if whole < len(log):
        built.ship_segment(log[whole], final=None, upto=data.draw(st.integers(0, len(log[whole].ends))))
    for covered in sorted(data.draw(st.sets(st.integers(zero + sealed, zero + whole), max_size=2), "snapshots")):
        if covered > zero + sealed:
            built.snapshot(covered)
            built.prune(data.draw(st.integers(zero + sealed, covered), "pruned"))


def zero_of(built: GenerationBuilder) -> int:
    """The index that the log's first log segment has in a generation."""
    return min([*built.entries, *built.shipped, built.claim.first])


def _seal_first(
    data: Any, built: GenerationBuilder, before: GenerationBuilder | None, index: int, segment: LogSegment, shift: int
) -> SnapshotEntry:
    """The entry of a log segment that was finished before: sealed by this owner, or by its predecessor."""
    older = before.entries.get(index - shift) if before is not None else None
    if older is not None and data.draw(st.booleans(), "refer"):
        return replace(older, index=index)
    return built.seal_unshipped(index, segment, frame_commits=data.draw(st.integers(1, 3)))
