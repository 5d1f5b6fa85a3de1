"""``litelog repair``: shows how the damaged files of a log can be repaired; with --confirm, repairs them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from litelog.dataclass import dataclass
from litelog.errors import ExitCode
from litelog.units import format_count, format_size
from litelog_cli.arguments import FORMAT, GENERATION, PLACE, is_replica
from litelog_cli.config_file import read_config
from litelog_cli.configured import find_log, find_replica, find_sources
from litelog_cli.listed import place_config_option
from litelog_cli.local_logs import open_local_format
from litelog_cli.output import echo, format_number, print_json, print_table
from litelog_cli.progress import quiet_option, showing_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.config import LogConfig
    from litelog.repair.plan import PlacePlan, RepairResult
    from litelog_cli.configured import ConfiguredReplica


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """The arguments and options of ``litelog repair``."""

    folder: str
    urls: tuple[str, ...]
    no_replica: bool
    generation: str | None
    cut: bool
    format_name: str | None
    pattern: str | None
    config_file: str | None
    dry_run: bool
    confirm: bool
    as_json: bool
    quiet: bool


@click.command(
    epilog="""\b
Examples:
  litelog repair /var/lib/events s3://bucket/events
  litelog repair /var/lib/events s3://bucket/events --confirm
  litelog repair --config /etc/litelog.yml /var/lib/events
  litelog repair /var/lib/events --no-replica --confirm
  litelog repair /var/lib/events --cut-at-damage
  litelog repair --format kafka /var/lib/kafka/orders-0 file:///backup/orders-0
\b
Stop the program that writes the log first. A daemon that replicates it may run.
Without --confirm nothing is changed. Replaced files are kept in .damaged, in
the log's folder. After a kill, run it again: the log is as it was, or the repair
is completed. litelog's own writer completes it when it starts, too.
Exit codes: 0 no damage, or all of it is or can be repaired, 1 failure, or the
log is in use, 2 usage, 3 no such generation, 6 some damage stays.
"""
)
@click.argument("folder", metavar="LOG_DIR", type=PLACE)
@click.argument("urls", metavar="[REPLICA_URL]...", type=PLACE, nargs=-1)
@click.option("--no-replica", is_flag=True, help="Use no replica: only cut off a torn tail.")
@click.option(
    "--generation", type=GENERATION, help="Take bytes only from this generation.  [default: those that agree]"
)
@click.option(
    "--cut-at-damage",
    "cut",
    is_flag=True,
    help="Cut the log off at the first place that would stay damaged, and move all after it to .damaged.",
)
@click.option(
    "--format", "format_name", type=FORMAT, help="The log's format.  [default: as configured, or as its files show]"
)
@click.option("--pattern", metavar="PATTERN", help="Pattern for the names of log segments (formats lines and raw).")
@place_config_option
@click.option("--dry-run", is_flag=True, help="Show the plan without changing anything (the default).")
@click.option("--confirm", is_flag=True, help="Repair what the plan lists.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@quiet_option
def repair(**arguments: Any) -> int:
    """Show how the damaged files of a log can be repaired; with --confirm, repair them.

    Damaged bytes are taken from a replica of the log, if it agrees with all good bytes of the log segment: then the log
    is what it was, byte for byte. Log segments whose good commits were moved, or that were swapped, are replaced if the
    replica holds all these commits. A torn tail that no replica holds is cut off. Good commits are only removed with
    --cut-at-damage.

    Without REPLICA_URL, takes the replicas that the configuration names for the log in LOG_DIR.
    """
    options = RepairOptions(**arguments)
    if options.dry_run and options.confirm:
        raise click.UsageError("--dry-run and --confirm exclude each other")
    if is_replica(options.folder) or not os.path.isdir(options.folder):
        what = "a replica, and not the folder of a log" if is_replica(options.folder) else "no such folder"
        raise click.UsageError(f"{options.folder}: {what}")
    if options.no_replica and (options.urls or options.generation is not None):
        raise click.UsageError("--no-replica takes no REPLICA_URL and no --generation")
    result = _run(options)
    if options.as_json:
        print_json(result.as_json())
    else:
        _print(result)
    return ExitCode.CORRUPTION if result.left else ExitCode.DONE


def _run(options: RepairOptions) -> RepairResult:
    from contextlib import ExitStack

    from litelog.repair.execution import repair as repair_files
    from litelog_cli.arguments import opened_replica

    log = _find_log(options)
    log_format = open_local_format(options.folder, log, options.format_name, options.pattern)
    if log_format is None:
        raise click.UsageError(f"{options.folder}: its files show no known format: give --format")
    with ExitStack() as stack:
        clients = [stack.enter_context(opened_replica(each.url, each.options)) for each in _replicas(options, log)]
        show = stack.enter_context(showing_progress("repair", quiet=options.quiet or options.as_json))
        return repair_files(
            options.folder,
            log_format,
            clients,
            generation=options.generation,
            cut=options.cut,
            confirm=options.confirm,
            progress=show,
        )


def _find_log(options: RepairOptions) -> LogConfig | None:
    """The configured log in the folder. Raises UsageError if a given configuration does not contain it, and no replica
    is given."""
    if not options.urls and not options.no_replica:
        return find_log(options.folder, options.config_file)[0]
    config = read_config(options.config_file)
    return None if config is None else config.find_log(options.folder)


def _replicas(options: RepairOptions, log: LogConfig | None) -> Sequence[ConfiguredReplica]:
    """The replicas that were given, else the configured ones of the log."""
    if options.no_replica:
        return ()
    if options.urls:
        return [find_replica(url, options.config_file) for url in options.urls]
    return () if log is None else find_sources((log.path,), options.config_file).replicas


_DONE = {"replace": "replaced", "create": "created", "cut": "cut off", "remove": "removed", "leave": "left"}
"""By a method, what was done."""


def _print(result: RepairResult) -> None:
    from litelog.restore.choose_replica import describe

    plan, report = result.plan, result.plan.report
    if plan.places:
        rows = [_row(place, carried_out=result.after is not None) for place in plan.places]
        print_table(("anomaly", "log segment", "offset", "bytes", "repair", ""), rows, ("offset", "bytes"))
        echo()
    for url, reason in plan.skipped:
        echo(f"skipped {describe(url, reason)}")
    for failure in report.failures:
        echo(f"could not be read: {failure}")
    if result.backup is not None:
        echo(f"the replaced files are in {result.backup}")
    size = sum(each.size for each in plan.files)
    written = f"{format_count(len(plan.files), 'log segment')} ({format_size(size)})"
    if not plan.places and not report.failures:
        echo(f"{report.log}: nothing to repair")
    elif result.after is not None:
        echo(f"repaired {written}; " + _left(result.left, "left"))
    elif plan.files or plan.removed:
        echo(f"with --confirm, writes {written}; " + _left(result.left, "would be left"))
    else:
        echo("nothing can be repaired; " + _left(result.left, "left"))


def _left(count: int, what: str) -> str:
    return f"{format_count(count, 'anomaly', 'anomalies') if count else 'no anomaly'} {what}"


def _row(place: PlacePlan, *, carried_out: bool) -> tuple[str, ...]:
    size = "" if place.end is None else format_number(place.end - place.offset)
    method = _DONE[place.method] if carried_out else str(place.method)
    source = "" if place.replica is None else f"from {place.replica}, generation {place.generation}"
    what = "; ".join(each for each in (source, place.reason) if each)
    return str(place.kind), place.file, format_number(place.offset), size, method, what
