"""Formats a status for people: the verdict first, a block for each reason, then lines for each replica and mirror."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from litelog.objects.layout import Fencing
from litelog.units import format_count, format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.server.report import MirrorReport, Reason, ReplicaReport, StatusReport

MAX_REASONS = 20
"""How many reasons are shown. ``--json`` has all of them."""


def format_pair(log: str | None, replica: str | None) -> str:
    """The names of a log and its replica; only one name if the other is not known."""
    return " to ".join(filter(None, (log, replica)))


def format_status(report: StatusReport) -> Iterator[str]:
    """The lines of the report. Names are never shortened, so a line may be long."""
    yield report.words
    where = (
        ("host ", report.host),
        ("configuration ", report.config),
        ("litelog ", report.litelog),
        ("as of ", _format_time(report.time)),
    )
    yield "; ".join(word + value for word, value in where if value)
    for reason in report.reasons[:MAX_REASONS]:
        yield ""
        yield from _format_reason(reason)
    if len(report.reasons) > MAX_REASONS:
        yield ""
        yield f"and {len(report.reasons) - MAX_REASONS} more: --json shows all"
    for log in report.logs:
        yield ""
        yield log.log or "log not known"
        for replica in log.replicas:
            yield from _format_replica(report, replica)
        for mirror in log.mirrors:
            yield from _format_mirror(mirror, log.mirror_wait_seconds)


def _format_reason(reason: Reason) -> Iterator[str]:
    pair = format_pair(reason.log, reason.replica)
    yield f"{_TITLES.get(reason.verdict, reason.verdict)}: {pair or 'the daemon'}"
    since = f" (since {_format_time(reason.since)})" if reason.since is not None else ""
    kind = "" if reason.message.startswith(reason.kind) else f"{reason.kind}: "
    yield f"  {kind}{reason.message}{since}"
    if reason.action is not None:
        yield f"  {reason.action}"
    if reason.command is not None:
        yield f"  $ {reason.command}"


_TITLES = {"unsafe": "UNSAFE", "late": "LATE", "unknown": "not known", "safe": "warning"}


def _format_replica(report: StatusReport, replica: ReplicaReport) -> Iterator[str]:
    phase = replica.phase if replica.phase not in ("idle", "unknown", replica.condition) else ""
    isolated = "isolated" if replica.fencing == Fencing.ISOLATED else ""
    more = ", ".join(filter(None, (phase, isolated, "no-delete" if replica.no_delete else "")))
    yield f"  {replica.condition}{more and f' ({more})'}: {replica.replica}"
    facts = [_format_lag(replica)]
    if replica.next is not None:
        facts.append(f"next sequence {replica.next:,}")
    if replica.position is not None:
        facts.append(f"position {_shorten(replica.position)}")
    if replica.last_verified is not None:
        facts.append(f"verified {_format_age(report, replica.last_verified)}")
    elif report.source == "daemon":
        facts.append("not verified yet")
    yield f"    {', '.join(facts)}"


def _format_lag(replica: ReplicaReport) -> str:
    if replica.lag_bytes is None and replica.lag_seconds is None:
        return "lag not known"
    age = format_duration(replica.lag_seconds) if replica.lag_seconds else ""
    size = format_size(replica.lag_bytes) if replica.lag_bytes else ""
    records = f" ({format_count(replica.lag_records, 'record')})" if size and replica.lag_records else ""
    return f"lag {' and '.join(filter(None, (age, size))) or 'none'}{records}"


def _format_mirror(mirror: MirrorReport, wait: float | None) -> Iterator[str]:
    yield f"  mirror: {mirror.mirror}"
    lag = format_duration(mirror.lag_seconds) if mirror.lag_seconds else "none"
    facts = [f"lag {lag}", f"seen {format_duration(mirror.seen_seconds)} ago"]
    if mirror.next is not None:
        facts.append(f"next sequence {mirror.next:,}")
    facts.append(f"position {_shorten(mirror.position)}")
    awaited = "does not wait for it" if wait is None else f"waits for it, {format_duration(wait)} at most"
    yield f"    {', '.join(facts)}"
    yield f"    truncation {awaited}"


def _format_time(moment: str) -> str:
    """A time of the report, to the second."""
    return f"{moment[:10]} {moment[11:19]}Z"


def _format_age(report: StatusReport, moment: str) -> str:
    seconds = (datetime.fromisoformat(report.time) - datetime.fromisoformat(moment)).total_seconds()
    return f"{format_duration(max(0.0, seconds))} ago"


def _shorten(position: str) -> str:
    """A position with its whole generation, and without the leading zeros of index and offset."""
    generation, *numbers = position.split("/")
    return "/".join([generation, *(number.lstrip("0") or "0" for number in numbers)])
