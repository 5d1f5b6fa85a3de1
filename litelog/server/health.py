"""Rules that decide from the daemon's status whether all is safe, and if not, why. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.replicator.task import Phase
from litelog.server.report import Reason
from litelog.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.replicator.status import NotReplicated, ReplicaStatus
    from litelog.server.daemon_view import HealthThresholds, StatusView

NOT_REPLICATED = "not_replicated"
"""Kind of a reason: a configured log cannot be opened, or a folder of logs cannot be read."""

STOPPED = {
    Phase.FROZEN.value: ("frozen", "frozen"),
    Phase.FENCED.value: ("fenced", "fenced: another owner writes there"),
    Phase.REJECTED.value: ("refused", "refused"),
    Phase.FAILED.value: ("failed", "the final sync failed"),
}
"""Phases in which shipping has ended, with the reason's kind and text."""


def find_unhealthy(snapshot: StatusView, rules: HealthThresholds) -> list[Reason]:
    """Why the daemon's promises may not hold; empty if it is healthy."""
    lacking = (each for each in snapshot.not_replicated if snapshot.now - each.since > rules.max_lag)
    failing = (reason for each in snapshot.statuses for reason in _of(each, rules.max_lag))
    return [*_stalls(snapshot, rules), *map(_lacks, lacking), *failing]


def find_unready(snapshot: StatusView, rules: HealthThresholds) -> list[Reason]:
    """Why it is not ready: it is unhealthy, a replica has had no first sync, or a log has no replica."""
    reasons = find_unhealthy(snapshot, rules)
    reasons += [_lacks(each) for each in snapshot.not_replicated if snapshot.now - each.since <= rules.max_lag]
    waiting = [each for each in snapshot.statuses if not each.synced]
    reasons += [_reason("not_synced", each, "has not been synced since the daemon started") for each in waiting]
    if not snapshot.opened and not reasons:
        reasons.append(Reason(kind="not_synced", message="the daemon has not opened its replicas yet"))
    return reasons


def _stalls(snapshot: StatusView, rules: HealthThresholds) -> Iterator[Reason]:
    ages = (
        ("loop_stopped", snapshot.last_turn, "the main loop has taken no turn for"),
        ("status_stalled", snapshot.taken, "the daemon has not updated its status for"),
        ("measuring_stalled", snapshot.measured, "the logs' folders could not be looked at for"),
    )
    for kind, since, words in ages:
        age = snapshot.now - since
        if age > rules.loop_seconds:
            yield Reason(kind=kind, message=f"{words} {format_duration(age)}")


def _lacks(log: NotReplicated) -> Reason:
    return Reason(kind=NOT_REPLICATED, log=log.log, replica=log.replica, message=f"is not replicated: {log.reason}")


def _of(status: ReplicaStatus, max_lag: float) -> Iterator[Reason]:
    if status.phase in STOPPED:
        kind, words = STOPPED[status.phase]
        yield _reason(kind, status, words + (f": {status.error}" if status.error else ""))
    if status.lost is not None:
        yield _reason("lost", status, f"{status.lost}; to continue with what is left, run litelog forget")
    if status.lag_seconds > max_lag:
        size, age = format_size(status.lag_bytes), format_duration(status.lag_seconds)
        yield _reason("lag", status, f"lags {age} ({size}), more than max-lag {format_duration(max_lag)}")
    if status.failing_seconds > max_lag and status.phase not in STOPPED:
        words = f"every sync has failed for {format_duration(status.failing_seconds)}: {status.error}"
        yield _reason("failing", status, words)


def _reason(kind: str, status: ReplicaStatus, words: str) -> Reason:
    return Reason(kind=kind, log=status.log, replica=status.replica, message=words)
