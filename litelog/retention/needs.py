"""Computes, for each object of a replica, the last cut with which the object stays."""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING

from litelog.objects.position import Position
from litelog.objects.wal_segment import LASTING_SEGMENTS
from litelog.retention.facts import KeepReason, ObjectKind, Removal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from litelog.objects.position import Generation
    from litelog.retention.facts import GenerationFacts, ReplicaFacts, SnapshotFacts

LASTING = 1 << 62
"""Cuts from here on stand for objects that stay with any cut."""

BY_OTHERS = LASTING
"""The last cut of objects that other isolated owners name, or may name."""

ALWAYS = LASTING + 1
"""The last cut of objects that always stay."""


class RetentionIndex:
    """All snapshots in one order, in which a cut is a number. For each object there is a last cut with which it
    stays."""

    def __init__(self, facts: ReplicaFacts) -> None:
        self.facts = facts
        self.snapshots: list[SnapshotFacts] = [
            snapshot for generation in facts.generations for snapshot in generation.snapshots
        ]
        self.reached = list(self._reached())
        self._starts: dict[Generation, int] = {}
        start = 0
        for generation in facts.generations:
            self._starts[generation.name] = start
            start += len(generation.snapshots)
        self.newest = self._newest()
        """The number of the last snapshot that may be a cut."""
        self._last_cuts = list(self._snapshot_cuts())
        self._caught_up = {generation.name: generation.caught_up for generation in facts.generations}
        self._begins_unknown = max((other.generation for other in facts.others if other.names is None), default="")
        self._hides = any(snapshot.names is None for snapshot in self.snapshots)

    def can_cut(self, number: int) -> bool:
        """Whether a snapshot is readable, and holds all that its generation continues."""
        snapshot = self.snapshots[number]
        return snapshot.names is not None and snapshot.next >= self._caught_up[snapshot.generation]

    def _reached(self) -> Iterator[int]:
        """Yield the time at which the log had reached each snapshot. The times never go back."""
        latest = 0
        for generation in self.facts.generations:
            for snapshot in generation.snapshots:
                latest = max(latest, snapshot.reached)
                yield latest
            latest = max(latest, generation.ended)

    def _snapshot_cuts(self) -> Iterator[int]:
        """Yield the last cut with which each snapshot stays: its own, or that of the WAL segment whose chain begins
        with it."""
        for generation in self.facts.generations:
            start = self._starts[generation.name]
            for number, snapshot in enumerate(generation.snapshots, start):
                begins = snapshot.next == generation.first and bool(generation.wal)
                if begins and generation.wal[0].position == Position(generation.name, generation.first, 0):
                    yield start + bisect_right(_rising(generation), snapshot.next) - 1
                else:
                    yield number

    def _newest(self) -> int:
        facts = self.facts
        last = 0
        for generation in facts.generations:
            if generation.name > facts.latest:
                break
            is_newest = generation is facts.generations[-1]
            for number, snapshot in enumerate(generation.snapshots, self._starts[generation.name]):
                if not (is_newest and facts.last_snapshot is not None and snapshot.next > facts.last_snapshot):
                    last = number
        return last

    def floor(self, cut: int, start: int) -> int:
        """Return an index of the cut's generation. No state of the log since ``start`` had log segments below it."""
        snapshot = self.snapshots[cut]
        drops: Iterable[int] = ()
        if snapshot.generation == self.facts.generations[-1].name:
            drops = (drop.first for drop in self.facts.drops if drop.time <= start)
        return max((snapshot.first, *drops))

    def objects(self) -> Iterator[tuple[Removal, int]]:
        """Yield each object, and the last cut with which it stays."""
        named = self._named()
        unknown = [self._last_cuts[n] for n, snapshot in enumerate(self.snapshots) if snapshot.names is None]
        for generation in self.facts.generations:
            start = self._starts[generation.name]
            firsts = _rising(generation)
            before = ALWAYS if generation is self.facts.generations[-1] else start - 1
            hidden = max((number for number in unknown if number >= start), default=-1)
            for number, snapshot in enumerate(generation.snapshots, start):
                last_cut = self._last_cuts[number]
                yield Removal(ObjectKind.SNAPSHOT, snapshot.size, generation.name, snapshot.next), last_cut
            for info in generation.sealed:
                last_cut = start + bisect_right(firsts, info.index) - 1 if firsts else before
                last_cut = max(last_cut, named.get((generation.name, info.index), -1), hidden)
                if generation.name <= self._begins_unknown:
                    last_cut = max(last_cut, BY_OTHERS)
                yield Removal(ObjectKind.SEALED, info.size, generation.name, info.index), last_cut
            for number, wal in enumerate(generation.wal):
                at = wal.position
                last_cut = start + bisect_right(firsts, at.index) - 1 if firsts else before
                last_cut = ALWAYS if number >= len(generation.wal) - LASTING_SEGMENTS else last_cut
                yield Removal(ObjectKind.WAL, wal.size, generation.name, at.index, at), last_cut

    def _named(self) -> dict[tuple[Generation, int], int]:
        """Return, for each sealed segment, the last cut with which it stays because of a snapshot that names it."""
        by_generation: dict[Generation, list[tuple[int, int, int]]] = {}
        naming = chain(
            zip(self.snapshots, self._last_cuts, strict=True), ((other, BY_OTHERS) for other in self.facts.others)
        )
        for snapshot, last_cut in naming:
            for run in snapshot.names or ():
                by_generation.setdefault(run.generation, []).append((run.start, run.stop, last_cut))
        named: dict[tuple[Generation, int], int] = {}
        for generation in self.facts.generations:
            runs = by_generation.get(generation.name)
            if runs:
                named.update(((generation.name, index), number) for index, number in _cover(generation, runs))
        return named

    def reason(self, removal: Removal, last_cut: int) -> KeepReason:
        """Return why an object stays. ``last_cut``: the last cut with which it does."""
        if last_cut == ALWAYS and removal.kind is ObjectKind.WAL:
            return KeepReason.LAST
        if last_cut == BY_OTHERS:
            return KeepReason.OTHERS
        if last_cut >= len(self.snapshots) - 1 and removal.kind is not ObjectKind.WAL:
            return KeepReason.NEWEST
        if removal.kind is ObjectKind.SEALED and self._hides:
            return KeepReason.UNKNOWN
        return KeepReason.WINDOW


def _rising(generation: GenerationFacts) -> list[int]:
    """Return the first index of each snapshot of a generation, never going back. An unreadable one repeats the one
    before."""
    firsts: list[int] = []
    for snapshot in generation.snapshots:
        before = firsts[-1] if firsts else 0
        firsts.append(before if snapshot.names is None else max(before, snapshot.first))
    return firsts


def _cover(generation: GenerationFacts, runs: list[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield each sealed segment in any of ``runs`` (start, stop, number), with the highest number of those runs.

    One sweep, with a heap of the runs that have begun, the highest number first. A run that has ended is removed when
    it comes to the top.
    """
    runs = sorted(runs)
    at = 0
    covering: list[tuple[int, int]] = []
    for info in generation.sealed:
        while at < len(runs) and runs[at][0] <= info.index:
            heappush(covering, (-runs[at][2], runs[at][1]))
            at += 1
        while covering and covering[0][1] <= info.index:
            heappop(covering)
        if covering:
            yield info.index, -covering[0][0]
