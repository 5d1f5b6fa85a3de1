"""Selects the logs that a page shows: those that match, worst first, in pages of limited size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.server.verdict import RANKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.server.verdict import ReplicaCondition

MAX_REPLICAS = 40
"""A page shows no more logs after this many replicas, which bounds its size and the cost of making it."""

MAX_FILTER = 200
"""Characters of a filter that are used."""

MAX_FIRST = 10**9


@dataclass(frozen=True, slots=True)
class LogPage:
    """The logs of one page."""

    logs: tuple[str, ...]
    """Folders, in the order in which they are shown."""
    first: int
    """Number of matching logs before this page."""
    matching: int
    total: int

    @property
    def following(self) -> int | None:
        """The first log of the next page; None if this page is the last."""
        end = self.first + len(self.logs)
        return end if end < self.matching else None


def choose(states: Mapping[tuple[str, str], ReplicaCondition], wanted: str, first: int) -> LogPage:
    """Select logs: ``wanted`` must occur in the log's folder, a replica's URL or its state, ignoring case; empty: all.

    ``first``: how many matching logs to skip.
    """
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
    return LogPage(_fill(matching[first:], replicas), first, len(matching), len(texts))


def read_first(text: str) -> int:
    """The number in a query; 0 if it is invalid."""
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
