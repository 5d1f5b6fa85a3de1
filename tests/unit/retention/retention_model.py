"""A model of a replica that its owners make by a list of events, and of the restores that the remaining objects allow.
It does not know how retention chooses objects. For each point of the past, it checks that all needed objects exist."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from litelog.objects.layout import sealed_key, snapshot_key, wal_key
from litelog.objects.position import Generation, Position, new_generation
from litelog.retention.facts import GenerationFacts, ReplicaFacts, SealedRange, SnapshotFacts, SourceTrim
from litelog.stores.replica_client import IndexedInfo, WalSegmentInfo

SECOND = 1_000_000
HOUR = 3600 * SECOND
WAL_BYTES = 10
SEALED_BYTES = 100
SNAPSHOT_BYTES = 7


@dataclass(frozen=True)
class Point:
    """A state of the log: from ``floor`` to the end of the WAL segment at ``offset`` of ``index``."""

    generation: int
    index: int
    offset: int
    floor: int
    time: int
    """The latest time that was shipped."""


@dataclass
class ModelSnapshot:
    next: int
    first: int
    reached: int
    entries: dict[int, tuple[int, int]]
    """(generation, index) of the sealed segment of each index."""


@dataclass
class ModelGeneration:
    name: Generation
    first: int
    floor: int
    caught_up: int
    index: int = 0
    offset: int = 0
    shipped: int = 0
    snapshots: list[ModelSnapshot] = field(default_factory=list)
    sealed: set[int] = field(default_factory=set)
    wal: dict[tuple[int, int], int] = field(default_factory=dict)
    """The times shipped, by index and offset."""
    ended: bool = False


class Model:
    """One log, one replica, several owners. ``now`` is the wall clock, which may be set."""

    def __init__(self) -> None:
        self.now = 1_000_000 * HOUR
        self.latest_time = 0
        self.points: list[Point] = []
        self.drops: list[SourceTrim] = []
        self.generations: list[ModelGeneration] = []
        self.dropped: list[tuple[int, SourceTrim]] = []
        """All drops, with the number of the generation."""
        self.deleted: set[str] = set()
        self._begin(0, 0, 0)

    @property
    def current(self) -> ModelGeneration:
        return self.generations[-1]

    def _begin(self, first: int, floor: int, caught_up: int) -> None:
        name = new_generation(len(self.generations) + 1, 7)
        made = ModelGeneration(name, first, floor, caught_up, index=first, shipped=self.now)
        self.generations.append(made)
        self.drops = []

    def snapshot_first(self, entries: dict[int, tuple[int, int]]) -> None:
        made = self.current
        made.snapshots.append(ModelSnapshot(made.first, min(entries, default=made.first), self.now, entries))

    def ship(self, seconds: int) -> None:
        """Ship one WAL segment after that much time."""
        self.now += seconds * SECOND
        made = self.current
        made.shipped = max(made.shipped, self.now)
        made.wal[made.index, made.offset] = made.shipped
        made.offset += 1
        self.latest_time = max(self.latest_time, made.shipped)
        self.points.append(Point(len(self.generations) - 1, made.index, made.offset, made.floor, self.latest_time))

    def finish(self) -> None:
        """Finish and seal the log segment, unless it is empty."""
        made = self.current
        if made.offset:
            made.sealed.add(made.index)
            made.index, made.offset = made.index + 1, 0

    def drop(self) -> None:
        """Have the source lose its oldest log segment, if two are left."""
        made = self.current
        if made.floor < made.index - 1:
            made.floor += 1
            self.drops.append(SourceTrim(max(self.now, made.shipped), made.floor))
            self.dropped.append((len(self.generations) - 1, self.drops[-1]))

    def snapshot(self, first: int) -> None:
        """Put a snapshot of the segments from ``first`` on, if anything was sealed."""
        made = self.current
        last = made.snapshots[-1]
        if made.index == last.next:
            return
        here = len(self.generations) - 1
        entries = {index: place for index, place in last.entries.items() if index >= first}
        entries |= {index: (here, index) for index in range(last.next, made.index)}
        shipped = max(made.wal.get((made.index - 1, 0), 0), made.shipped)
        reached = max(self.now, shipped, last.reached)
        made.snapshots.append(ModelSnapshot(made.index, min(entries), reached, entries))

    def cover(self) -> None:
        """Delete the WAL segments that the newest snapshot covers."""
        made = self.current
        behind = made.snapshots[-1].next
        for place in sorted(made.wal)[:-1]:
            if place[0] < behind:
                self.deleted.add(wal_key(Position(made.name, *place)))

    def succeed(self, *, diverged: bool) -> None:
        """Begin a new owner's generation, which refers to the sealed segments or begins another history."""
        old = self.current
        here = len(self.generations) - 1
        old.wal[old.index, old.offset] = max(self.now, old.shipped)  # the terminal
        old.ended = True
        self.latest_time = max(self.latest_time, old.wal[old.index, old.offset])
        if diverged:
            self._begin(0, 0, 0)
            self.snapshot_first({})
            self.ship(1)
            return
        newest = old.snapshots[-1].entries
        entries = {index: newest[index] for index in newest if index >= old.floor}
        end, offset = old.index, old.offset
        first = old.snapshots[-1].next
        self._begin(first, old.floor, end + (offset > 0))
        self.snapshot_first(entries)
        for index in range(first, end):  # the tail goes up again, to where the old one ended
            self._catch_up(index)
            self.finish()
        if offset:
            self._catch_up(end)
        made = self.current
        self.points.append(Point(here + 1, made.index, made.offset, made.floor, self.latest_time))

    def _catch_up(self, index: int) -> None:
        made = self.current
        assert made.index == index
        self.now += 600 * SECOND
        made.shipped = max(made.shipped, self.now)
        made.wal[index, made.offset] = made.shipped
        made.offset += 1
        self.latest_time = max(self.latest_time, made.shipped)

    def facts(self) -> ReplicaFacts:
        return ReplicaFacts(tuple(self._facts(made) for made in self.generations), self.current.name, tuple(self.drops))

    def _facts(self, made: ModelGeneration) -> GenerationFacts:
        snapshots = [one for one in made.snapshots if snapshot_key(made.name, one.next) not in self.deleted]
        sealed = sorted(index for index in made.sealed if sealed_key(made.name, index) not in self.deleted)
        wal = [place for place in sorted(made.wal) if wal_key(Position(made.name, *place)) not in self.deleted]
        return GenerationFacts(
            made.name,
            tuple(
                SnapshotFacts(made.name, one.next, SNAPSHOT_BYTES, one.first, one.reached, self._runs(one))
                for one in snapshots
            ),
            tuple(IndexedInfo(made.name, index, SEALED_BYTES) for index in sealed),
            tuple(WalSegmentInfo(Position(made.name, *place), WAL_BYTES) for place in wal),
            max(made.wal.values()) if made.ended else 0,
            made.caught_up,
            made.first,
        )

    def _runs(self, one: ModelSnapshot) -> tuple[SealedRange, ...]:
        return tuple(
            SealedRange(self.generations[place].name, index, index + 1) for place, index in one.entries.values()
        )

    def floor_at(self, point: Point, time: int) -> Point:
        """The state at ``time`` if ``point`` was shipped last: the source may have dropped more since."""
        firsts = [drop.first for made, drop in self.dropped if made == point.generation and drop.time <= time]
        return replace(point, floor=max([point.floor, *firsts]))

    def lacks(self, point: Point, gone: set[str]) -> str | None:
        """An object that a restore to ``point`` lacks; None if it lacks none."""
        made = self.generations[point.generation]
        reasons = []
        for one in made.snapshots:
            key = snapshot_key(made.name, one.next)
            reason = key if key in gone else self._lacks_from(one, point, gone)
            if reason is None:
                return None
            reasons.append(reason)
        return ", ".join(reasons) or "no snapshot"

    def _lacks_from(self, one: ModelSnapshot, point: Point, gone: set[str]) -> str | None:
        made = self.generations[point.generation]
        if one.first > point.floor:
            return f"{one.first} is above {point.floor}"
        for index in range(point.floor, point.index + 1):
            if index in one.entries:
                where, at = one.entries[index]
                key = sealed_key(self.generations[where].name, at)
                if key in gone:
                    return key
                continue
            if index in made.sealed and sealed_key(made.name, index) not in gone:
                continue
            offsets = [offset for i, offset in made.wal if i == index]
            needed = offsets if index < point.index else [offset for offset in offsets if offset < point.offset]
            for offset in needed:
                if (key := wal_key(Position(made.name, index, offset))) in gone:
                    return key
        return None
