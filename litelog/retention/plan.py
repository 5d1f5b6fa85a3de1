"""The retention plan: which objects go, in which order, and why the others stay. Pure; times are microseconds.

Points in a replica are ordered by generation, index and offset; the time of one is the latest time shipped up to it in
that order, so no clock that was set back or forth puts one before another. What stays is told by one snapshot, the
*cut*: it and all behind it stay, with every sealed segment that one of them names, and all WAL segments and sealed
segments of their generations from its first index on. So every point from the cut on is restored from the snapshot at
or before it, as before. The cut is the newest snapshot that leaves what the policy asks for:

- The state at the window's start, and each one since, is restorable: the cut had been reached by then. Or, in the same
  generation, it was not, but names every log segment that the source still held at the window's start, as far as
  that is known: what lies below, no state in the window had.
- It is never behind the newest snapshot of the generation that readers take, nor behind the last ``min_snapshots``.

What goes, goes oldest first: WAL segments, then snapshots, then what only those named. So whatever is left when that is
interrupted, no snapshot that is there names what is not, and the one that a generation's chain begins with is there as
long as the WAL segment behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from litelog.layout import sealed_key, snapshot_key, wal_key
from litelog.position import Position
from litelog.retention.policy import grace_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from litelog.position import Generation
    from litelog.retention.facts import GenerationFacts, ReplicaFacts, SnapshotFacts
    from litelog.retention.policy import RetentionPolicy


class Kind(StrEnum):
    """What an object is."""

    SNAPSHOT = "snapshot"
    SEALED = "sealed segment"
    WAL = "WAL segment"


class Why(StrEnum):
    """Why an object stays."""

    NEWEST = "the newest snapshot, or named by it"
    WINDOW = "a point that is kept needs it"
    LAST = "the last WAL segment of its generation, or the one that ended it"
    UNKNOWN = "a snapshot that cannot be read may name it"


class Cause(StrEnum):
    """Which limit an object goes by."""

    AGE = "older than max-age"
    BYTES = "the oldest, beyond max-bytes"
    COUNT = "the oldest, beyond max-snapshots"


class Removal(NamedTuple):
    """An object that goes. ``number`` is its index, ``position`` a WAL segment's."""

    kind: Kind
    size: int
    generation: Generation
    number: int
    position: Position | None = None

    @property
    def key(self) -> str:
        """The object's."""
        if self.position is not None:
            return wal_key(self.position)
        return (snapshot_key if self.kind is Kind.SNAPSHOT else sealed_key)(self.generation, self.number)


@dataclass(slots=True)
class Total:
    """So many objects, and their bytes."""

    count: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        self.count += 1
        self.bytes += size


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What goes and what stays."""

    now: int
    window_start: int | None
    """Every state since then stays restorable; None where no age is limited."""
    cut: str | None
    """The key of the oldest snapshot that stays; None where there is none."""
    cause: Cause | None
    """The limit that put the cut there; None where nothing goes."""
    removals: tuple[Removal, ...]
    """In the order in which they go."""
    stays: dict[Why, Total] = field(default_factory=dict)
    beyond: int = 0
    """Bytes above max-bytes that stay all the same, as points that are kept need them."""

    @property
    def freed(self) -> int:
        """Bytes that the removals free."""
        return sum(removal.size for removal in self.removals)

    @property
    def left(self) -> int:
        """Bytes that stay."""
        return sum(total.bytes for total in self.stays.values())


_ALWAYS = 1 << 62
"""The last cut with which something stays that always stays."""

_NOTHING_GOES = -2
"""The cut with which everything stays: below that of what nothing needs."""


def plan_retention(facts: ReplicaFacts, policy: RetentionPolicy, now: int) -> RetentionPlan:
    """What goes from a replica by ``policy`` at the time ``now``, microseconds since 1970. Linear in the objects."""
    order = _Order(facts)
    objects = list(order.objects())
    cut, cause = _choose_cut(order, objects, policy, now) if policy.limits else (_NOTHING_GOES, None)
    removals: list[Removal] = []
    stays: dict[Why, Total] = {}
    for removal, needed_upto in objects:
        if needed_upto < cut:
            removals.append(removal)
        else:
            stays.setdefault(order.reason(removal, needed_upto), Total()).add(removal.size)
    removals.sort(key=_deletion_order)
    left = sum(total.bytes for total in stays.values())
    kept = order.snapshots[max(0, cut)] if order.snapshots else None
    return RetentionPlan(
        now=now,
        window_start=policy.window_start(now),
        cut=snapshot_key(kept.generation, kept.next) if kept is not None else None,
        cause=cause if removals else None,
        removals=tuple(removals),
        stays=stays,
        beyond=max(0, left - policy.max_bytes) if policy.max_bytes is not None else 0,
    )


def _deletion_order(removal: Removal) -> tuple[bool, bool, Generation, int, int]:
    offset = removal.position.offset if removal.position is not None else 0
    return (
        removal.kind is not Kind.WAL,
        removal.kind is Kind.SEALED,
        removal.generation,
        removal.number,
        offset,
    )


class _Order:
    """All snapshots in their one order; a cut is a number in it. What each object is needed by is a cut, too: the last
    one that it stays with."""

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
        """The last snapshot that may be a cut."""
        self._kept_upto = list(self._snapshots_kept())
        self._caught_up = {held.name: held.caught_up for held in facts.generations}
        self._hides = any(snapshot.names is None for snapshot in self.snapshots)

    def can_cut(self, number: int) -> bool:
        """Whether a snapshot is readable, and holds all that its generation continues."""
        snapshot = self.snapshots[number]
        return snapshot.names is not None and snapshot.next >= self._caught_up[snapshot.generation]

    def _reached(self) -> Iterator[int]:
        """When the log had come to each snapshot, never going back."""
        latest = 0
        for held in self.facts.generations:
            for snapshot in held.snapshots:
                latest = max(latest, snapshot.reached)
                yield latest
            latest = max(latest, held.ended)

    def _snapshots_kept(self) -> Iterator[int]:
        """The last cut that each snapshot stays with: itself, or that of the WAL segment whose chain begins with it."""
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
        """The log segments below this index of the cut's generation were in no state of the log since ``start``."""
        snapshot = self.snapshots[cut]
        drops: Iterable[int] = ()
        if snapshot.generation == self.facts.generations[-1].name:
            drops = (drop.first for drop in self.facts.drops if drop.time <= start)
        return max((snapshot.first, *drops))

    def objects(self) -> Iterator[tuple[Removal, int]]:
        """Each object, and the last cut that it stays with."""
        named = self._named()
        unknown = [self._kept_upto[n] for n, snapshot in enumerate(self.snapshots) if snapshot.names is None]
        for held in self.facts.generations:
            start = self._starts[held.name]
            firsts = _rising(held)
            before = _ALWAYS if held is self.facts.generations[-1] else start - 1
            hidden = max((number for number in unknown if number >= start), default=-1)
            for number, snapshot in enumerate(held.snapshots, start):
                upto = self._kept_upto[number]
                yield Removal(Kind.SNAPSHOT, snapshot.size, held.name, snapshot.next), upto
            for info in held.sealed:
                upto = start + bisect_right(firsts, info.index) - 1 if firsts else before
                upto = max(upto, named.get((held.name, info.index), -1), hidden)
                yield Removal(Kind.SEALED, info.size, held.name, info.index), upto
            for number, wal in enumerate(held.wal):
                at = wal.position
                upto = start + bisect_right(firsts, at.index) - 1 if firsts else before
                upto = _ALWAYS if number >= len(held.wal) - 2 else upto
                yield Removal(Kind.WAL, wal.size, held.name, at.index, at), upto

    def _named(self) -> dict[tuple[Generation, int], int]:
        """The last cut that each sealed segment stays with, by those that name it."""
        by_generation: dict[Generation, list[tuple[int, int, int]]] = {}
        for number, snapshot in enumerate(self.snapshots):
            for run in snapshot.names or ():
                by_generation.setdefault(run.generation, []).append((run.start, run.stop, self._kept_upto[number]))
        named: dict[tuple[Generation, int], int] = {}
        for held in self.facts.generations:
            runs = by_generation.get(held.name)
            if runs:
                named.update(((held.name, index), number) for index, number in _cover(held, runs))
        return named

    def reason(self, removal: Removal, needed_upto: int) -> Why:
        if needed_upto == _ALWAYS and removal.kind is Kind.WAL:
            return Why.LAST
        if needed_upto >= len(self.snapshots) - 1 and removal.kind is not Kind.WAL:
            return Why.NEWEST
        if removal.kind is Kind.SEALED and self._hides:
            return Why.UNKNOWN
        return Why.WINDOW


def _rising(held: GenerationFacts) -> list[int]:
    """The first index of each snapshot of a generation, never going back; what cannot be read is as the one before."""
    firsts: list[int] = []
    for snapshot in held.snapshots:
        before = firsts[-1] if firsts else 0
        firsts.append(before if snapshot.names is None else max(before, snapshot.first))
    return firsts


def _cover(held: GenerationFacts, runs: list[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """For each sealed segment that lies in one of ``runs`` (start, stop, number), the highest number of those.

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


def _choose_cut(
    order: _Order, objects: list[tuple[Removal, int]], policy: RetentionPolicy, now: int
) -> tuple[int, Cause | None]:
    """The cut, and the limit that put it there."""
    wanted: dict[Cause, int] = {}
    if (start := policy.window_start(now)) is not None:
        wanted[Cause.AGE] = _cut_at(order, start)
    if policy.max_snapshots is not None:
        wanted[Cause.COUNT] = len(order.snapshots) - policy.max_snapshots
    if policy.max_bytes is not None:
        wanted[Cause.BYTES] = _cut_within(objects, policy.max_bytes)
    highest = min(order.newest, len(order.snapshots) - policy.min_snapshots, _cut_at(order, grace_start(now)))
    if not wanted:
        return 0, None
    cause = max(wanted, key=lambda cause: wanted[cause])
    cut = max(0, min(wanted[cause], highest))
    while cut and not order.can_cut(cut):
        cut -= 1
    return cut, cause


def _cut_at(order: _Order, start: int) -> int:
    """The highest cut with which every state of the log since ``start`` is restorable."""
    base = 0
    for number, reached in enumerate(order.reached[: order.newest + 1]):
        if reached > start:
            break
        if order.can_cut(number):
            base = number
    if not order.snapshots or not order.can_cut(base):
        return 0  # where nothing was reached by then, all that is restorable begins at the oldest one
    floor, best = order.floor(base, start), base
    for number in range(base + 1, order.newest + 1):
        snapshot = order.snapshots[number]
        if snapshot.generation != order.snapshots[base].generation:
            break
        if order.can_cut(number) and order.snapshots[best].first < snapshot.first <= floor:
            best = number
    return best


def _cut_within(objects: list[tuple[Removal, int]], limit: int) -> int:
    """The lowest cut that leaves no more than ``limit`` bytes; one behind all where none does."""
    left = sum(removal.size for removal, _ in objects)
    freed: dict[int, int] = {}
    for removal, needed_upto in objects:
        if needed_upto != _ALWAYS:
            freed[needed_upto + 1] = freed.get(needed_upto + 1, 0) + removal.size
    if left <= limit:
        return 0
    for cut in sorted(freed):
        left -= freed[cut]
        if left <= limit:
            return cut
    return max(freed, default=0)
