"""``litelog snapshot``: writes a snapshot now, through the daemon if one runs."""

from __future__ import annotations

import os
import secrets
import socket
import time
from typing import TYPE_CHECKING, Any

import click

from litelog.dataclass import dataclass
from litelog.errors import LitelogError
from litelog_cli.arguments import PLACE
from litelog_cli.config_file import choose_state_dir
from litelog_cli.output import echo, print_json
from litelog_cli.progress import ShippingProgress, quiet_option, watching_progress
from litelog_cli.verbs.replicate import config_of

if TYPE_CHECKING:
    from litelog.config import Config, LogConfig, ReplicaConfig

LOOK_SECONDS = 0.05


class UnansweredError(LitelogError):
    """The daemon did not answer, or answered with an error."""


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """The arguments and options of ``litelog snapshot``."""

    log_dir: str | None
    replica_urls: tuple[str, ...]
    config_file: str | None
    state_dir: str | None
    timeout: str
    as_json: bool
    quiet: bool


@click.command(
    epilog="""\b
Examples:
  litelog snapshot /var/lib/events file:///backup/events
  litelog snapshot --config /etc/litelog.yml
\b
If a daemon replicates the log, it writes the snapshot: it seals all finished log
segments, and the snapshot names them. Without a daemon this command ships the
rest of the log, as `litelog replicate --once` does, and then writes the snapshot.
If no log segment was finished since the last snapshot, that one stays the newest.
Exit codes: 0 done, 1 failure or no answer in time, 2 usage or configuration,
5 fenced.
"""
)
@click.argument("log_dir", required=False, type=PLACE)
@click.argument("replica_urls", nargs=-1, type=PLACE)
@click.option("--config", "config_file", type=click.Path(), help="Configuration file.")
@click.option("--state-dir", metavar="FOLDER", help="Where the daemon keeps its state.")
@click.option(
    "--wait",
    "--timeout",
    "timeout",
    metavar="DURATION",
    default="1m",
    show_default=True,
    help="How long to wait for a daemon.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each replica's newest snapshot as a JSON line.")
@quiet_option
def snapshot(**arguments: Any) -> None:
    """Write a snapshot now, for each replica of the configuration or of LOG_DIR."""
    from litelog.units import parse_duration

    options = SnapshotOptions(**arguments)
    try:
        seconds = parse_duration(options.timeout)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--wait") from error
    config = config_of(options.log_dir, options.replica_urls, options.config_file)
    kept_in = choose_state_dir(options.state_dir, config)
    running, free = _split_running(config, kept_in)
    found = _ask(kept_in, running, seconds)
    if free is not None:
        found += _snapshot_without_daemon(free, kept_in, quiet=options.quiet or options.as_json)
    for log, url, key in found:
        if options.as_json:
            print_json({"log": log, "replica": url, "snapshot": key})
        else:
            echo(f"{log} to {url}: {key or 'no log segment is finished yet, so there is no snapshot'}")


def _split_running(config: Config, state_dir: str) -> tuple[list[tuple[str, str, str]], Config | None]:
    """Return (log, replica, state folder) of each replica that a daemon uses, and a configuration of the rest, if
    any."""
    from litelog.replicator.discovery import find_logs
    from litelog.system.clock import SystemClock

    running, logs = [], []
    for log in find_logs(config, SystemClock()):
        left = []
        for replica in log.replicas:
            url, folder = _state_folder(log, replica, state_dir)
            if _is_locked(folder):
                running.append((log.path, url, os.path.relpath(folder, state_dir)))
            else:
                left.append(replica)
        if left:
            logs.append(log.model_copy(update={"replicas": tuple(left)}))
    return running, config.model_copy(update={"logs": tuple(logs)}) if logs else None


def _state_folder(log: LogConfig, replica: ReplicaConfig, state_dir: str) -> tuple[str, str]:
    from litelog.replicator.wiring import state_folder_of
    from litelog.stores.registry import open_store

    store = open_store(replica.url, replica.options)
    url = store.url
    store.close()
    return url, state_folder_of(state_dir, log.path, replica.url, url)


def _is_locked(folder: str) -> bool:
    from litelog.errors import ReplicaLockedError
    from litelog.shipping.state import StateFolder

    if not os.path.isdir(folder):
        return False
    try:
        StateFolder(folder, folder).close()
    except ReplicaLockedError:
        return True
    return False


def _ask(state_dir: str, running: list[tuple[str, str, str]], seconds: float) -> list[tuple[str, str, str | None]]:
    """Ask daemons, and wait for their answers. Returns (log, replica, newest snapshot) of each."""
    from litelog.replicator.snapshot_requests import Request, Requests

    requests = Requests(state_dir)
    asked = []
    for log, url, folder in running:
        request = Request(secrets.token_hex(8), folder)
        requests.ask(request)
        asked.append((log, url, request))
    deadline = time.monotonic() + seconds
    found: list[tuple[str, str, str | None]] = []
    for log, url, request in asked:
        while (answer := requests.find_answer(request.token)) is None:
            if time.monotonic() >= deadline:
                taken = "" if requests.withdraw(request.token) else ", though it took the request"
                raise UnansweredError(f"{log} to {url}: its daemon did not answer within {seconds:g} s{taken}")
            time.sleep(LOOK_SECONDS)
        if answer.error is not None:
            raise UnansweredError(f"{log} to {url}: {answer.error} (the daemon tries again)")
        found.append((log, url, answer.snapshot))
    return found


def _snapshot_without_daemon(config: Config, state_dir: str, *, quiet: bool) -> list[tuple[str, str, str | None]]:
    """Ship all that the logs hold, seal finished log segments, and write the snapshots."""
    from litelog.replicator import Replicator

    replicator = Replicator(config, state_dir=state_dir, host=socket.gethostname())
    with watching_progress("snapshot", quiet=quiet, look=ShippingProgress(replicator).look):
        replicator.run(once=True)
    statuses = replicator.status()
    for status in statuses:
        if status.archive_error is not None:
            raise UnansweredError(f"{status.log} to {status.replica}: {status.archive_error}")
    return [(status.log, status.replica, status.snapshot) for status in statuses]
