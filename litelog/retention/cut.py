"""The cut: the oldest snapshot that stays, and the limit that put it there. The retention plan says what it means."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from litelog.retention.needs import LASTING
from litelog.retention.policy import grace_start

if TYPE_CHECKING:
    from litelog.retention.needs import Needs
    from litelog.retention.policy import RetentionPolicy
    from litelog.retention.removal import Removal


class Cause(StrEnum):
    """Which limit an object goes by."""

    AGE = "older than max-age"
    BYTES = "the oldest, beyond max-bytes"
    COUNT = "the oldest, beyond max-snapshots"


def choose_cut(
    needs: Needs, objects: list[tuple[Removal, int]], policy: RetentionPolicy, now: int
) -> tuple[int, Cause | None]:
    """The cut, and the limit that put it there."""
    wanted: dict[Cause, int] = {}
    if (start := policy.window_start(now)) is not None:
        wanted[Cause.AGE] = _cut_at(needs, start)
    if policy.max_snapshots is not None:
        wanted[Cause.COUNT] = len(needs.snapshots) - policy.max_snapshots
    if policy.max_bytes is not None:
        wanted[Cause.BYTES] = _cut_within(objects, policy.max_bytes)
    highest = min(needs.newest, len(needs.snapshots) - policy.min_snapshots, _cut_at(needs, grace_start(now)))
    if not wanted:
        return 0, None
    cause = max(wanted, key=lambda cause: wanted[cause])
    cut = max(0, min(wanted[cause], highest))
    while cut and not needs.can_cut(cut):
        cut -= 1
    return cut, cause


def _cut_at(needs: Needs, start: int) -> int:
    """The highest cut with which every state of the log since ``start`` is restorable."""
    base = 0
    for number, reached in enumerate(needs.reached[: needs.newest + 1]):
        if reached > start:
            break
        if needs.can_cut(number):
            base = number
    if not needs.snapshots or not needs.can_cut(base):
        return 0  # where nothing was reached by then, all that is restorable begins at the oldest one
    floor, best = needs.floor(base, start), base
    for number in range(base + 1, needs.newest + 1):
        snapshot = needs.snapshots[number]
        if snapshot.generation != needs.snapshots[base].generation:
            break
        if needs.can_cut(number) and needs.snapshots[best].first < snapshot.first <= floor:
            best = number
    return best


def _cut_within(objects: list[tuple[Removal, int]], limit: int) -> int:
    """The lowest cut that leaves no more than ``limit`` bytes; one behind all where none does."""
    left = sum(removal.size for removal, _ in objects)
    freed: dict[int, int] = {}
    for removal, needed_upto in objects:
        if needed_upto < LASTING:
            freed[needed_upto + 1] = freed.get(needed_upto + 1, 0) + removal.size
    if left <= limit:
        return 0
    for cut in sorted(freed):
        left -= freed[cut]
        if left <= limit:
            return cut
    return max(freed, default=0)
