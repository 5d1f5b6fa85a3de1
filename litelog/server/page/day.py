"""The strip of a day's verdicts: one bar for ten minutes, as SVG paths, and a text alternative."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.server.verdict import Verdict
from litelog.server.verdict_history import SLOT_SECONDS, SLOTS
from litelog.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = SLOTS, 10

_NAMES = {Verdict.UNSAFE: "unsafe", Verdict.LATE: "late", Verdict.SAFE: "safe"}
_TOPS = {Verdict.UNSAFE: 0, Verdict.LATE: 3, Verdict.SAFE: 6}
"""The bars differ in height as well as in colour."""


@dataclass(frozen=True, slots=True)
class DayStrip:
    """A drawing in a box of WIDTH by HEIGHT, with now on the right. Slots without a bar are not known."""

    paths: Sequence[tuple[str, str]]
    """(class, path) of each verdict that occurs."""
    words: str
    """The text alternative."""


def draw_day(verdicts: Sequence[Verdict]) -> DayStrip:
    """Draw the verdicts of a day's slots, the oldest first."""
    bars: dict[Verdict, list[str]] = {}
    at = 0
    for verdict, row in groupby(verdicts):
        end = at + sum(1 for _ in row)
        if verdict in _NAMES:
            bars.setdefault(verdict, []).append(f"M{at} {HEIGHT}V{_TOPS[verdict]}H{end}V{HEIGHT}z")
        at = end
    paths = [(_NAMES[verdict], "".join(path)) for verdict, path in bars.items()]
    counts = Counter(verdicts)
    said = [
        f"{verdict.value} for {format_duration(counts[verdict] * SLOT_SECONDS)}"
        for verdict in Verdict
        if counts[verdict]
    ]
    return DayStrip(paths, "Last 24 hours, in slots of 10 minutes: " + ", ".join(said))
