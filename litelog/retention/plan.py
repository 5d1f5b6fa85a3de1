"""The retention plan: which objects are deleted, in which order, and why the others stay. Pure; times are microseconds.

Points in a replica are ordered by generation, index and offset. The time of a point is the latest time shipped up to
it in that order, so a clock that was set back or forward does not reorder them. One snapshot, the *cut*, decides what
stays: the cut and all later snapshots, every sealed segment that any of these names, and all WAL segments and
sealed segments of their generations from its first index on. So every point from the cut on is restored, as before,
from the snapshot at or before it. The cut is the newest snapshot that leaves what the policy requires:

- The state at the window's start and each later one are restorable. Either the log had reached the cut by then. Or the
  cut is in the same generation, and names every log segment that the source is known to have generation at the window's
  start: no state in the window had older ones.
- It is never later than the newest snapshot of the generation that readers choose, nor later than the last
  ``min_snapshots``.

The order of deletion leaves no hole in what can still be read, wherever it is interrupted. It runs generation by
generation, oldest first: the WAL segments that the newest snapshot covers, then the older snapshots. If the whole
generation is deleted, its newest snapshot comes next, before the WAL segments after it, which cannot be read without
it. The very first WAL segment is deleted before the snapshot that its chain begins with. Sealed segments that only
deleted snapshots named come last of all.

Specified in litelog/retention/README.md.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.objects.layout import snapshot_key
from litelog.objects.position import Position
from litelog.retention.facts import KeepReason, ObjectKind, Removal
from litelog.retention.needs import LASTING, RetentionIndex
from litelog.retention.policy import grace_start
from litelog.units import MICROSECONDS

if TYPE_CHECKING:
    from litelog.objects.position import Generation
    from litelog.retention.facts import ReplicaFacts
    from litelog.retention.policy import RetentionPolicy


class PruneLimit(StrEnum):
    """The limit by which an object is deleted."""

    AGE = "older than max-age"
    BYTES = "the oldest, beyond max-bytes"
    COUNT = "the oldest, beyond max-snapshots"


def choose_cut(
    needs: RetentionIndex, objects: list[tuple[Removal, int]], policy: RetentionPolicy, now: int
) -> tuple[int, PruneLimit | None]:
    """Return the cut, and the limit that decided it."""
    cuts: dict[PruneLimit, int] = {}
    if (start := policy.window_start(now)) is not None:
        cuts[PruneLimit.AGE] = _cut_at(needs, start)
    if policy.max_snapshots is not None:
        cuts[PruneLimit.COUNT] = len(needs.snapshots) - policy.max_snapshots
    if policy.max_bytes is not None:
        cuts[PruneLimit.BYTES] = _cut_within(objects, policy.max_bytes)
    highest = min(needs.newest, len(needs.snapshots) - policy.min_snapshots, _cut_at(needs, grace_start(now)))
    if not cuts:
        return 0, None
    cause = max(cuts, key=lambda cause: cuts[cause])
    cut = max(0, min(cuts[cause], highest))
    while cut and not needs.can_cut(cut):
        cut -= 1
    return cut, cause


def _cut_at(needs: RetentionIndex, start: int) -> int:
    """Return the highest cut with which every state of the log since ``start`` is restorable."""
    base = 0
    for number, reached in enumerate(needs.reached[: needs.newest + 1]):
        if reached > start:
            break
        if needs.can_cut(number):
            base = number
    if not needs.snapshots or not needs.can_cut(base):
        return 0  # the log had reached no snapshot by then, so all restorable states begin at the oldest one
    floor, best = needs.floor(base, start), base
    for number in range(base + 1, needs.newest + 1):
        snapshot = needs.snapshots[number]
        if snapshot.generation != needs.snapshots[base].generation:
            break
        if needs.can_cut(number) and needs.snapshots[best].first < snapshot.first <= floor:
            best = number
    return best


def _cut_within(objects: list[tuple[Removal, int]], limit: int) -> int:
    """Return the lowest cut that leaves at most ``limit`` bytes; if none does, the cut that frees the most."""
    left = sum(removal.size for removal, _ in objects)
    freed: dict[int, int] = {}
    for removal, last_cut in objects:
        if last_cut < LASTING:
            freed[last_cut + 1] = freed.get(last_cut + 1, 0) + removal.size
    if left <= limit:
        return 0
    for cut in sorted(freed):
        left -= freed[cut]
        if left <= limit:
            return cut
    return max(freed, default=0)


@dataclass(slots=True)
class Total:
    """A number of objects, and their bytes."""

    count: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        self.count += 1
        self.bytes += size


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """Which objects are deleted, and which stay."""

    now: int
    window_start: int | None
    """Every state since then stays restorable; None if no age is limited."""
    cut: str | None
    """The key of the oldest snapshot that stays; None if there is none."""
    cause: PruneLimit | None
    """The limit that decided the cut; None if nothing is deleted."""
    removals: tuple[Removal, ...]
    """The objects to delete, in the order of deletion."""
    stays: dict[KeepReason, Total] = field(default_factory=dict)
    beyond: int = 0
    """Bytes above max-bytes that stay because kept points need them."""

    @property
    def freed(self) -> int:
        """Bytes that the removals free."""
        return sum(removal.size for removal in self.removals)

    @property
    def left(self) -> int:
        """Bytes that stay."""
        return sum(total.bytes for total in self.stays.values())


_NOTHING_DELETED = -2
"""The cut with which everything stays: it is below the last cut of objects that nothing needs."""


def plan_retention(
    facts: ReplicaFacts, policy: RetentionPolicy, now: int, wal_retention: float | None = None
) -> RetentionPlan:
    """Return what ``policy`` deletes in a replica at ``now``, in microseconds since 1970. Linear in the objects.

    ``wal_retention``: also delete WAL segments that a snapshot has covered for that many seconds, which a daemon with
    ``no-delete`` leaves; at least the grace. None: leave them to the owner.
    """
    needs = RetentionIndex(facts)
    objects = list(needs.objects())
    cut, cause = choose_cut(needs, objects, policy, now) if policy.limits else (_NOTHING_DELETED, None)
    covered = {} if wal_retention is None else _find_covered(facts, now - int(wal_retention * MICROSECONDS), now)
    removals: list[Removal] = []
    stays: dict[KeepReason, Total] = {}
    for removal, last_cut in objects:
        is_covered = removal.kind is ObjectKind.WAL and removal.number < covered.get(removal.generation, 0)
        if last_cut < cut or (is_covered and last_cut < LASTING):
            removals.append(removal)
        else:
            stays.setdefault(needs.reason(removal, last_cut), Total()).add(removal.size)
    removals.sort(key=_DeletionOrder(facts))
    left = sum(total.bytes for total in stays.values())
    kept = needs.snapshots[max(0, cut)] if needs.snapshots else None
    return RetentionPlan(
        now=now,
        window_start=policy.window_start(now),
        cut=snapshot_key(kept.generation, kept.next) if kept is not None else None,
        cause=cause if removals else None,
        removals=tuple(removals),
        stays=stays,
        beyond=max(0, left - policy.max_bytes) if policy.max_bytes is not None else 0,
    )


def _find_covered(facts: ReplicaFacts, until: int, now: int) -> dict[Generation, int]:
    """Return, for each generation, the index below which a snapshot covered its WAL segments at the time ``until``, and
    at the start of the grace."""
    start = min(until, grace_start(now))
    return {
        generation.name: max(
            (each.next for each in generation.snapshots if each.names is not None and each.reached <= start), default=0
        )
        for generation in facts.generations
    }


class _DeletionOrder:
    """Sorts removals into the order of deletion."""

    def __init__(self, facts: ReplicaFacts) -> None:
        self._covered = {
            generation.name: generation.snapshots[-1].next for generation in facts.generations if generation.snapshots
        }
        self._starts = {Position(generation.name, generation.first, 0) for generation in facts.generations}

    def __call__(self, removal: Removal) -> tuple[bool, Generation, int, int, int]:
        offset = removal.position.offset if removal.position is not None else 0
        return (removal.kind is ObjectKind.SEALED, removal.generation, self._turn(removal), removal.number, offset)

    def _turn(self, removal: Removal) -> int:
        is_covered = removal.number < self._covered.get(removal.generation, 0)
        if removal.kind is ObjectKind.SNAPSHOT:
            return 1 if is_covered else 2
        return 0 if is_covered or removal.position in self._starts else 3
