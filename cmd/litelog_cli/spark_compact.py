"""``litelog spark compact``: larger files for exported tables."""

from __future__ import annotations

import click

from litelog.units import format_count, format_size
from litelog_cli.arguments import PLACE, SIZE
from litelog_cli.output import echo, print_json
from litelog_cli.progress import quiet_option, showing_progress
from litelog_cli.spark_session import target_option


@click.command(
    short_help="Make large files of an exported table",
    epilog="""\b
Examples:
  litelog spark compact /data/events
  litelog spark compact /data/events --confirm
  litelog spark compact s3://bucket/table --file-bytes 256MiB --confirm --json
\b
It needs no Spark and no Java. Run it from a timer, while exports run and others
read. If it is killed, run it again: it completes what is left.
A Delta or Iceberg table keeps the old files for its older versions: delete them
as such tables do (VACUUM; expire_snapshots). In a plain Parquet table they are
deleted, so a query that reads them at that moment fails: repeat it.
Exit codes: 0 done, or the plan is printed; 1 failure; 2 usage; 3 no export
there; 6 damage.
""",
)
@click.argument("target", type=PLACE)
@click.option(
    "--file-bytes",
    type=SIZE,
    default="128MiB",
    show_default=True,
    help="Replace small files by files of up to this size.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done (the default).")
@click.option("--confirm", is_flag=True, help="Do it.")
@target_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as a JSON object.")
@quiet_option
def compact(
    target: str,
    file_bytes: int,
    target_option: tuple[tuple[str, str], ...],
    *,
    dry_run: bool,
    confirm: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show which small files of the exported table TARGET can become large ones; with --confirm, do it.

    Rows stay as they are. Files of different partitions stay apart. In a plain Parquet table, those of the last run of
    an export stay until the next one.
    """
    from litelog.spark.jobs import compact as run_compact
    from litelog.stores.registry import redact

    if dry_run and confirm:
        raise click.UsageError("--dry-run and --confirm exclude each other")
    with showing_progress("compact", quiet=quiet or as_json) as show:
        done = run_compact(
            target,
            file_bytes=file_bytes,
            dry_run=not confirm,
            target_options=dict(target_option) or None,
            progress=show,
        )
    if as_json:
        numbers = {"replaced_count": done.files, "replaced_bytes": done.bytes, "file_count": done.groups}
        print_json({"target": redact(target), "table": done.table, "carried_out": confirm, **numbers})
        return
    if not done.groups:
        echo("nothing to compact")
        return
    files, new = f"{format_count(done.files, 'file')} ({format_size(done.bytes)})", format_count(done.groups, "file")
    echo(f"{files} became {new}" if confirm else f"{files} can become {new}")
    if not confirm:
        echo("nothing was changed: add --confirm to do this")
