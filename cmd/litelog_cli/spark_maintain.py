"""``litelog spark maintain``: merges, deletes orphans and prunes in replicas that only Spark writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from litelog.errors import ExitCode, LitelogError
from litelog.units import format_count, format_size
from litelog_cli.arguments import DURATION, PLACE, SIZE, opened_replica
from litelog_cli.configured import find_sources
from litelog_cli.listed import replica_config_option
from litelog_cli.output import echo, format_number, format_time, json_time, print_json, print_table
from litelog_cli.progress import quiet_option, report_walk, showing_progress
from litelog_cli.retention_plans import POLICY, given_policy, json_removals, retention_rows

if TYPE_CHECKING:
    from litelog.spark.maintenance.execution import Maintained
    from litelog.spark.maintenance.plan import MaintenanceOptions, MaintenancePlan
    from litelog.stores.replica_client import ReplicaClient


class SeveralFailedError(LitelogError):
    """Several replicas failed, each with its own error. The highest exit code counts."""

    def __init__(self, errors: list[LitelogError], attempted: int) -> None:
        self.lines = [f"{len(errors)} of {attempted} replicas failed", *(f"  {error}" for error in errors)]
        super().__init__("\n".join(self.lines))
        self.exit_code = max(error.exit_code for error in errors)


@click.command(
    short_help="Merge and prune what only Spark writes",
    epilog="""\b
Examples:
  litelog spark maintain s3://bucket/events
  litelog spark maintain s3://bucket/events --max-age 30d --confirm
  litelog spark maintain s3://bucket/orders s3://bucket/users --json
\b
Run it from a timer, while others read and write. It needs no Spark and no Java.
If a replica fails, the others are still maintained.
Exit codes: 0 done, or the plan is printed; 1 failure; 2 usage or configuration;
3 nothing there; 5 a daemon owns the replica, or a write runs; 6 damage.
If several fail, the exit code is the highest.
""",
)
@click.argument("replica_urls", metavar="REPLICA_URL...", type=PLACE, nargs=-1, required=True)
@click.option(
    "--segment-bytes",
    type=SIZE,
    default="64MiB",
    show_default=True,
    help="Merge into log segments of up to this size; 0 merges none.",
)
@click.option(
    "--compression",
    type=click.Choice(["lz4", "lz4hc", "zstd"]),
    help="Codec of merged log segments.  [default: that of those that they replace]",
)
@click.option(
    "--max-age", metavar="DURATION", help="Keep every state of this period restorable, and prune the rest: 30d, 12h."
)
@click.option("--max-bytes", metavar="SIZE", help="Keep at most this much of the replica: 10GiB.")
@click.option("--max-snapshots", type=int, help="Keep at most this many snapshots.")
@click.option("--min-snapshots", type=int, help="Keep at least this many snapshots.  [default: 1]")
@click.option(
    "--grace",
    type=DURATION,
    default="24h",
    show_default=True,
    help="A write that did nothing for this long is dead. At least 1h.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan without changing anything (the default).")
@click.option("--confirm", is_flag=True, help="Do what the plan says.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each replica.")
@replica_config_option
@quiet_option
def maintain(replica_urls: tuple[str, ...], **arguments: Any) -> int:
    """Show what can be merged and deleted in replicas that only Spark writes; with --confirm, do it.

    Small log segments become large ones, and objects that dead writes left are deleted. With --max-age, --max-bytes or
    --max-snapshots, older states are pruned. Records and commits stay as they are.
    """
    if arguments["dry_run"] and arguments["confirm"]:
        raise click.UsageError("--dry-run and --confirm exclude each other")
    options = _options(arguments)
    replicas = find_sources(replica_urls, arguments["config_file"]).replicas
    failed: list[LitelogError] = []
    for replica in replicas:
        try:
            with opened_replica(replica.url, replica.options) as client:
                _maintain(client, options, arguments)
        except LitelogError as error:
            failed.append(error)
    if failed:
        raise failed[0] if len(failed) == 1 else SeveralFailedError(failed, len(replicas))
    return ExitCode.DONE


def _options(arguments: dict[str, Any]) -> MaintenanceOptions:
    from litelog.codec.frame_codecs import Compression
    from litelog.retention.policy import RetentionPolicy
    from litelog.spark.maintenance.plan import MaintenanceOptions

    policy = given_policy({name: arguments[name] for name in POLICY})
    if policy is not None and not policy.limits:
        raise click.UsageError("--min-snapshots limits nothing: give --max-age, --max-bytes or --max-snapshots too")
    try:
        return MaintenanceOptions(
            policy or RetentionPolicy(),
            arguments["segment_bytes"],
            arguments["grace"],
            None if arguments["compression"] is None else Compression(arguments["compression"]),
        )
    except ValueError as error:
        raise click.UsageError(f"--{error}") from None


def _maintain(client: ReplicaClient, options: MaintenanceOptions, arguments: dict[str, Any]) -> None:
    from litelog.spark.maintenance.execution import maintain as carry_out
    from litelog.spark.maintenance.plan import plan_maintenance
    from litelog.system.clock import SystemClock

    clock, as_json = SystemClock(), arguments["as_json"]
    quiet = arguments["quiet"] or as_json
    walk = report_walk("maintain", quiet=quiet)
    if not arguments["confirm"]:
        plan = plan_maintenance(client, options, clock.now(), walk=walk)
        if as_json:
            print_json(_json(client.url, plan, clock.now(), None))
            return
        _print_plan(client.url, plan)
        if not plan.is_empty and not plan.is_running:
            echo("nothing was changed: add --confirm to do this")
        return
    with showing_progress("maintain", quiet=quiet) as show:
        done = carry_out(
            client,
            options,
            clock,
            lambda plan: None if as_json else _print_plan(client.url, plan),
            show or (lambda _done, _whole: None),
            walk,
        )
    if as_json:
        print_json(_json(client.url, done.plan, clock.now(), done))
    elif not done.plan.is_empty:
        begun = "" if done.generation is None else f"; the log is in generation {done.generation} now"
        echo(f"deleted {format_count(done.deleted, 'object')}, {format_size(done.freed)}{begun}")


def _print_plan(url: str, plan: MaintenancePlan) -> None:
    rows: list[tuple[str, str, str, str]] = []
    if plan.merges:
        number = format_number(sum(map(len, plan.merges)))
        why = f"become {format_number(len(plan.merges))}"
        rows.append(("log segments to merge", number, format_size(plan.merged_bytes), why))
    if plan.orphans:
        why = "no snapshot names them, and their writes are over"
        rows.append(("orphans to delete", format_number(len(plan.orphans)), format_size(plan.orphan_bytes), why))
    if plan.retention is not None:
        rows += retention_rows(plan.retention)
    if plan.is_running:
        why = f"may still run, of generation {plan.newest.generation}: until then nothing is changed"
        rows.append(("a write", "", "", why))
    if plan.unreadable:
        why = "cannot be read, so no object counts as an orphan"
        rows.append(("snapshots", format_number(plan.unreadable), "", why))
    echo(f"{url}: {'nothing to do' if plan.is_empty else 'to do'}")
    if rows:
        print_table(("what", "objects", "bytes", ""), rows, numbers=("objects", "bytes"))


def _json(url: str, plan: MaintenancePlan, now: int, done: Maintained | None) -> dict[str, Any]:
    from litelog.objects.layout import sealed_key

    retention = plan.retention
    planned = plan.orphan_bytes + (0 if retention is None else retention.freed)
    return {
        "replica": url,
        "time": format_time(now),
        "running": plan.is_running,
        "merges": [
            {
                "first": group[0].first,
                "next": group[-1].next,
                "log_segments": len(group),
                "log_bytes": sum(entry.length for entry in group),
            }
            for group in plan.merges
        ],
        "orphans": [
            {"object": sealed_key(info.generation, info.index), "stored_bytes": info.size} for info in plan.orphans
        ],
        "window_start": json_time(None if retention is None else retention.window_start),
        "removals": [] if retention is None else json_removals(retention),
        "removed_bytes": planned if done is None else done.freed,
        "deleted_objects": None if done is None else done.deleted,
        "unreadable_count": plan.unreadable,
        "generation": None if done is None else done.generation,
    }
