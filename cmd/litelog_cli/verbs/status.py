"""``litelog status``: shows the state of every replica."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from litelog.errors import ExitCode, LitelogError, SourceError
from litelog_cli.arguments import PLACE, is_replica
from litelog_cli.config_file import choose_state_dir, read_config
from litelog_cli.daemon_options import daemon_addr_option, daemon_config_option
from litelog_cli.output import echo, echo_colored, echo_lines, print_json

if TYPE_CHECKING:
    from litelog.config import Config, LogConfig
    from litelog.server.report import StatusReport


_COLORS = {"unsafe": "red", "late": "yellow", "safe": "green"}
"""The colors of the verdicts on a terminal. The words say the same."""


@click.command(
    epilog="""\b
Examples:
  litelog status
  litelog status /var/lib/events
  litelog status --json --config /etc/litelog.yml
  litelog status --replica s3://bucket/events
\b
Asks the daemon that runs on this machine. If none answers, it shows what the
daemon last saved in its state folder. With --replica it reads the replicas
themselves, no matter who writes them.
The first line is the verdict: safe, late or unsafe, or not known. Each reason
says what to do, and the command to begin with.
Exit codes: 0 nothing is late or unsafe, 1 something is, or no state was found,
2 usage or configuration.
"""
)
@click.argument("place", metavar="[LOG_DIR|REPLICA_URL]", required=False, type=PLACE)
@click.option(
    "--replica", "from_replica", is_flag=True, help="Read the replicas themselves instead of asking the daemon."
)
@daemon_config_option
@daemon_addr_option
@click.option("--state-dir", metavar="FOLDER", help="Where the daemon keeps its state.")
@click.option("--json", "as_json", is_flag=True, help="Print the status as one JSON object.")
def status(
    place: str | None,
    from_replica: bool,
    config_file: str | None,
    addr: str | None,
    state_dir: str | None,
    as_json: bool,
) -> int:
    """Show the state of all replicas, of those of LOG_DIR, or of the one at REPLICA_URL."""
    config = read_config(config_file)
    if from_replica:
        return _show(_of_replicas(place, config_file, config), as_json)
    from litelog.stores.registry import redact
    from litelog_cli.daemon_client import NoDaemonError, expected_state, find_daemon

    daemon = find_daemon(config, addr)
    silence = "the daemon is configured to listen nowhere (addr: off)"
    if daemon is not None:
        try:
            report = _choose(daemon.status(expected_state(state_dir, config, addr)), place)
        except NoDaemonError as error:
            if addr is not None:
                raise
            silence = str(error)
        else:
            if report.logs or place is None:
                return _show(report, as_json)
            silence = f"the daemon at {daemon.addr} does not have {redact(place)}"
    return _show(_of_state(place, config, state_dir, silence), as_json)


def _choose(answer: dict[str, Any], place: str | None) -> StatusReport:
    """The daemon's report, or the part of it that ``place`` names."""
    from pydantic import ValidationError

    from litelog.server.report import StatusReport
    from litelog_cli.daemon_client import same_log, same_replica

    try:
        report = StatusReport.model_validate(answer)
    except ValidationError as error:
        raise LitelogError("the daemon runs another version of litelog; use the command of that version") from error
    if place is None:
        return report
    logs = []
    for log in report.logs:
        replicas = [each for each in log.replicas if same_log(place, log.log) or same_replica(place, each.replica)]
        if replicas:
            logs.append(log.model_copy(update={"replicas": replicas}))
    return report.model_copy(update={"logs": logs})


def _of_state(place: str | None, config: Config | None, state_dir: str | None, silence: str) -> StatusReport:
    from litelog.stores.registry import redact
    from litelog_cli.offline_status import read_kept
    from litelog_cli.owner_state import require_readable

    folder = choose_state_dir(state_dir, config)
    require_readable(folder)
    report = read_kept(folder, place, [log.path for log in _logs_of(config)])
    if not report.logs:
        raise LitelogError(f"{silence}, and {folder} has no state" + (f" of {redact(place)}" if place else ""))
    echo(f"litelog: {silence}; this is the state kept in {folder}", err=True)
    return report


def _of_replicas(place: str | None, config_file: str | None, config: Config | None) -> StatusReport:
    from litelog.replicator.discovery import find_logs
    from litelog.system.clock import SystemClock
    from litelog_cli.configured import find_sources
    from litelog_cli.offline_status import read_replicas

    if place is None and config is not None:
        return read_replicas(
            [(log.path, replica) for log in find_logs(config, SystemClock()) for replica in log.replicas]
        )
    sources = find_sources((place,) if place is not None else (), config_file)
    known = place is not None and not is_replica(place) and config is not None and config.find_log(place) is not None
    log = place if known and place is not None else ""
    return read_replicas([(log, replica) for replica in sources.replicas])


def _logs_of(config: Config | None) -> list[LogConfig]:
    """The logs of a configuration. If a folder of logs cannot be read, only those with entries of their own."""
    from litelog.replicator.discovery import find_logs
    from litelog.system.clock import SystemClock

    if config is None:
        return []
    try:
        return find_logs(config, SystemClock())
    except SourceError:
        return list(config.own_logs)


def _show(report: StatusReport, as_json: bool) -> int:
    from litelog_cli.status_text import format_status

    if as_json:
        print_json(report.model_dump())
    else:
        lines = format_status(report)
        echo_colored(next(lines), _COLORS.get(report.verdict))
        echo_lines(lines)
    return ExitCode.FAILURE if report.verdict in ("late", "unsafe") else ExitCode.DONE
