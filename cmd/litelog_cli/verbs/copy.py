"""``litelog copy``: copies a replica to another store."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from litelog.errors import ExitCode
from litelog.units import format_count, format_duration, format_size
from litelog_cli.arguments import PLACE, opened_replica
from litelog_cli.configured import find_replica
from litelog_cli.listed import replica_config_option
from litelog_cli.output import echo, print_json
from litelog_cli.progress import quiet_option, showing_progress

if TYPE_CHECKING:
    from litelog.copying.execution import CopyResult
    from litelog.stores.object_store import ObjectReplicaClient

DEFAULT_PARALLELISM = 8
MAX_PARALLELISM = 64


@click.command(
    epilog="""\b
Examples:
  litelog copy file:///backup/events s3://bucket/events
  litelog copy s3://bucket/events /mnt/disk/events --json
  litelog copy --config litelog.yml s3://bucket/events s3://other/events
\b
Run it again to continue, or to add what is new. A copy has the same names and
bytes as its replica, and is a replica: restore, cat and verify take it. The
daemon of the replica may run meanwhile. Exit codes: 0 done, 1 failure, 2 usage,
3 no replica there, 5 the target holds another replica, or a daemon wrote to it,
6 damage.
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
@replica_config_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@quiet_option
def copy(replica_url: str, target: str, parallelism: int, config_file: str | None, as_json: bool, quiet: bool) -> int:
    """Copy a replica to another store, or what an older copy in TARGET lacks. Verify each object on the way."""
    from litelog.copying.execution import copy as copy_replica
    from litelog.system.memory import keep_freed_memory

    keep_freed_memory()
    replica, place = find_replica(replica_url, config_file), find_replica(target, config_file)
    with (
        opened_replica(replica.url, replica.options) as source,
        opened_replica(place.url, place.options) as copied,
        showing_progress("copy", quiet=quiet or as_json) as show,
    ):
        result = copy_replica(
            cast("ObjectReplicaClient", source).store,
            cast("ObjectReplicaClient", copied).store,
            parallelism=parallelism,
            progress=None if show is None else lambda progress: show(progress.bytes, progress.total_bytes),
        )
    if as_json:
        print_json(
            {
                "replica": result.replica,
                "target": result.target,
                "copied_objects": result.objects,
                "copied_bytes": result.bytes,
                "objects": result.total,
                "stored_bytes": result.total_bytes,
                "deleted_objects": result.removed,
                "seconds": result.seconds,
            }
        )
    else:
        echo(_describe(result))
    return ExitCode.DONE


def _describe(result: CopyResult) -> str:
    held = f"{format_count(result.total, 'object')}, {format_size(result.total_bytes)}"
    if not result.objects and not result.removed:
        return f"nothing to copy: {result.target} has all of {result.replica} ({held})"
    copied = f"copied {format_count(result.objects, 'object')}, {format_size(result.bytes)}, to {result.target}"
    removed = f"; removed {format_count(result.removed, 'covered WAL segment')}" if result.removed else ""
    return f"{copied} in {format_duration(result.seconds)}{removed}; the replica has {held}"
