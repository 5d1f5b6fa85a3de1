"""Measures the bytes of a log that a stream has found and not taken: how many there are, and since when they wait."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.spark.stream.steps import SealedStep, WalStep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.objects.sealed_segment import SealedFooter
    from litelog.spark.stream.steps import StreamStep

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class StreamBacklog:
    """The bytes of a log that no batch has taken."""

    bytes: int
    """Uncompressed bytes of the log, approximately."""
    shipped: int | None
    """When the first of them was shipped, in microseconds since 1970; None if nothing waits, or if it is not known."""

    def report(self, now: int) -> dict[str, Any]:
        """The bytes, and for how many seconds they have waited at the time ``now``, as JSON."""
        if not self.bytes:
            return {"bytes": 0, "seconds": 0.0}
        seconds = None if self.shipped is None else max(0, now - self.shipped) / MICROSECONDS
        return {"bytes": self.bytes, "seconds": seconds}


def first_with_bytes(steps: Iterable[StreamStep]) -> SealedStep | WalStep | None:
    """The first step with bytes, which is not a move."""
    return next((step for step in steps if isinstance(step, SealedStep | WalStep) and step.raw), None)


def measure(steps: Iterable[StreamStep], footer: SealedFooter | None) -> StreamBacklog:
    """The backlog of steps that were not taken. ``footer``: of the first sealed segment, if it was read."""
    held = [*steps]
    first = first_with_bytes(held)
    shipped = first.shipped if isinstance(first, WalStep) else None if first is None else _shipped(first, footer)
    return StreamBacklog(sum(step.raw for step in held), shipped)


def _shipped(step: SealedStep, footer: SealedFooter | None) -> int:
    """When the first bytes of a step were shipped: by the footer's marks, or by the entry if all of it is left."""
    entry = step.entry
    if step.start.offset and footer is not None:
        marks = footer.marks
        return int(marks.times[bisect_right(marks.offsets, step.start.offset)])
    return entry.shipped_first if entry.exact else entry.shipped_last
