"""Creates the status document from the daemon's status."""

from __future__ import annotations

import os
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any

from litelog.server.found_reason import format_time
from litelog.server.report import (
    FailureReport,
    GenerationReport,
    LogReport,
    MirrorReport,
    NotReplicatedReport,
    Reason,
    ReplicaReport,
    RequestCount,
    ServingReport,
    StatusReport,
    WrittenReport,
)
from litelog.server.verdict import Judgement, ReplicaCondition
from litelog.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from litelog.live.reader_limits import ServingStatus
    from litelog.replicator.status import ReplicaStatus
    from litelog.server.daemon_view import StatusCache
    from litelog.server.found_reason import FoundReason
    from litelog.server.report import HeartbeatReport
    from litelog.server.status_view import StatusView
    from litelog.shipping.counters import ReplicaCounters


_NO_HISTORY = '"lag_history":null'
_SAMPLE = '{"seconds_ago":%.1f,"lag_seconds":%.3f,"lag_bytes":%d}'
"""A LagSample of the report."""


def describe_reasons(reasons: Iterable[FoundReason]) -> list[Reason]:
    """The reasons as parts of the document."""
    return [Reason(**each._asdict()) for each in reasons]


def make_report(
    status_cache: StatusCache,
    snapshot: StatusView,
    judgement: Judgement,
    *,
    heartbeat: HeartbeatReport | None = None,
    logs: Container[str] | None = None,
    serving: ServingStatus | None = None,
) -> StatusReport:
    """Make the document, without the lag of the last hour. ``logs``: only these logs, by folder.
    ``serving``: the readers and mirrors of served logs."""
    return StatusReport(
        source="daemon",
        litelog=VERSION,
        time=format_time(snapshot.time),
        started=format_time(status_cache.started),
        host=status_cache.host,
        config=status_cache.config,
        state_dir=status_cache.state_dir,
        pid=os.getpid(),
        verdict=judgement.verdict.value,
        words=judgement.words,
        healthy=judgement.healthy,
        ready=not judgement.unready,
        reasons=describe_reasons(judgement.reasons),
        max_lag_seconds=status_cache.rules.max_lag,
        last_turn_seconds=_age(snapshot, snapshot.last_turn),
        measured_seconds=_age(snapshot, snapshot.measured),
        heartbeat=heartbeat,
        serving=None if serving is None else _describe_serving(serving),
        logs=group_by_log(_choose(snapshot, logs), judgement, serving),
        not_replicated=[
            NotReplicatedReport(
                log=each.log, replica=each.replica, reason=each.reason, failing_seconds=_age(snapshot, each.since)
            )
            for each in snapshot.not_replicated
            if logs is None or each.log in logs
        ],
    )


def _age(snapshot: StatusView, moment: float) -> float:
    return round(max(0.0, snapshot.now - moment), 3)


def write_with_history(report: StatusReport, snapshot: StatusView, logs: Container[str] | None = None) -> bytes:
    """Write the document with the lag of the last hour. ``report`` was made of the same ``snapshot`` and ``logs``.

    A thousand logs have hundreds of thousands of samples. Each is written as text, and never becomes an object.
    """
    parts = report.model_dump_json().split(_NO_HISTORY)  # found nowhere else: quotes within a text are escaped
    written = [parts[0]]
    statuses = chain.from_iterable(_by_log(_choose(snapshot, logs)).values())
    for status, part in zip(statuses, parts[1:], strict=True):
        written += ('"lag_history":[', _write_history(status, snapshot.now), "]", part)
    return "".join(written).encode()


def group_by_log(
    statuses: Iterable[ReplicaStatus],
    judgement: Judgement,
    serving: ServingStatus | None = None,
) -> list[LogReport]:
    """Make the report on each log."""
    known, unknown = judgement.replicas, ReplicaCondition.UNKNOWN
    return [
        LogReport(
            log=log,
            replicas=[make_replica(each, known.get((log, each.replica), unknown)) for each in group],
            **_served(serving, log),
        )
        for log, group in _by_log(statuses).items()
    ]


def _served(serving: ServingStatus | None, log: str) -> dict[str, Any]:
    """The fields of a log that is served."""
    if serving is None:
        return {}
    mirrors = [MirrorReport(**asdict(each)) for each in serving.mirrors.get(log, ())]
    return {
        "mirrors": mirrors,
        "mirror_wait_seconds": serving.mirror_waits.get(log),
        "readers": serving.readers.get(log, 0),
        "sent_bytes": serving.sent_bytes.get(log, 0),
    }


def _describe_serving(serving: ServingStatus) -> ServingReport:
    limits = serving.limits
    return ServingReport(
        readers=sum(serving.readers.values()),
        max_readers=limits.readers,
        max_reader_rate=limits.rate,
        max_reader_bytes=limits.size,
        refused_readers=serving.refused,
        slowed_seconds=round(serving.slowed_seconds, 3),
        ended_streams=serving.ended,
    )


def _choose(snapshot: StatusView, logs: Container[str] | None) -> Iterable[ReplicaStatus]:
    return (each for each in snapshot.statuses if logs is None or each.log in logs)


def _by_log(statuses: Iterable[ReplicaStatus]) -> dict[str, list[ReplicaStatus]]:
    logs: dict[str, list[ReplicaStatus]] = {}
    for status in statuses:
        logs.setdefault(status.log, []).append(status)
    return logs


def make_replica(status: ReplicaStatus, condition: ReplicaCondition = ReplicaCondition.UNKNOWN) -> ReplicaReport:
    """The report on one replica, without the lag of the last hour."""
    report = ReplicaReport(
        replica=status.replica,
        verdict=condition.verdict.value,
        condition=condition.value,
        phase=status.phase,
        fencing=str(status.fencing),
        no_delete=status.no_delete,
        generation=None if status.position is None else status.position.generation,
        position=None if status.position is None else str(status.position),
        next=status.sequence,
        lag_seconds=None if status.meter is None else round(status.lag_seconds, 3),
        lag_bytes=None if status.meter is None else status.lag_bytes,
        lag_records=None if status.meter is None else status.lag_records,
        synced=status.synced,
        queued_segments=status.queued,
        unsealed_segments=status.unsealed,
        consecutive_failures=status.failures,
        failing_seconds=round(status.failing_seconds, 3),
        sync_error=status.error,
        archive_consecutive_failures=status.archive_failures,
        archive_error=status.archive_error,
        checkpoint_number=status.checkpoint,
        last_checkpoint=_optional(status.checkpoint_time),
        checkpoint_consecutive_failures=status.checkpoint_failures,
        checkpoint_error=status.checkpoint_error,
        source_error=status.source_error,
        snapshot=status.snapshot,
        last_verified=_optional(status.last_verified),
        anomaly_count=status.anomalies,
        damaged=list(status.damaged),
        damaged_since=_optional(status.damaged_since),
        stored_bytes=status.stored_bytes,
        diverged_since=None if status.diverged is None else format_time(status.diverged.time),
        lost=status.lost,
        verify_error=status.verify_error,
        lock_error=status.lock_error,
        locks_extended=_optional(status.locks_extended),
    )
    return report if status.counters is None else _with_tallies(report, status.counters)


def _with_tallies(report: ReplicaReport, counters: ReplicaCounters) -> ReplicaReport:
    counts = counters.counts
    return report.model_copy(
        update={
            "last_snapshot": _optional(counts.last_snapshot),
            "last_shipped": _optional(counts.last_shipped),
            "wal": WrittenReport(
                objects=counts.wal_segments, log_bytes=counts.wal_log_bytes, stored_bytes=counts.wal_object_bytes
            ),
            "sealed": WrittenReport(
                objects=counts.sealed_segments,
                log_bytes=counts.sealed_log_bytes,
                stored_bytes=counts.sealed_object_bytes,
            ),
            "snapshots": counts.snapshots,
            "requests": [
                RequestCount(kind=kind, result=result, count=count)
                for (kind, result), count in sorted(counters.requests.requests.items())
            ],
            "errors": counters.errors,
            "recent_errors": [
                FailureReport(time=format_time(each.time), kind=each.kind, message=each.message, count=each.count)
                for each in counters.failures
            ],
            "generation_changes": counters.generation_changes,
            "recent_generations": [
                GenerationReport(
                    time=format_time(each.time),
                    generation=each.generation,
                    relation=each.relation,
                    predecessor=each.predecessor,
                    reason=each.reason,
                )
                for each in counters.generations
            ],
        }
    )


def _write_history(status: ReplicaStatus, now: float) -> str:
    samples = status.meter.history.read() if status.meter is not None else []
    return ",".join([_SAMPLE % (max(0.0, now - time), seconds, size) for time, seconds, size in samples])


def _optional(microseconds: int | None) -> str | None:
    return None if microseconds is None else format_time(microseconds)
