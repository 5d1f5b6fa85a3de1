"""``litelog restore``: rebuild a log from a replica."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from litelog.errors import NothingToRestoreError, OutputExistsError
from litelog.quantities import format_duration, format_size
from litelog_cli.output import print_json
from litelog_cli.places import GENERATION, open_stored_format, opened_replica
from litelog_cli.start import Kind, parse_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.position import Generation
    from litelog.restore.execution import RestoreProgress
    from litelog.restore.plan import RestorePlan, Target

DEFAULT_PARALLELISM = 4

MAX_PARALLELISM = 64
"""What the library takes."""

PLAIN_STEPS = 10
"""How many lines of progress a restore prints where there is no terminal."""


@click.command(
    epilog="""\b
Examples:
  litelog restore file:///backup/events -o /var/lib/events
  litelog restore --dry-run file:///backup/events -o /var/lib/events
  litelog restore --sequence 41999 file:///backup/events -o /tmp/events
  litelog restore --timestamp 2026-11-21T10:00:00Z file:///backup/events -o /tmp/events
  litelog restore --if-not-exists --if-replica-exists file:///backup/events -o /var/lib/events
"""
)
@click.argument("replica_url")
@click.option("-o", "--output", required=True, help="The folder to write; it may not exist, or must be empty.")
@click.option("--generation", "name", type=GENERATION, help="Which generation.  [default: the latest]")
@click.option("--index", help="Up to the end of this log segment, in hexadecimal digits as in the objects' names.")
@click.option("--sequence", type=click.IntRange(0), help="Up to this record; whole commits only.")
@click.option("--timestamp", help="Up to this time: ISO (UTC where no zone is given), or back from now (1h).")
@click.option("--pattern", help="Which file names are log segments (formats lines and raw).  [default: all]")
@click.option(
    "--parallelism",
    type=click.IntRange(1, MAX_PARALLELISM),
    default=DEFAULT_PARALLELISM,
    show_default=True,
    help="Objects that are read at a time.",
)
@click.option("--if-not-exists", is_flag=True, help="Exit with 0 if the output exists already.")
@click.option("--if-replica-exists", is_flag=True, help="Exit with 0 if there is nothing to restore.")
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan or the result as one JSON object.")
def restore(
    replica_url: str,
    output: str,
    name: Generation | None,
    index: str | None,
    sequence: int | None,
    timestamp: str | None,
    pattern: str | None,
    parallelism: int,
    if_not_exists: bool,
    if_replica_exists: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Rebuild a log from a replica: complete, checked and synced, or not there at all."""
    target = _target(name, index, sequence, timestamp)
    if if_not_exists and _is_taken(output):
        click.echo(f"litelog: {output}: exists already, nothing to do", err=True)
        return
    try:
        _restore(replica_url, output, target, pattern, parallelism, if_replica_exists, dry_run, as_json)
    except OutputExistsError as error:
        if not if_not_exists:
            raise
        click.echo(f"litelog: {error}", err=True)


def _restore(
    replica_url: str,
    output: str,
    target: Target,
    pattern: str | None,
    parallelism: int,
    if_replica_exists: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    from litelog.compression import keep_freed_memory
    from litelog.restore.execution import restore as restore_log
    from litelog.restore.plan import find_generation, plan_generation

    keep_freed_memory()
    with opened_replica(replica_url) as client:
        try:
            claim = find_generation(client, target)
        except NothingToRestoreError as error:
            if not if_replica_exists:
                raise
            click.echo(f"litelog: {error}; nothing to do", err=True)
            return
        log_format = open_stored_format(claim.format, pattern)
        plan = plan_generation(client, claim, target, log_format)
        if dry_run:
            if as_json:
                print_json(plan.as_json())
            else:
                click.echo(str(plan))
            return
        if _is_taken(output):
            raise OutputExistsError(os.path.abspath(output))
        if not as_json:
            click.echo(f"restoring {format_size(plan.size)} up to {plan.end} into {output}", err=True)
        with _progress(plan, quiet=as_json) as report:
            result = restore_log(client, plan, output, log_format=log_format, parallelism=parallelism, progress=report)
    if as_json:
        print_json({**asdict(result), "end": str(result.end)})
    else:
        click.echo(
            f"restored {format_size(result.bytes)} ({result.records} records, {result.files} files) "
            f"in {format_duration(result.seconds)} to {result.output}"
        )


def _target(name: Generation | None, index: str | None, sequence: int | None, timestamp: str | None) -> Target:
    from litelog.restore.plan import Target

    return Target(
        generation=name,
        index=None if index is None else _parse_index(index),
        sequence=sequence,
        timestamp=None if timestamp is None else _parse_time(timestamp),
    )


def _parse_index(text: str) -> int:
    try:
        index = int(text, 16)
    except ValueError:
        index = -1
    if not 0 <= index < 1 << 64:
        raise click.BadParameter(f"{text!r} is no index: up to 16 hexadecimal digits", param_hint="--index")
    return index


def _parse_time(text: str) -> int:
    start = parse_start(text, datetime.now(UTC))
    if start.kind is not Kind.TIME:
        raise click.BadParameter(f"{text!r} is no time: write 2026-11-21T10:00:00Z, or 1h", param_hint="--timestamp")
    return start.value


def _is_taken(output: str) -> bool:
    try:
        return bool(os.listdir(output))
    except OSError:
        return os.path.lexists(output)  # a file, or nothing


@contextmanager
def _progress(plan: RestorePlan, quiet: bool) -> Iterator[Callable[[RestoreProgress], None] | None]:
    """Shows how far a restore is, on standard error: a bar on a terminal, a few lines otherwise."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

        columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("restore", total=plan.size)
            yield lambda progress: bar.update(task, completed=progress.restored)
    else:
        yield _PlainProgress(plan.size)


class _PlainProgress:
    """A line whenever another tenth is done."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._steps = 0

    def __call__(self, progress: RestoreProgress) -> None:
        steps = progress.restored * PLAIN_STEPS // max(self._size, 1)
        if self._steps < steps < PLAIN_STEPS:
            click.echo(f"{format_size(progress.restored)} of {format_size(self._size)}", err=True)
        self._steps = steps
