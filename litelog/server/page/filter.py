"""Which logs a page shows: those that match, the worst first, and so many at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.server.page.severity import RANKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.server.page.severity import State

MAX_REPLICAS = 100
"""A page shows no more logs once it shows so many replicas: its size, and what it costs to make, are bounded."""

MAX_FILTER = 200
"""Characters of a filter that are looked at."""

MAX_FIRST = 10**9


@dataclass(frozen=True, slots=True)
class Choice:
    """The logs of one page, out of all."""

    logs: tuple[str, ...]
    """Folders, in the order in which they are shown."""
    first: int
    """How many that match come before."""
    matching: int
    total: int

    @property
    def following(self) -> int | None:
        """Where the next page begins; None where this is the last one."""
        end = self.first + len(self.logs)
        return end if end < self.matching else None


def choose(states: Mapping[tuple[str, str], State], wanted: str, first: int) -> Choice:
    """``wanted`` is looked for in the log's folder, its replicas' URLs and their states, whatever the case; empty: all.
    ``first``: how many of the logs that match are passed over."""
    ranks: dict[str, int] = {}
    texts: dict[str, list[str]] = {}
    replicas: dict[str, int] = {}
    for (log, replica), state in states.items():
        ranks[log] = min(RANKS[state], ranks.get(log, len(RANKS)))
        texts.setdefault(log, [log]).extend((replica, state.value))
        replicas[log] = replicas.get(log, 0) + 1
    sought = wanted[:MAX_FILTER].strip().casefold()
    matching = [log for log, parts in texts.items() if any(sought in part.casefold() for part in parts)]
    matching.sort(key=ranks.__getitem__)
    first = min(first, max(0, len(matching) - 1))
    return Choice(_fill(matching[first:], replicas), first, len(matching), len(texts))


def read_first(text: str) -> int:
    """The number that a query gives; 0 where it is none."""
    return min(int(text), MAX_FIRST) if text.isdecimal() and len(text) < 12 else 0


def _fill(logs: list[str], replicas: Mapping[str, int]) -> tuple[str, ...]:
    shown: list[str] = []
    room = MAX_REPLICAS
    for log in logs:
        if shown and replicas[log] > room:
            break
        shown.append(log)
        room -= replicas[log]
    return tuple(shown)
