"""Formats a replica's status as a row of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.objects.layout import Fencing
from litelog.units import format_duration, format_size
from litelog_cli.output import format_number

if TYPE_CHECKING:
    from litelog.server.report import ReplicaReport


def format_pair(log: str | None, replica: str | None) -> str:
    """A log and its replica, as far as they are known."""
    return " to ".join(filter(None, (log, replica)))


def make_row(log: str, replica: ReplicaReport) -> tuple[str, ...]:
    """The cells: log, replica, phase, lag, bytes behind, position, sequence, verified, problems."""
    errors = (replica.error, replica.archive_error, replica.source_error, replica.verify_error)
    return (
        log or "-",
        replica.replica,
        f"{replica.phase}, isolated" if replica.fencing == Fencing.ISOLATED else replica.phase,
        "-" if replica.lag_seconds is None else format_duration(replica.lag_seconds),
        "-" if replica.lag_bytes is None else format_size(replica.lag_bytes),
        replica.position or "-",
        format_number(replica.sequence),
        replica.last_verified or "-",
        "; ".join(filter(None, dict.fromkeys(errors))),  # two may be equal
    )
