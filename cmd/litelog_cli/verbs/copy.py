"""``litelog copy``: copies a replica to another store."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from litelog.errors import ExitCode
from litelog_cli.arguments import DURATION, PLACE, opened_replica
from litelog_cli.configured import find_replica
from litelog_cli.copy_all import CopyRun, describe, result_json
from litelog_cli.listed import replica_config_option
from litelog_cli.output import echo, print_json
from litelog_cli.progress import quiet_option, showing_progress

if TYPE_CHECKING:
    from litelog.stores.object_store import ObjectReplicaClient

DEFAULT_PARALLELISM = 8
MAX_PARALLELISM = 64
DEFAULT_INTERVAL = "10s"


@click.command(
    epilog="""\b
Examples:
  litelog copy file:///backup/events s3://bucket/events
  litelog copy s3://bucket/events /mnt/disk/events --json
  litelog copy --config litelog.yml s3://bucket/events s3://other/events
  litelog copy --all s3://bucket/backups s3://other/backups
  litelog copy --follow s3://eu-bucket/events s3://us-bucket/events
\b
Run it again to continue, or to add what is new. A copy has the same names and
bytes as its replica, and is a replica: restore, cat and verify take it. The
daemon of the replica may run meanwhile.
\b
With --all, each replica at or below REPLICA_URL, up to three levels, gets the
same name below TARGET. A replica that fails does not stop the others. --follow
copies what is new at each interval until Ctrl-C or SIGTERM. It tries again
after failures of the stores. It ends at any other failure; with --all, it
reports that and continues with the other replicas.
\b
Exit codes: 0 done, 1 failure, 2 usage, 3 no replica there, 5 the target holds
another replica, or a daemon wrote to it, 6 damage. With --all, the highest of
all replicas.
"""
)
@click.argument("replica_url", type=PLACE)
@click.argument("target", type=PLACE)
@click.option(
    "--parallelism",
    type=click.IntRange(1, MAX_PARALLELISM),
    default=DEFAULT_PARALLELISM,
    show_default=True,
    help="Objects to read or put in parallel.",
)
@click.option("--all", "is_all", is_flag=True, help="Copy all replicas at or below REPLICA_URL.")
@click.option("-f", "--follow", is_flag=True, help="Keep the copy up to date.")
@click.option(
    "--interval",
    type=DURATION,
    metavar="DURATION",
    help=f"How long --follow waits after each run.  [default: {DEFAULT_INTERVAL}]",
)
@replica_config_option
@click.option("--json", "as_json", is_flag=True, help="Print each result as one JSON object.")
@quiet_option
def copy(
    replica_url: str,
    target: str,
    parallelism: int,
    is_all: bool,
    follow: bool,
    interval: float | None,
    config_file: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Copy a replica to another store, or what an older copy in TARGET lacks. Verify each object on the way."""
    from litelog.copying.execution import copy as copy_replica
    from litelog.copying.several import ReplicaCopy
    from litelog.stores.opening import opened_copy
    from litelog.system.memory import keep_freed_memory
    from litelog.units import parse_duration

    keep_freed_memory()
    if interval is not None and (not follow or interval <= 0):
        raise click.UsageError("--interval needs --follow, and a duration above 0")
    replica, place = find_replica(replica_url, config_file), find_replica(target, config_file)
    if is_all or follow:
        wanted = ReplicaCopy(replica.url, place.url, replica.options, place.options)
        run = CopyRun(wanted, parallelism, is_all=is_all, as_json=as_json, quiet=quiet)
        return run.follow(interval or parse_duration(DEFAULT_INTERVAL)) if follow else run.copy_once()
    with (
        opened_replica(replica.url, replica.options) as source,
        opened_copy(cast("ObjectReplicaClient", source), place.url, place.options) as copied,
        showing_progress("copy", quiet=quiet or as_json) as show,
    ):
        result = copy_replica(
            cast("ObjectReplicaClient", source).store,
            copied.store,
            parallelism=parallelism,
            progress=None if show is None else lambda progress: show(progress.bytes, progress.total_bytes),
        )
    if as_json:
        print_json(result_json(result))
    else:
        echo(describe(result))
    return ExitCode.DONE
