"""The status without a daemon: from its state folder, or from the replicas themselves."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from litelog.errors import LitelogError
from litelog.log.replica_registry import ReplicaSet, log_state_folder
from litelog.objects.position import Position
from litelog.server.make_report import format_time
from litelog.server.report import LogReport, ReplicaReport, StatusReport
from litelog.shipping.state import Running, Unclaimed, read_state
from litelog.system.clock import SystemClock
from litelog.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.config import ReplicaConfig
    from litelog.log.source_position import SourcePosition
    from litelog_cli.configured import ConfiguredReplica

UNKNOWN = "unknown"


def read_kept(state_dir: str, place: str | None, configured: Sequence[str]) -> StatusReport:
    """Read the status of all logs, or of the log or replica at ``place``, from ``state_dir``.

    A log that is neither ``place`` nor ``configured`` gets the name of its state folder, which does not hold its path.
    """
    from litelog_cli.daemon_client import same_replica

    paths = {os.path.basename(log_state_folder(state_dir, path)): path for path in configured}
    named = None
    if place is not None and "://" not in place:
        named = os.path.basename(log_state_folder(state_dir, place))
        paths.setdefault(named, os.path.abspath(place))
    logs = []
    for name in _folders(state_dir):
        folder = os.path.join(state_dir, name)
        replicas = ReplicaSet(folder).names() or {}
        wanted = {
            each: url for each, url in replicas.items() if place is None or name == named or same_replica(place, url)
        }
        if wanted:
            log = paths.get(name)
            reports = [_of_folder(os.path.join(folder, each), url, log) for each, url in wanted.items()]
            logs.append(LogReport(log=log or name, replicas=reports))
    return _report("state", logs)


def read_replicas(replicas: Sequence[tuple[str, ConfiguredReplica | ReplicaConfig]]) -> StatusReport:
    """Read the status from the replicas, each with its log's folder if known. Unreadable ones have an error."""
    logs: dict[str, list[ReplicaReport]] = {}
    for log, replica in replicas:
        logs.setdefault(log, []).append(_of_replica(replica))
    return _report("replica", [LogReport(log=log, replicas=found) for log, found in logs.items()])


def _report(source: str, logs: list[LogReport]) -> StatusReport:
    return StatusReport(source=source, litelog=VERSION, time=format_time(SystemClock().now()), logs=logs)


def _folders(state_dir: str) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(state_dir) if entry.is_dir())
    except FileNotFoundError:
        return []


def _of_folder(folder: str, url: str, log: str | None) -> ReplicaReport:
    state = read_state(folder)
    if state is None or isinstance(state, Unclaimed):
        return ReplicaReport(replica=url, phase=UNKNOWN, fencing=UNKNOWN, error="no state is kept, or it is damaged")
    claim, shipped = state.claim, state.shipped if isinstance(state, Running) else 0
    position = Position(claim.generation, state.place.index, state.place.offset)
    return ReplicaReport(
        replica=url,
        phase=UNKNOWN,
        fencing=str(claim.fencing),
        generation=claim.generation,
        position=str(position),
        sequence=state.place.sequence,
        lag_bytes=None if log is None else _measure(log, claim.format, state.place),
        last_shipped=format_time(shipped) if shipped else None,
    )


def _measure(log: str, format_name: str, place: SourcePosition) -> int | None:
    """The bytes in the log's folder after the recorded position; None if they cannot be determined."""
    from litelog.formats.registry import open_stored_format
    from litelog.shipping.lag import SourceEnd, find_place

    with suppress(LitelogError):
        source = SourceEnd(log, open_stored_format(format_name, None), SystemClock())
        source.look()
        if source.error is None:
            return source.view.bytes_behind(find_place(place, source.format))
    return None


def _of_replica(replica: ConfiguredReplica | ReplicaConfig) -> ReplicaReport:
    from litelog.stores.registry import redact
    from litelog_cli.arguments import opened_replica
    from litelog_cli.listing import describe_generations

    try:
        with opened_replica(replica.url, replica.options) as client:
            url, found = client.url, describe_generations(client)
    except LitelogError as error:
        return ReplicaReport(replica=redact(replica.url), phase=UNKNOWN, fencing=UNKNOWN, error=str(error))
    if not found:
        return ReplicaReport(replica=url, phase=UNKNOWN, fencing=UNKNOWN, error="holds no generation")
    newest = found[-1]
    return ReplicaReport(
        replica=url,
        phase=UNKNOWN,
        fencing=newest.fencing or UNKNOWN,
        generation=newest.generation,
        position=newest.end,
        sequence=newest.next_sequence,
        snapshots=newest.snapshots,
        last_shipped=None if newest.last_shipped is None else format_time(newest.last_shipped),
        error="damaged" if newest.damage else None,
    )
