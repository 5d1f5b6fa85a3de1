"""Where a new snapshot begins: what policy ``keep`` archives beyond the source, until retention lets it go.

What the newest snapshot names never goes. So the owner, when it makes its next snapshot, first leaves out what the
limits let go, as this module says; and once that snapshot is durable, and no other one that stays names it, pruning
deletes it. Only what the source has dropped is ever left out: a restore holds all that the source holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.objects.snapshot import Snapshot
    from litelog.retention.facts import Drop
    from litelog.retention.policy import RetentionPolicy

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
