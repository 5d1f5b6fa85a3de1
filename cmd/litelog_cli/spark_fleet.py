"""``litelog spark copy`` and ``restore``, and what the jobs over many replicas print."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from litelog.errors import ExitCode
from litelog.units import format_count, format_duration, format_size
from litelog_cli.arguments import OUTPUT, PLACE, SEQUENCE, make_target
from litelog_cli.output import echo, print_json, print_table
from litelog_cli.spark_session import JobSession, fleet_options, session_options, target_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_FAILED = 20
"""How many failures are printed. ``--json`` prints all."""


def is_fleet(place: str) -> bool:
    """Whether a place is a pattern of replicas."""
    from litelog.spark.options import is_pattern

    return is_pattern(place)


def collect_report(
    job: str, common: dict[str, Any], run: Callable[..., Any], *arguments: object, **choices: object
) -> list[Any]:
    """Run a job over many replicas in a new session. Returns the rows of its report.

    Args:
        job: The job's name.
        common: The options that all jobs share.
        run: The function of ``litelog.spark.fleet``. It is called with the session, ``arguments``, ``choices``, the
            store's options and the progress display.
        arguments: What ``run`` takes after the session.
        choices: The job's own options.
    """
    with JobSession(job, common) as session:
        options = fleet_options(common)
        rows: list[Any] = run(
            session.spark, *arguments, **choices, options=options, progress=session.progress
        ).collect()
    return rows


def report_fleet(rows: Sequence[Any], done: str, *, as_json: bool) -> int:
    """Print the report of a job over many replicas. Returns the highest exit code in it. ``done``: what was done."""
    failed = [row for row in rows if not row.ok]
    if as_json:
        for row in rows:
            print_json(_as_json(row.asDict()))
    else:
        if failed:
            shown = [(row["name"], row.error, row.message) for row in failed[:MAX_FAILED]]
            print_table(("replica", "error", ""), shown)
        if len(failed) > MAX_FAILED:
            echo(f"and {len(failed) - MAX_FAILED} more; --json prints all")
        replicas, size = format_count(len(rows), "replica"), format_size(sum(row.stored_bytes for row in rows))
        slowest = max((row.seconds for row in rows), default=0.0)
        echo(f"{replicas} ({size}): {done}; {len(failed)} failed; the slowest took {format_duration(slowest)}")
    return max((row.exit_code for row in failed), default=ExitCode.DONE)


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a report. That of a verification has the fields of ``litelog verify --json``."""
    error = {name: row.pop(column) for name, column in (("kind", "error"), ("message", "message"))}
    code, report = row.pop("exit_code"), row.pop("report", None)
    return {**row, **json.loads(report or "{}"), "error": None if row["ok"] else {**error, "exit_code": code}}


_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each replica.")


@click.command(
    short_help="Copy replicas to another store",
    epilog="""\b
Examples:
  litelog spark copy 's3://bucket/logs/*' s3://other/logs
  litelog spark copy /backup/orders /backup/users /mnt/copies
  litelog spark copy 's3://bucket/*/events' s3://other/logs \\
      --target-option s3.endpoint=https://store.example --json
\b
Run it again to continue, or to add what is new. A copy has the same names and
bytes as its replica, and is a replica. Exit codes: 0 done, 1 failure, 2 usage,
3 no replica there, 5 a target holds another replica, or a daemon wrote to it,
6 damage.
If several fail, the exit code is the highest.
""",
)
@click.argument("replica_urls", metavar="REPLICA_URL...", nargs=-1, required=True, type=PLACE)
@click.argument("target", type=PLACE)
@target_option
@_json_option
@session_options
def copy(
    replica_urls: tuple[str, ...],
    target: str,
    target_option: tuple[tuple[str, str], ...],
    as_json: bool,
    **common: Any,
) -> int:
    """Copy replicas to another store, each to its name below TARGET, verified on the way.

    A REPLICA_URL may be a pattern. The name of a replica is its path below the folders before the first wildcard.
    """
    from litelog.spark.fleet import copy as run_copy

    options = dict(target_option) or None
    rows = collect_report("copy", common, run_copy, replica_urls, target, target_options=options)
    objects, size = sum(row.copied_objects or 0 for row in rows), sum(row.copied_bytes or 0 for row in rows)
    return report_fleet(rows, f"copied {format_count(objects, 'object')}, {format_size(size)}", as_json=as_json)


@click.command(
    short_help="Restore logs, each to a folder with its name",
    epilog="""\b
Examples:
  litelog spark restore 's3://bucket/logs/*' /restored
  litelog spark restore 's3://bucket/logs/*' /restored --timestamp 2026-11-21T10:00:00Z
  litelog spark restore /backup/orders /backup/users /restored --json
\b
Run it again to continue: an output that holds the whole log, or the log up to
the given sequence or time, counts as done. It is compared byte for byte.
Exit codes: 0 done, 1 failure, 2 usage, 3 no replica there, 6 damage. If several
fail, the exit code is the highest.
""",
)
@click.argument("replica_urls", metavar="REPLICA_URL...", nargs=-1, required=True, type=PLACE)
@click.argument("output", metavar="FOLDER", type=OUTPUT)
@click.option("--sequence", type=SEQUENCE, help="Restore each log up to this record; whole commits only.")
@click.option(
    "--timestamp",
    metavar="TIME",
    help="Restore each log up to this time: ISO (UTC without a zone), or before now (1h).",
)
@click.option(
    "--pattern",
    metavar="PATTERN",
    help="Pattern for the names of log segments (formats lines and raw).  [default: all]",
)
@click.option("--delta", is_flag=True, help="Replace what is in the outputs; read only what they lack.")
@_json_option
@session_options
def restore(
    replica_urls: tuple[str, ...],
    output: str,
    sequence: int | None,
    timestamp: str | None,
    pattern: str | None,
    delta: bool,
    as_json: bool,
    **common: Any,
) -> int:
    """Restore logs, each to its name below FOLDER: complete, checked and synced, or not at all.

    A REPLICA_URL may be a pattern. The name of a replica is its path below the folders before the first wildcard. On a
    cluster, all workers share FOLDER, or each log is on the machine that restored it.
    """
    from litelog.spark.fleet import restore as run_restore

    target = make_target(None, None, sequence, timestamp)
    choices = {"sequence": target.sequence, "timestamp": target.timestamp, "pattern": pattern, "delta": delta}
    rows = collect_report("restore", common, run_restore, replica_urls, output, **choices)
    size = format_size(sum(row.log_bytes or 0 for row in rows))
    there = sum(bool(row.there) for row in rows)
    return report_fleet(rows, f"restored {size}, {there} were already there", as_json=as_json)
