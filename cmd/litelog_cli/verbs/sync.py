"""``litelog sync``: waits until all current data of logs is in their replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from litelog.errors import ExitCode, LitelogError
from litelog_cli.arguments import PLACE
from litelog_cli.config_file import read_config
from litelog_cli.daemon_options import daemon_addr_option, daemon_config_option
from litelog_cli.output import echo, print_json
from litelog_cli.status_text import format_pair

if TYPE_CHECKING:
    from litelog_cli.daemon_client import DaemonClient

REACHED, TOO_LATE = 200, 504


@click.command(
    epilog="""\b
Examples:
  litelog sync                                        all logs, all replicas
  litelog sync --wait 2m /var/lib/events
  litelog sync --replica s3://bucket/events /var/lib/events
\b
Asks the daemon that runs on this machine. The command does not hasten uploads:
it waits for those that are due anyway.
Exit codes: 0 all is there, 1 not in time or no daemon, 2 usage or configuration.
"""
)
@click.argument("log_dir", required=False, type=PLACE)
@click.option(
    "--wait",
    "--timeout",
    "wait",
    metavar="DURATION",
    default="30s",
    show_default=True,
    help="How long to wait; at most 10m.",
)
@click.option("--replica", "replica_url", metavar="URL", help="Wait for this replica only.")
@daemon_config_option
@daemon_addr_option
@click.option("--state-dir", metavar="FOLDER", help="State folder of the daemon: refuse a daemon with another one.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as a JSON object.")
def sync(
    log_dir: str | None,
    wait: str,
    replica_url: str | None,
    config_file: str | None,
    addr: str | None,
    state_dir: str | None,
    as_json: bool,
) -> int:
    """Wait until the current data of all logs, or of the log in LOG_DIR, is durable in their replicas."""
    from litelog.units import parse_duration
    from litelog_cli.daemon_client import expected_state, find_daemon

    try:
        seconds = parse_duration(wait)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--wait") from error
    if seconds > 600:
        raise click.BadParameter("must be at most 10m", param_hint="--wait")
    config = read_config(config_file)
    daemon = find_daemon(config, addr)
    if daemon is None:
        raise LitelogError("the daemon does not listen (addr: off), so the command cannot reach it")
    status = daemon.status(expected_state(state_dir, config, addr))
    query = {"wait": wait, **_choose(daemon, status, log_dir, replica_url)}
    answer = daemon.post("/sync", seconds, (REACHED, TOO_LATE), **query)
    if as_json:
        print_json(answer)
    else:
        _print(answer, f"process {status.get('pid')} on {status.get('host')}, at {daemon.addr}")
    return ExitCode.DONE if answer["reached"] else ExitCode.FAILURE


def _choose(
    daemon: DaemonClient, status: dict[str, Any], log_dir: str | None, replica_url: str | None
) -> dict[str, str]:
    """The log and the replica, as the daemon names them. Raises LitelogError if the daemon has no such log or
    replica."""
    from litelog.stores.registry import redact
    from litelog_cli.daemon_client import same_log, same_replica

    if log_dir is None and replica_url is None:
        return {}
    logs: list[dict[str, Any]] = status["logs"]
    found = [log for log in logs if log_dir is None or same_log(log_dir, log["log"])]
    if not found:
        for each in status.get("not_replicated", ()):
            if log_dir is not None and same_log(log_dir, each["log"]):
                raise LitelogError(f"{each['log']}: is not replicated: {each['reason']}")
        known = ", ".join(log["log"] for log in logs) or "none"
        raise LitelogError(f"{redact(log_dir or '')}: not a log of the daemon at {daemon.addr} (known: {known})")
    query = {} if log_dir is None else {"log": found[0]["log"]}
    if replica_url is None:
        return query
    urls = [replica["replica"] for log in found for replica in log["replicas"]]
    match = next((url for url in urls if same_replica(replica_url, url)), None)
    if match is None:
        raise LitelogError(f"no such replica for the daemon at {daemon.addr} (known: {', '.join(urls)})")
    return {**query, "replica": match}


def _print(answer: dict[str, Any], daemon: str) -> None:
    """Print the answer. ``daemon``: describes the daemon that answered."""
    for each in answer["unreached"]:
        why = f": {each['sync_error']}" if each["sync_error"] else ""
        place = format_pair(each["log"], each["replica"])
        echo(f"{place or 'all logs'}: not in time ({each['phase']}){why}", err=True)
    count = answer["replica_count"]
    words = "replica has" if count == 1 else "replicas have"
    seconds = answer["seconds"]
    echo(f"{count - len(answer['unreached'])} of {count} {words} all of it, after {seconds:.1f} s ({daemon})")
