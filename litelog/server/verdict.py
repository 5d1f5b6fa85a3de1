"""The verdict on replicas: one function decides whether they are safe and, if not, why. No I/O.

The page, /healthz, the status, the metrics, the alerts and the heartbeat all show the result of ``judge``.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum, StrEnum
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.server.reasons import find_reasons, find_unready

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from litelog.server.found_reason import FoundReason
    from litelog.server.status_view import HealthThresholds, StatusView


class Verdict(StrEnum):
    """Whether a log survives the loss of its folder, worst first."""

    UNSAFE = "unsafe"
    """No, unless a person helps: a replica is damaged, or shipping to it has ended."""
    LATE = "late"
    """Not all of it: a replica lacks data that the log has held for longer than max-lag."""
    UNKNOWN = "unknown"
    """Not known yet, or no daemon runs that could report it."""
    SAFE = "safe"
    """Yes. There may be warnings."""


class ReplicaCondition(Enum):
    """The condition of a replica in a word or two, worst first."""

    FROZEN = "frozen"
    FENCED = "fenced"
    REJECTED = "refused"
    FAILED = "failed"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"
    NEVER_SYNCED = "never synced"
    STALLED = "stalled"
    LATE = "late"
    FAILING = "failing"
    WAITING = "waiting"
    STARTING = "starting"
    UNKNOWN = "unknown"
    DIVERGED = "diverged"
    TROUBLED = "troubled"
    SAFE = "safe"

    @property
    def verdict(self) -> Verdict:
        """The verdict on a replica in this condition."""
        return _VERDICTS.get(self, Verdict.UNSAFE)

    @property
    def is_warning(self) -> bool:
        """Whether the replica is safe, but needs attention."""
        return self in (ReplicaCondition.DIVERGED, ReplicaCondition.TROUBLED)


_VERDICTS = {
    ReplicaCondition.LATE: Verdict.LATE,
    ReplicaCondition.FAILING: Verdict.LATE,
    ReplicaCondition.WAITING: Verdict.UNKNOWN,
    ReplicaCondition.STARTING: Verdict.UNKNOWN,
    ReplicaCondition.UNKNOWN: Verdict.UNKNOWN,
    ReplicaCondition.DIVERGED: Verdict.SAFE,
    ReplicaCondition.TROUBLED: Verdict.SAFE,
    ReplicaCondition.SAFE: Verdict.SAFE,
}

CONDITIONS = {
    "frozen": ReplicaCondition.FROZEN,
    "fenced": ReplicaCondition.FENCED,
    "refused": ReplicaCondition.REJECTED,
    "failed": ReplicaCondition.FAILED,
    "damaged": ReplicaCondition.DAMAGED,
    "lost": ReplicaCondition.DAMAGED,
    "unreadable": ReplicaCondition.UNREADABLE,
    "never_synced": ReplicaCondition.NEVER_SYNCED,
    "loop_stopped": ReplicaCondition.STALLED,
    "status_stalled": ReplicaCondition.STALLED,
    "measuring_stalled": ReplicaCondition.STALLED,
    "lag": ReplicaCondition.LATE,
    "not_synced_for_long": ReplicaCondition.LATE,
    "failing": ReplicaCondition.FAILING,
    "waiting": ReplicaCondition.WAITING,
    "not_synced": ReplicaCondition.STARTING,
    "no_daemon": ReplicaCondition.UNKNOWN,
    "diverged": ReplicaCondition.DIVERGED,
    "archive_failing": ReplicaCondition.TROUBLED,
    "checkpoint_failing": ReplicaCondition.TROUBLED,
    "verify_failing": ReplicaCondition.TROUBLED,
    "locks_failing": ReplicaCondition.TROUBLED,
    "source_unreadable": ReplicaCondition.TROUBLED,
}
"""The condition of a replica that has a reason of this kind. A log without a replica has ``not_replicated``."""

VERDICT_NUMBERS = {Verdict.SAFE: 0, Verdict.UNKNOWN: 1, Verdict.LATE: 2, Verdict.UNSAFE: 3}
"""The values of the verdicts in metrics."""

RANKS = {condition: rank for rank, condition in enumerate(ReplicaCondition)}
_VERDICT_RANKS = {verdict: rank for rank, verdict in enumerate(Verdict)}

Pair = tuple[str, str]
"""A log's folder and a replica's URL."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on all replicas together, and on each."""

    verdict: Verdict
    words: str
    """The verdict as a line for people."""
    reasons: Sequence[FoundReason]
    """Why the verdict is not safe, and all warnings; the worst first."""
    replicas: Mapping[Pair, ReplicaCondition]
    unready: Sequence[FoundReason]
    """Why the daemon is not ready; empty if it is."""

    @property
    def healthy(self) -> bool:
        """Whether nothing is known to be late or unsafe: the answer of /healthz."""
        return self.verdict not in (Verdict.LATE, Verdict.UNSAFE)

    @property
    def warnings(self) -> int:
        """How many reasons are only warnings."""
        return sum(each.verdict == Verdict.SAFE for each in self.reasons)


def judge(view: StatusView, rules: HealthThresholds) -> Judgement:
    """Judge all replicas by the daemon's status."""
    reasons = sorted((_with_verdict(each) for each in find_reasons(view, rules)), key=_rank)
    found: dict[Pair, list[ReplicaCondition]] = {}
    for reason in reasons:
        if reason.log is not None and reason.replica is not None and reason.kind in CONDITIONS:
            found.setdefault((reason.log, reason.replica), []).append(CONDITIONS[reason.kind])
    general = [CONDITIONS[reason.kind] for reason in reasons if reason.log is None]
    replicas = {
        pair: min((*found.get(pair, ()), *general), key=RANKS.__getitem__, default=ReplicaCondition.SAFE)
        for pair in ((status.log, status.replica) for status in view.statuses)
    }
    verdicts = [Verdict(reason.verdict) for reason in reasons]
    verdict = min(verdicts, key=_VERDICT_RANKS.__getitem__, default=Verdict.SAFE)
    if not replicas and not reasons:
        verdict = Verdict.UNKNOWN
    words = _describe(verdict, reasons, Counter(replicas.values()))
    unready = [_with_verdict(each).escaped() for each in find_unready(view, rules)]
    return Judgement(verdict, words, [each.escaped() for each in reasons], replicas, unready)


def _with_verdict(reason: FoundReason) -> FoundReason:
    condition = CONDITIONS.get(reason.kind)
    return reason if condition is None else reason._replace(verdict=condition.verdict.value)


def _rank(reason: FoundReason) -> tuple[int, int]:
    """A sort key: first the reasons that concern all replicas, then those of missing replicas, then the worst."""
    condition = CONDITIONS.get(reason.kind)
    everywhere = reason.log is None and reason.verdict == Verdict.UNSAFE
    missing = condition is None and reason.verdict == Verdict.UNSAFE
    worst = RANKS[condition] if condition is not None else RANKS[ReplicaCondition.STARTING]
    return (0 if everywhere else 1 if missing else 2, worst)


def _describe(verdict: Verdict, reasons: Sequence[FoundReason], counts: Counter[ReplicaCondition]) -> str:
    total = sum(counts.values())
    if verdict in (Verdict.UNSAFE, Verdict.LATE):
        return ("Not safe: " if verdict is Verdict.UNSAFE else "Late: ") + _describe_bad(verdict, reasons, counts)
    if verdict is Verdict.UNKNOWN:
        return _describe_unknown(reasons, counts)
    warned = [condition for condition in ReplicaCondition if condition.is_warning and counts[condition]]
    if warned:
        first, *others = (f"{counts[condition]}{{}} {condition.value}" for condition in warned)
        many = sum(counts[condition] for condition in warned)
        said = ", ".join([first.format(f" of {_count(total)}"), *(each.format("") for each in others)])
        return f"Safe, with {'a warning' if many == 1 else 'warnings'}: {said}"
    return "All safe"


def _describe_bad(verdict: Verdict, reasons: Sequence[FoundReason], counts: Counter[ReplicaCondition]) -> str:
    said = (
        ["the daemon has stalled"] if any(CONDITIONS.get(r.kind) is ReplicaCondition.STALLED for r in reasons) else []
    )
    lacking = sum(reason.kind == "not_replicated" and reason.verdict == verdict for reason in reasons)
    if lacking:
        said.append(f"{lacking} not replicated")
    bad = [each for each in _all_but_stalled() if each.verdict in (Verdict.UNSAFE, Verdict.LATE) and counts[each]]
    for condition in bad:
        of_all = f" of {_count(sum(counts.values()))}" if not said else ""
        said.append(f"{counts[condition]}{of_all} {condition.value}")
    return ", ".join(said)


def _describe_unknown(reasons: Sequence[FoundReason], counts: Counter[ReplicaCondition]) -> str:
    total = sum(counts.values())
    if any(reason.kind == "no_daemon" for reason in reasons):
        return "Not known: no daemon was asked"
    if not total and not reasons:
        return "No log has been found yet"
    if counts[ReplicaCondition.WAITING] and not counts[ReplicaCondition.STARTING]:
        return f"Waiting: the log of {counts[ReplicaCondition.WAITING]} of {_count(total)} does not exist yet"
    lacking = sum(reason.kind == "not_replicated" for reason in reasons)
    if lacking:
        return f"Starting: {lacking:,} log{'' if lacking == 1 else 's'} not opened yet"
    if not total:
        return "Starting: no replica is open yet"
    unsynced = counts[ReplicaCondition.STARTING] + counts[ReplicaCondition.WAITING]
    return f"Starting: {unsynced} of {_count(total)} not synced yet"


def _all_but_stalled() -> Iterable[ReplicaCondition]:
    return (condition for condition in ReplicaCondition if condition is not ReplicaCondition.STALLED)


def _count(replicas: int) -> str:
    return f"{replicas:,} replica" + ("" if replicas == 1 else "s")
