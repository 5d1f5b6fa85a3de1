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
    """All snapshots in one order; a cut is a number in it. For each object there is a cut, too: the last one with which
    the object stays."""

    def __init__(self, facts: ReplicaFacts) -> None:
        self.facts = facts
        self.snapshots: list[SnapshotFacts] = [one for held in facts.generations for one in held.snapshots]
        self.reached = list(self._reached())
        self._starts: dict[Generation, int] = {}
        start = 0
        for held in facts.generations:
            self._starts[held.name] = start
            start += len(held.snapshots)
        self.newest = self._newest()
        """The number of the last snapshot that may be a cut."""
        self._kept_upto = list(self._snapshots_kept())
        self._caught_up = {held.name: held.caught_up for held in facts.generations}
        self._begins_unknown = max((other.generation for other in facts.others if other.names is None), default="")
        self._hides = any(snapshot.names is None for snapshot in self.snapshots)

    def can_cut(self, number: int) -> bool:
        """Whether a snapshot is readable, and holds all that its generation continues."""
        snapshot = self.snapshots[number]
        return snapshot.names is not None and snapshot.next >= self._caught_up[snapshot.generation]

    def _reached(self) -> Iterator[int]:
        """Yield when the log had reached each snapshot; times never go back."""
        latest = 0
        for held in self.facts.generations:
            for snapshot in held.snapshots:
                latest = max(latest, snapshot.reached)
                yield latest
            latest = max(latest, held.ended)

    def _snapshots_kept(self) -> Iterator[int]:
        """Yield the last cut with which each snapshot stays: its own, or that of the WAL segment whose chain begins
        with it."""
        for held in self.facts.generations:
            start = self._starts[held.name]
            for number, snapshot in enumerate(held.snapshots, start):
                begins = snapshot.next == held.first and bool(held.wal)
                if begins and held.wal[0].position == Position(held.name, held.first, 0):
                    yield start + bisect_right(_rising(held), snapshot.next) - 1
                else:
                    yield number

    def _newest(self) -> int:
        facts = self.facts
        last = 0
        for held in facts.generations:
            if held.name > facts.latest:
                break
            is_newest = held is facts.generations[-1]
            for number, snapshot in enumerate(held.snapshots, self._starts[held.name]):
                if not (is_newest and facts.upto is not None and snapshot.next > facts.upto):
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
        unknown = [self._kept_upto[n] for n, snapshot in enumerate(self.snapshots) if snapshot.names is None]
        for held in self.facts.generations:
            start = self._starts[held.name]
            firsts = _rising(held)
            before = ALWAYS if held is self.facts.generations[-1] else start - 1
            hidden = max((number for number in unknown if number >= start), default=-1)
            for number, snapshot in enumerate(held.snapshots, start):
                upto = self._kept_upto[number]
                yield Removal(ObjectKind.SNAPSHOT, snapshot.size, held.name, snapshot.next), upto
            for info in held.sealed:
                upto = start + bisect_right(firsts, info.index) - 1 if firsts else before
                upto = max(upto, named.get((held.name, info.index), -1), hidden)
                if held.name <= self._begins_unknown:
                    upto = max(upto, BY_OTHERS)
                yield Removal(ObjectKind.SEALED, info.size, held.name, info.index), upto
            for number, wal in enumerate(held.wal):
                at = wal.position
                upto = start + bisect_right(firsts, at.index) - 1 if firsts else before
                upto = ALWAYS if number >= len(held.wal) - LASTING_SEGMENTS else upto
                yield Removal(ObjectKind.WAL, wal.size, held.name, at.index, at), upto

    def _named(self) -> dict[tuple[Generation, int], int]:
        """Return, for each sealed segment, the last cut with which it stays because of a snapshot that names it."""
        by_generation: dict[Generation, list[tuple[int, int, int]]] = {}
        naming = chain(
            zip(self.snapshots, self._kept_upto, strict=True), ((other, BY_OTHERS) for other in self.facts.others)
        )
        for snapshot, upto in naming:
            for run in snapshot.names or ():
                by_generation.setdefault(run.generation, []).append((run.start, run.stop, upto))
        named: dict[tuple[Generation, int], int] = {}
        for held in self.facts.generations:
            runs = by_generation.get(held.name)
            if runs:
                named.update(((held.name, index), number) for index, number in _cover(held, runs))
        return named

    def reason(self, removal: Removal, needed_upto: int) -> KeepReason:
        if needed_upto == ALWAYS and removal.kind is ObjectKind.WAL:
            return KeepReason.LAST
        if needed_upto == BY_OTHERS:
            return KeepReason.OTHERS
        if needed_upto >= len(self.snapshots) - 1 and removal.kind is not ObjectKind.WAL:
            return KeepReason.NEWEST
        if removal.kind is ObjectKind.SEALED and self._hides:
            return KeepReason.UNKNOWN
        return KeepReason.WINDOW


def _rising(held: GenerationFacts) -> list[int]:
    """Return the first index of each snapshot of a generation, never going back. An unreadable one repeats the one
    before."""
    firsts: list[int] = []
    for snapshot in held.snapshots:
        before = firsts[-1] if firsts else 0
        firsts.append(before if snapshot.names is None else max(before, snapshot.first))
    return firsts


def _cover(held: GenerationFacts, runs: list[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield each sealed segment in one of ``runs`` (start, stop, number), with the highest number of those runs.

    A sweep with one stack: numbers that a higher one hides until its end are not looked at again.
    """
    runs = sorted(runs)
    at = 0
    covering: list[tuple[int, int]] = []
    for info in held.sealed:
        while at < len(runs) and runs[at][0] <= info.index:
            heappush(covering, (-runs[at][2], runs[at][1]))
            at += 1
        while covering and covering[0][1] <= info.index:
            heappop(covering)
        if covering:
            yield info.index, -covering[0][0]
