"""Reads the status without a daemon: from its state folder, or from the replicas themselves."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.errors import LitelogError
from litelog.log.replica_registry import STATE_FILE, ReplicaSet, log_state_folder
from litelog.objects.position import Position
from litelog.replicator.status import ReplicaStatus
from litelog.server.found_reason import format_time
from litelog.server.make_report import describe_reasons, group_by_log
from litelog.server.reasons import UNKNOWN
from litelog.server.report import StatusReport
from litelog.server.status_view import HealthThresholds, StatusView
from litelog.server.verdict import judge
from litelog.shipping.divergence import read_divergence
from litelog.shipping.final_error import read_final_error
from litelog.shipping.lock_extension import read_locks
from litelog.shipping.state import Running, Unclaimed, read_state
from litelog.system.clock import SystemClock
from litelog.verify.scrub import read_result
from litelog.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.config import ReplicaConfig
    from litelog.log.source_position import SourcePosition
    from litelog_cli.configured import ConfiguredReplica

_Found = list[tuple[ReplicaStatus, dict[str, object]]]
"""The status of each replica, and further fields of its report."""


def read_kept(state_dir: str, place: str | None, configured: Sequence[str]) -> StatusReport:
    """Read the status of all logs, or of the log or replica at ``place``, from ``state_dir``.

    A log that is neither ``place`` nor ``configured`` is shown under the path that its state folder holds. An older
    litelog did not write that: then it is shown under the name of its state folder.
    """
    from litelog_cli.daemon_client import same_replica

    paths = {os.path.basename(log_state_folder(state_dir, path)): path for path in configured}
    named = None
    if place is not None and "://" not in place:
        named = os.path.basename(log_state_folder(state_dir, place))
        paths.setdefault(named, os.path.abspath(place))
    found: _Found = []
    for name in _folders(state_dir):
        folder = os.path.join(state_dir, name)
        kept = ReplicaSet(folder)
        path = paths.get(name) or kept.log_path()
        for each, url in (kept.names() or {}).items():
            if place is None or name == named or same_replica(place, url):
                found.append(_of_folder(os.path.join(folder, each), url, path, name))
    return _report("state", found)


def read_replicas(replicas: Sequence[tuple[str, ConfiguredReplica | ReplicaConfig]]) -> StatusReport:
    """Read the status from the replicas, each with its log's folder if known. Unreadable ones have an error."""
    return _report("replica", [_of_replica(log, replica) for log, replica in replicas])


def _report(source: str, found: _Found) -> StatusReport:
    clock = SystemClock()
    statuses = [status for status, _ in found]
    moment = clock.monotonic()
    view = StatusView(statuses, moment, clock.now(), moment, moment, moment, is_live=False)
    judgement = judge(view, HealthThresholds(0.0))
    more = {(status.log, status.replica): facts for status, facts in found}
    logs = [
        log.model_copy(
            update={
                "replicas": [
                    each.model_copy(
                        update={
                            "lag_bytes": None,
                            "lag_records": None,
                            "lag_seconds": None,
                            **more[log.log, each.replica],
                        }
                    )
                    for each in log.replicas
                ]
            }
        )
        for log in group_by_log(statuses, judgement)
    ]
    return StatusReport(
        source=source,
        litelog=VERSION,
        time=format_time(view.time),
        verdict=judgement.verdict.value,
        words=judgement.words,
        reasons=describe_reasons(judgement.reasons),
        logs=logs,
    )


def _folders(state_dir: str) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(state_dir) if entry.is_dir())
    except FileNotFoundError:
        return []


def _unknown(log: str, url: str, error: str | None = None) -> ReplicaStatus:
    return ReplicaStatus(
        log, url, fencing=UNKNOWN, phase=UNKNOWN, position=None, sequence=None, error=error, failures=0
    )


def _of_folder(folder: str, url: str, log: str | None, name: str) -> tuple[ReplicaStatus, dict[str, object]]:
    state, ended, status = read_state(folder), read_final_error(folder), _unknown(log or name, url)
    if state is None and os.path.exists(os.path.join(folder, STATE_FILE)):
        return replace(status, error=f"the state in {folder} is damaged"), {}
    has_shipped_since = ended is not None and isinstance(state, Running) and state.shipped > ended.time
    if ended is not None and not has_shipped_since:  # an earlier release ships without removing the record
        age = max(0.0, (SystemClock().now() - ended.time) / 1_000_000)
        status = replace(status, phase=ended.kind, error=ended.message, failing_seconds=age)
    if state is None or isinstance(state, Unclaimed):
        return status, {}
    claim, shipped = state.claim, state.shipped if isinstance(state, Running) else 0
    status = replace(
        status,
        fencing=str(claim.fencing),
        position=Position(claim.generation, state.place.index, state.place.offset),
        sequence=state.place.sequence,
        lost=state.lost or None,
        diverged=read_divergence(folder),
    )
    if (verified := read_result(folder)) is not None:
        status = replace(
            status,
            last_verified=verified.time or None,
            anomalies=verified.anomalies,
            damaged=verified.damaged,
            damaged_since=verified.damaged_since or None,
        )
    if (locks := read_locks(folder)) is not None:
        status = replace(status, lock_error=locks.error, locks_extended=locks.time or None)
    more: dict[str, object] = {
        "lag_bytes": None if log is None else _measure(log, claim.format, state.place),
        "last_shipped": format_time(shipped) if shipped else None,
    }
    return status, more


def _measure(log: str, format_name: str, place: SourcePosition) -> int | None:
    """The bytes in the log's folder after the recorded position; None if they cannot be determined."""
    from litelog.formats.registry import open_stored_format
    from litelog.shipping.lag import SourceEnd, find_place

    with suppress(LitelogError):
        source = SourceEnd(log, open_stored_format(format_name, None), SystemClock())
        source.look()
        if source.error is None:
            return source.view.bytes_after(find_place(place, source.format))
    return None


def _of_replica(log: str, replica: ConfiguredReplica | ReplicaConfig) -> tuple[ReplicaStatus, dict[str, object]]:
    from litelog.stores.registry import redact
    from litelog_cli.arguments import opened_replica
    from litelog_cli.listing import describe_newest

    try:
        with opened_replica(replica.url, replica.options) as client:
            url, newest = client.url, describe_newest(client)
    except LitelogError as error:
        return _unknown(log, redact(replica.url), str(error)), {}
    status = replace(
        _unknown(log, url, f"damaged: {newest.damage}" if newest.damage else None),
        fencing=newest.fencing or UNKNOWN,
        position=newest.position,
        sequence=newest.next,
    )
    more: dict[str, object] = {
        "generation": newest.generation,
        "snapshots": newest.snapshots,
        "last_shipped": None if newest.last_shipped is None else format_time(newest.last_shipped),
    }
    return status, more
