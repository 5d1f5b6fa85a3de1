"""Retention policies: how much of its past a replica keeps, and where a new snapshot begins under policy ``keep``.

Objects that the newest snapshot names are never deleted. So the owner's next snapshot leaves out what the limits free.
Once that snapshot is durable and no remaining one names the objects, pruning deletes them. Only what the source has
dropped is ever left out: a restore holds everything that the source holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.units import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.snapshot import Snapshot
    from litelog.retention.facts import SourceTrim

GRACE_SECONDS = 3600.0
"""No younger point and no younger WAL segment is deleted, whatever the policy. So an owner that was suspended for no
longer than this finds what it needs."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The limits; None: no limit. Of several limits, the first that is reached applies."""

    max_age: float | None = None
    """Seconds. Every state of the log since then can be restored."""
    max_bytes: int | None = None
    """Bytes of the replica's objects. The oldest are deleted first."""
    max_snapshots: int | None = None
    min_snapshots: int = 1
    """How many of the newest snapshots always stay, with all that they name."""

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
        """Return the time since which every state stays restorable, in microseconds since 1970; None: no limit."""
        return None if self.max_age is None else now - int(self.max_age * MICROSECONDS)


def grace_start(now: int) -> int:
    """Return the time after which no limit deletes anything, in microseconds since 1970."""
    return now - int(GRACE_SECONDS * MICROSECONDS)


MAX_DROPS = 256
"""How many drops are kept. One for each 200th of max-age needs fewer."""


def first_kept(snapshot: Snapshot, policy: RetentionPolicy, drops: Sequence[SourceTrim], now: int) -> int:
    """Return the index at which ``snapshot`` should begin by ``policy`` at ``now``, in microseconds since 1970.

    By age, it leaves out what the source had dropped when the window began. By size, it leaves out more of what the
    source has dropped, oldest first, until the log segments' objects are within the limit.
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


def note_drop(drops: Sequence[SourceTrim], drop: SourceTrim, policy: RetentionPolicy) -> tuple[SourceTrim, ...]:
    """Return ``drops`` with a new one: few, but enough to know when each index was dropped, to a 200th of max-age.

    Times and indexes only rise: a time that went back, because the clock was set, is replaced by the last one.
    """
    if not drops:
        return (drop,)
    last = drops[-1]
    if drop.first <= last.first:
        return tuple(drops)
    grain = int((policy.max_age or 0) * MICROSECONDS) // 200
    drop = replace(drop, time=max(drop.time, last.time))
    kept = list(drops)
    if len(kept) > 1 and drop.time - kept[-2].time < grain:
        kept.pop()
    kept.append(drop)
    return tuple(_without_superfluous(kept, policy, drop.time)[-MAX_DROPS:])


def _without_superfluous(drops: list[SourceTrim], policy: RetentionPolicy, now: int) -> list[SourceTrim]:
    """Remove drops that a later one makes superfluous: of those before the window, only the last one counts."""
    start = policy.window_start(now)
    if start is None:
        return drops[-1:]
    before = [drop for drop in drops if drop.time <= start]
    return [*before[-1:], *(drop for drop in drops if drop.time > start)]
