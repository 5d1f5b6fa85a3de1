"""Reports of ``litelog replicate`` at its start and at its end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from litelog.errors import FencedError
from litelog.events import fields
from litelog.units import format_count, format_duration, format_size
from litelog.version import VERSION
from litelog_cli.logging_setup import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.config import Config
    from litelog.replicator.status import ReplicaStatus
    from litelog.server.listener import Address

_logger = logging.getLogger(__name__)

DONE = "done"
"""The phase of a replica whose final sync reached the log's end."""


def log_start(config: Config, config_file: str | None, state_dir: str, address: Address | None) -> None:
    """Log what a daemon replicates, where its configuration and state are, and where it serves its status.

    ``config_file``: None if the configuration comes from the command line.
    """
    logs = config.own_logs
    what = format_count(len(logs), "log")
    if config.folders:
        below = ", ".join(folder.dir for folder in config.folders)
        what = f"{what} and those below {below}" if logs else f"the logs below {below}"
    source = "from the command line" if config_file is None else f"configured by {config_file}"
    replicas = format_count(sum(len(log.replicas) for log in logs), "replica")
    scheme = "http" if config.tls is None else "https"
    status = "no status over HTTP" if address is None else f"status at {_render(address, scheme)}"
    extra = fields("starting", litelog=VERSION, config=config_file, state_dir=state_dir, addr=str(address or ""))
    message = "litelog %s: replicating %s to %s (%s; state in %s); %s"
    to = replicas if logs else "their replicas"
    _logger.info(message, VERSION, what, to, source, state_dir, status, extra=extra)


def log_end(statuses: Sequence[ReplicaStatus], seconds: float) -> None:
    """Log how the final sync ended, and for which logs the daemon still waited. ``seconds``: its duration."""
    for log in dict.fromkeys(status.log for status in statuses if _is_awaited(status)):
        said = "%s: there was nothing to ship; the folder never appeared"
        _logger.info(said, log, extra=fields("log-awaited", log=log))
    synced = [status for status in statuses if not _is_awaited(status)]
    complete = sum(status.phase == DONE for status in synced)
    whole = format_count(len(synced), "replica")
    held = f"{whole} complete" if complete == len(synced) else f"{complete} of {whole} complete"
    extra = fields("final-sync", seconds=round(seconds, 3), complete_count=complete, replica_count=len(synced))
    _logger.info("final sync done in %s: %s", format_duration(seconds), held, extra=extra)


def _is_awaited(status: ReplicaStatus) -> bool:
    return status.phase == DONE and status.source_missing


def say_shipped(statuses: Sequence[ReplicaStatus]) -> None:
    """Report what one pass shipped to each replica."""
    for status in statuses:
        counts = status.counters.counts if status.counters is not None else None
        if counts is None or status.phase != DONE:
            continue
        size = counts.wal_log_bytes + counts.sealed_log_bytes
        stored = counts.wal_object_bytes + counts.sealed_object_bytes
        reached = "" if not status.sequence else f"; it ends with sequence {status.sequence - 1:,}"
        said = f"shipped {format_size(size)} ({format_size(stored)} stored) to {status.replica}{reached}"
        if not size:
            said = f"nothing new to ship to {status.replica}{reached}"
        if status.withheld_by is not None:
            withheld = "records after the watermark were left out, because the log's writer may take them back"
            said = f"{said}; {withheld} ({status.withheld_by}; to ship them: --watermark none)"
        position = status.position
        say(
            said,
            "shipped-all",
            log=status.log,
            replica=status.replica,
            position=position,
            log_bytes=size,
            stored_bytes=stored,
        )


def explain_takeover(error: FencedError) -> FencedError:
    """The error of a replica that another daemon has taken over, with what to do."""
    advice = "If that was a mistake: stop that daemon, then start this one with --takeover"
    return FencedError(f"{error}. {advice}")


def _render(address: Address, scheme: str) -> str:
    return str(address) if address.path is not None else f"{scheme}://{address}"
