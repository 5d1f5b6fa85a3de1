"""``litelog prune``: shows what retention would delete from a replica; with --confirm, deletes it."""

from __future__ import annotations

import glob
import os
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any

import click

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, ExitCode, FencedError, NoReplicaError, ReplicaLockedError
from litelog.retention.policy import GRACE_SECONDS, RetentionPolicy
from litelog.units import format_count, format_size
from litelog_cli.arguments import PLACE, opened_replica
from litelog_cli.config_file import choose_state_dir, read_config
from litelog_cli.configured import options_of
from litelog_cli.listed import identity_option
from litelog_cli.output import echo, format_moment, format_time, json_time, print_json, print_table
from litelog_cli.owner_state import require_readable
from litelog_cli.progress import quiet_option, report_walk, showing_progress
from litelog_cli.retention_plans import POLICY, given_policy, json_removals, retention_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from litelog.config import Config
    from litelog.retention.plan import RetentionPlan


@dataclass(frozen=True, slots=True)
class _Replica:
    url: str
    log: str | None = None
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    policy: RetentionPolicy | None = None
    wal_retention: float = GRACE_SECONDS
    no_delete: bool = False
    """Whether its daemon deletes nothing."""


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """The arguments and options of ``litelog prune``."""

    place: str
    config_file: str | None
    state_dir: str | None
    max_age: str | None
    max_bytes: str | None
    max_snapshots: int | None
    min_snapshots: int | None
    dry_run: bool
    confirm: bool
    as_pruner: bool
    as_json: bool
    quiet: bool


@click.command(
    epilog="""\b
Examples:
  litelog prune /var/lib/events --dry-run
  litelog prune file:///backup/events --max-age 30d
  litelog prune file:///backup/events --max-age 30d --min-snapshots 3 --confirm
  litelog prune file:///backup/events --max-bytes 10GiB --json
  litelog prune s3://backups/events --as-pruner --max-age 30d --confirm
\b
A daemon prunes automatically, as its configuration says. This command is for
replicas whose daemon is stopped, or has no-delete. With no-delete, run it on any
machine while the daemon runs. Without --confirm it deletes nothing.
Exit codes: 0 done, 1 failure, 2 usage or configuration, 3 nothing there,
5 not the owner, or its daemon is running.
"""
)
@click.argument("place", metavar="REPLICA_URL|LOG_DIR", type=PLACE)
@click.option("--config", "config_file", type=click.Path(), help="The configuration file.")
@identity_option
@click.option("--state-dir", metavar="FOLDER", help="Where the daemon keeps its state.")
@click.option("--max-age", metavar="DURATION", help="Keep every state of this period restorable: 30d, 12h.")
@click.option("--max-bytes", metavar="SIZE", help="Keep at most this much of the replica: 10GiB.")
@click.option("--max-snapshots", type=int, help="Keep at most this many snapshots.")
@click.option("--min-snapshots", type=int, help="Keep at least this many snapshots.  [default: 1]")
@click.option("--dry-run", is_flag=True, help="Show the plan without deleting anything (the default).")
@click.option("--confirm", is_flag=True, help="Delete what the plan lists.")
@click.option(
    "--as-pruner",
    is_flag=True,
    help="Prune while a daemon with no-delete runs, without its state folder. Also deletes WAL segments that a "
    "snapshot has covered for wal-retention.  "
    "[default: as the replica's no-delete says]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each replica.")
@quiet_option
def prune(**arguments: Any) -> int:
    """Show what retention would delete from a replica, and why the rest stays; with --confirm, delete it.

    LOG_DIR, the folder of a configured log, stands for all its replicas, each with its own retention. The limits given
    here replace the configured ones.
    """
    options = PruneOptions(**arguments)
    if options.dry_run and options.confirm:
        raise click.UsageError("--dry-run and --confirm exclude each other")
    policy = given_policy({name: arguments[name] for name in POLICY})
    from litelog.stores.registry import redact

    config = read_config(options.config_file)
    replicas = list(_find(config, options.place, options.config_file is not None))
    kept_in = choose_state_dir(options.state_dir, config)
    for replica in replicas:
        chosen = policy or replica.policy
        is_pruner = options.as_pruner or replica.no_delete
        if chosen is None and is_pruner:
            chosen = RetentionPolicy()  # what snapshots cover, and nothing else
        if chosen is None or not (chosen.limits or is_pruner):
            raise ConfigError(
                f"{redact(replica.url)}: no retention is configured: give --max-age, --max-bytes or --max-snapshots"
            )
        _prune(replica, chosen, kept_in, options)
    return ExitCode.DONE


def _find(config: Config | None, place: str, asked: bool) -> Iterator[_Replica]:
    """The replicas that ``place`` names, with their settings from the configuration."""
    from litelog.replicator.discovery import find_logs
    from litelog.system.clock import SystemClock

    found = False
    for log in find_logs(config, SystemClock()) if config is not None else ():
        is_log = "://" not in place and os.path.abspath(log.path) == os.path.abspath(place)
        for replica in log.replicas:
            if is_log or replica.url == place:
                found = True
                retention, wal_retention = replica.retention.policy(), replica.wal_retention
                yield _Replica(replica.url, log.path, options_of(replica), retention, wal_retention, replica.no_delete)
    if not found and asked and "://" not in place:
        raise click.UsageError(f"{place}: neither a log nor a replica of the configuration")
    if not found:
        yield _Replica(place)


def _prune(replica: _Replica, policy: RetentionPolicy, state_dir: str, options: PruneOptions) -> None:
    from litelog.shipping.pruner import PruningSession
    from litelog.system.clock import SystemClock

    quiet = options.quiet or options.as_json
    is_pruner = options.as_pruner or replica.no_delete
    if options.confirm and not is_pruner:
        require_readable(state_dir, replica.log)
    with opened_replica(replica.url, replica.options) as client:
        folder, walk = _state_folder(replica, state_dir, client.url), report_walk("prune", quiet=quiet)
        wal_retention = replica.wal_retention if is_pruner else None
        session = PruningSession(client, policy, SystemClock(), folder, walk, wal_retention)
        deleted = None
        if options.confirm:
            with showing_progress("prune", quiet=quiet) as show, _explaining_refusals():
                pruned = session.prune(
                    lambda plan: None if options.as_json else _print_plan(client.url, plan),
                    show or (lambda _done, _whole: None),
                )
            plan = None if pruned is None else pruned.plan
            deleted = 0 if pruned is None else pruned.deleted
        else:
            plan = session.plan()
        if plan is None:
            raise NoReplicaError(client.url)
        if options.as_json:
            print_json(_json(client.url, plan, deleted))
        elif options.confirm:
            echo(f"deleted {format_count(deleted or 0, 'object')}")
        else:
            _print_plan(client.url, plan)
            if plan.removals:
                echo("nothing was deleted: add --confirm to delete")


@contextmanager
def _explaining_refusals() -> Iterator[None]:
    """Add what to do to an error of the block: if the replica's daemon runs, or runs elsewhere."""
    from litelog.shipping.pruner import NotOwnerError

    try:
        yield
    except ReplicaLockedError as error:
        advice = "its daemon is running and prunes as its configuration says; stop it first"
        raise ReplicaLockedError(error.path, f"{advice}: its state") from error
    except NotOwnerError as error:
        raise FencedError(
            f"{error} (--state-dir). If its daemon has no-delete, add --as-pruner. If that machine is gone, take the "
            "replica over with litelog replicate --once --takeover, and prune then"
        ) from error


def _state_folder(replica: _Replica, state_dir: str, place: str) -> str | None:
    """The owner's state folder. For a replica that is not configured, the only one under the replica's name, if any."""
    from litelog.replicator.wiring import state_folder_of

    if replica.log is not None:
        return state_folder_of(state_dir, replica.log, replica.url, place)
    name = os.path.basename(state_folder_of(state_dir, "/", replica.url, place))
    found = glob.glob(os.path.join(glob.escape(state_dir), "*", name))
    return found[0] if len(found) == 1 else None


def _print_plan(url: str, plan: RetentionPlan) -> None:
    since = "" if plan.window_start is None else f", every state since {format_moment(plan.window_start)} stays"
    echo(f"{url}: {format_count(len(plan.removals), 'object')} to delete, {format_size(plan.freed)}{since}")
    print_table(("what", "objects", "bytes", ""), retention_rows(plan), numbers=("objects", "bytes"))


def _json(url: str, plan: RetentionPlan, deleted: int | None) -> dict[str, Any]:
    return {
        "replica": url,
        "time": format_time(plan.now),
        "window_start": json_time(plan.window_start),
        "oldest_snapshot": plan.cut,
        "cause": plan.cause,
        "removals": json_removals(plan),
        "removed_bytes": plan.freed,
        "stays": [
            {"reason": why, "objects": total.count, "stored_bytes": total.bytes} for why, total in plan.stays.items()
        ],
        "stored_bytes": plan.left,
        "beyond_bytes": plan.beyond,
        "deleted_objects": deleted,
    }
