"""Rules that turn the daemon's status into words and ranks of severity. No I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from litelog.server.health import NOT_REPLICATED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from litelog.replicator.status import ReplicaStatus
    from litelog.server.report import Reason


class Level(Enum):
    """Severity: selects colours and marks, which never appear without words."""

    BAD = "bad"
    WARNING = "warning"
    WAITING = "waiting"
    GOOD = "good"


MARKS = {Level.BAD: "✗", Level.WARNING: "!", Level.WAITING: "…", Level.GOOD: "✓"}


class ReplicaCondition(Enum):
    """The state of a replica in one word, worst first."""

    FROZEN = "frozen"
    FENCED = "fenced"
    REJECTED = "refused"
    FAILED = "failed"
    DAMAGED = "damaged"
    LATE = "late"
    FAILING = "failing"
    TROUBLED = "troubled"
    STARTING = "starting"
    SAFE = "safe"

    @property
    def level(self) -> Level:
        """The severity of the state."""
        return _LEVELS.get(self, Level.BAD)

    @property
    def mark(self) -> str:
        """The symbol next to the word."""
        return MARKS[self.level]


RANKS = {state: rank for rank, state in enumerate(ReplicaCondition)}

_LEVELS = {
    ReplicaCondition.TROUBLED: Level.WARNING,
    ReplicaCondition.STARTING: Level.WAITING,
    ReplicaCondition.SAFE: Level.GOOD,
}
_BY_REASON = {
    "frozen": ReplicaCondition.FROZEN,
    "fenced": ReplicaCondition.FENCED,
    "refused": ReplicaCondition.REJECTED,
    "failed": ReplicaCondition.FAILED,
    "lost": ReplicaCondition.DAMAGED,
    "lag": ReplicaCondition.LATE,
    "failing": ReplicaCondition.FAILING,
    "not_synced": ReplicaCondition.STARTING,
}
_STALLS = frozenset({"loop_stopped", "status_stalled", "measuring_stalled"})


@dataclass(frozen=True, slots=True)
class PageVerdict:
    """The headline of the page."""

    level: Level
    words: str

    @property
    def mark(self) -> str:
        """The symbol next to the words."""
        return MARKS[self.level]


def rank(reason: Reason) -> int:
    """Order of reasons: first those that make the report unreliable, then missing replicas, then the worst."""
    if reason.log is None or reason.kind == NOT_REPLICATED:
        return -1
    return RANKS[_BY_REASON.get(reason.kind, ReplicaCondition.TROUBLED)]


def judge(statuses: Iterable[ReplicaStatus], reasons: Iterable[Reason]) -> dict[tuple[str, str], ReplicaCondition]:
    """The state of each replica, by log and URL. ``reasons``: from ``find_unready``."""
    found: dict[tuple[str, str], list[ReplicaCondition]] = {}
    for reason in reasons:
        if reason.log is not None and reason.replica is not None:
            state = _BY_REASON.get(reason.kind, ReplicaCondition.TROUBLED)
            found.setdefault((reason.log, reason.replica), []).append(state)
    judged = {}
    for status in statuses:
        states = [*found.get((status.log, status.replica), ()), *_own(status)]
        judged[status.log, status.replica] = min(states, key=RANKS.__getitem__, default=ReplicaCondition.SAFE)
    return judged


def find_verdict(states: Mapping[tuple[str, str], ReplicaCondition], reasons: Sequence[Reason]) -> PageVerdict:
    """The verdict on all replicas together."""
    counts = Counter(states.values())
    bad = [state for state in ReplicaCondition if state.level is Level.BAD and counts[state]]
    total = len(states)
    first = ["the daemon has stalled"] if any(reason.kind in _STALLS for reason in reasons) else []
    if lacking := sum(reason.kind == NOT_REPLICATED for reason in reasons):
        first.append(f"{lacking} not replicated")
    if first:
        words = [*first, *(f"{counts[state]} {state.value}" for state in bad)]
        return PageVerdict(Level.BAD, "Not safe: " + ", ".join(words))
    if bad:
        words = [f"{counts[bad[0]]} of {_count(total)} {bad[0].value}"]
        words += [f"{counts[state]} {state.value}" for state in bad[1:]]
        return PageVerdict(Level.BAD, "Not safe: " + ", ".join(words))
    if counts[ReplicaCondition.STARTING] or (reasons and not total):
        why = (
            f"{counts[ReplicaCondition.STARTING]} of {_count(total)} not synced yet"
            if total
            else "no replica is open yet"
        )
        return PageVerdict(Level.WAITING, f"Starting: {why}")
    if not total:
        return PageVerdict(Level.WAITING, "No log has been found yet")
    if counts[ReplicaCondition.TROUBLED]:
        return PageVerdict(Level.WARNING, f"Safe, but {counts[ReplicaCondition.TROUBLED]} of {_count(total)} troubled")
    return PageVerdict(Level.GOOD, "All safe")


def _own(status: ReplicaStatus) -> Iterable[ReplicaCondition]:
    """States that health does not report: shipped data is safe, but something needs attention."""
    if status.anomalies:
        yield ReplicaCondition.DAMAGED
    if status.archive_error or status.verify_error or status.source_error:
        yield ReplicaCondition.TROUBLED


def _count(replicas: int) -> str:
    return f"{replicas:,} replica" + ("" if replicas == 1 else "s")
