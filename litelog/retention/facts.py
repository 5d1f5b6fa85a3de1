"""What a retention plan is made from: a replica's listing, what its snapshots name, and what the source has dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.objects.position import generation

if TYPE_CHECKING:
    from litelog.objects.position import Generation
    from litelog.objects.snapshot import Snapshot
    from litelog.stores.replica_client import IndexedInfo, WalSegmentInfo


@dataclass(frozen=True, slots=True, order=True)
class SealedRun:
    """Sealed segments [start, stop) of a generation: what a snapshot names, in few words."""

    generation: Generation
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """One snapshot."""

    generation: Generation
    next: int
    """The index that it stands at."""
    size: int
    """The object's bytes."""
    first: int = 0
    reached: int = 0
    """When the log had come to ``next``, microseconds since 1970: not before the last bytes that it names were shipped,
    and not before it was made."""
    names: tuple[SealedRun, ...] | None = ()
    """None: it cannot be read, so nobody knows what it names."""


@dataclass(frozen=True, slots=True)
class GenerationFacts:
    """One generation: its objects in the order of their keys."""

    name: Generation
    snapshots: tuple[SnapshotFacts, ...] = ()
    sealed: tuple[IndexedInfo, ...] = ()
    wal: tuple[WalSegmentInfo, ...] = ()
    ended: int = 0
    """The last time shipped that is known of it, microseconds since 1970."""
    caught_up: int = 0
    """Its snapshots from this index on hold all that it continues of its predecessor."""
    first: int = 0
    """The first index that it shipped as WAL segments: their chain begins with the snapshot there."""


@dataclass(frozen=True, slots=True)
class Drop:
    """At ``time`` (microseconds since 1970) the source held no log segment below ``first`` of the newest generation."""

    time: int
    first: int


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """All of a replica, generations in their order; with isolated fencing, all that is one owner's."""

    generations: tuple[GenerationFacts, ...]
    """What may go is of these."""
    latest: Generation
    """The one that readers take: no newer one has reached its end."""
    drops: tuple[Drop, ...] = ()
    """In the order of time; those of the newest generation."""
    upto: int | None = None
    """In the newest generation, only snapshots up to this index count: those durable before ownership was proved."""
    others: tuple[SnapshotFacts, ...] = ()
    """Snapshots of other isolated owners, who write on: what they name stays. Of a generation that has none yet, one
    that cannot be read: its owner may be making it, from what is there now."""


def describe_snapshot(snapshot: Snapshot, name: Generation, size: int) -> SnapshotFacts:
    """The facts of a snapshot whose object has ``size`` bytes."""
    shipped = max((entry.shipped_last for entry in snapshot.segments), default=0)
    runs: list[SealedRun] = []
    for entry in snapshot.segments:
        last = runs[-1] if runs else None
        if last is not None and (last.generation, last.stop) == (entry.generation, entry.sealed_index):
            runs[-1] = SealedRun(last.generation, last.start, last.stop + 1)
        else:
            runs.append(SealedRun(generation(entry.generation), entry.sealed_index, entry.sealed_index + 1))
    return SnapshotFacts(name, snapshot.next, size, snapshot.first, max(shipped, snapshot.created), tuple(runs))
