"""Retention policies: how much of its past a replica keeps, and where a new snapshot begins under policy ``keep``.

What the newest snapshot names is never deleted. So before the owner makes its next snapshot, it leaves out what the
limits free; once that snapshot is durable and no remaining one names it, pruning deletes it. Only what the source has
dropped is ever left out: a restore holds all that the source holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.snapshot import Snapshot
    from litelog.retention.facts import Drop

GRACE_SECONDS = 3600
"""No point younger than this goes, whatever a policy says: who was suspended for longer knows nothing."""

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The limits. One that is None is none; where there are several, the first to be reached counts."""

    max_age: float | None = None
    """Seconds. Every state that the log was in since then can be restored."""
    max_bytes: int | None = None
    """Bytes of the replica's objects; the oldest go first."""
    max_snapshots: int | None = None
    min_snapshots: int = 1
    """So many of the newest snapshots stay, with all that they name, whatever the limits say."""

    def __post_init__(self) -> None:
        """ValueError for limits that leave nothing, or contradict each other."""
        if self.min_snapshots < 1:
            raise ValueError("min-snapshots must be at least 1")
        if self.max_age is not None and self.max_age < GRACE_SECONDS:
            raise ValueError("max-age must be at least 1h")
        if self.max_bytes is not None and self.max_bytes <= 0:
            raise ValueError("max-bytes must be more than 0")
        if self.max_snapshots is not None and self.max_snapshots < self.min_snapshots:
            raise ValueError(f"max-snapshots must be at least min-snapshots, which is {self.min_snapshots}")

    @property
    def limits(self) -> bool:
        """Whether there is any limit."""
        return (self.max_age, self.max_bytes, self.max_snapshots) != (None, None, None)

    def window_start(self, now: int) -> int | None:
        """Since when every state stays restorable, microseconds since 1970; None for always."""
        return None if self.max_age is None else now - int(self.max_age * MICROSECONDS)


def grace_start(now: int) -> int:
    """Since when nothing goes by any limit, microseconds since 1970."""
    return now - GRACE_SECONDS * MICROSECONDS


MAX_DROPS = 256
"""How many drops are remembered: with one for a 200th of max-age each, more than enough."""


def first_kept(snapshot: Snapshot, policy: RetentionPolicy, drops: Sequence[Drop], now: int) -> int:
    """The index that ``snapshot`` should begin at by ``policy`` at the time ``now``, microseconds since 1970.

    By age, what the source had dropped when the window began; by size, as much more as it has dropped, oldest first,
    until the log segments' objects are within the limit.
    """
    first = snapshot.first
    if (start := policy.window_start(now)) is not None:
        first = max([first, *(drop.first for drop in drops if drop.time <= start)])
    first = min(first, snapshot.next)
    if policy.max_bytes is not None:
        dropped = max((drop.first for drop in drops), default=0)
        excess = sum(entry.size for entry in snapshot.segments[first - snapshot.first :]) - policy.max_bytes
        while excess > 0 and first < min(dropped, snapshot.next):
            excess -= snapshot.segments[first - snapshot.first].size
            first += 1
    return first


def note_drop(drops: Sequence[Drop], drop: Drop, policy: RetentionPolicy) -> tuple[Drop, ...]:
    """``drops`` with a new one: as few as tell when each index was dropped, to a 200th of max-age.

    Times and indexes only rise: one that goes back, as a clock does that was set, is taken for the last one's time.
    """
    if not drops:
        return (drop,)
    last = drops[-1]
    if drop.first <= last.first:
        return tuple(drops)
    grain = int((policy.max_age or 0) * 1_000_000) // 200
    drop = type(drop)(max(drop.time, last.time), drop.first)
    kept = list(drops)
    if len(kept) > 1 and drop.time - kept[-2].time < grain:
        kept.pop()
    kept.append(drop)
    return tuple(_settled(kept, policy, drop.time)[-MAX_DROPS:])


def _settled(drops: list[Drop], policy: RetentionPolicy, now: int) -> list[Drop]:
    """Without what a later drop says as well: of those before the window, the last one tells all."""
    start = policy.window_start(now)
    if start is None:
        return drops[-1:]
    before = [drop for drop in drops if drop.time <= start]
    return [*before[-1:], *(drop for drop in drops if drop.time > start)]
