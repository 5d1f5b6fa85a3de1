"""``litelog restore``: rebuilds a log from its replicas."""

from __future__ import annotations

import logging
import os
from contextlib import ExitStack
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from litelog.dataclass import dataclass
from litelog.errors import ExitCode, NothingToRestoreError, OutputExistsError
from litelog.units import format_count, format_duration, format_size
from litelog_cli.arguments import (
    DURATION,
    GENERATION,
    OUTPUT,
    PLACE,
    SEQUENCE,
    make_target,
)
from litelog_cli.configured import find_sources
from litelog_cli.listed import as_of_option, config_option
from litelog_cli.logging_setup import say
from litelog_cli.output import echo, echo_lines, print_json, with_times
from litelog_cli.progress import quiet_option, showing_progress, watching_status
from litelog_cli.signals import ending_on_signals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.restore.choose_replica import ReplicaChoice
    from litelog.restore.execution import RestoreResult
    from litelog.restore.follow import CopyFollower
    from litelog.restore.plan import RepairedRange, RestorePlan, Target
    from litelog_cli.configured import ConfiguredReplica

DEFAULT_PARALLELISM = 4

MIN_POLL_SECONDS = 0.01

MAX_PARALLELISM = 64
"""The library's limit."""


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """The arguments and options of ``litelog restore``."""

    replica_urls: tuple[str, ...]
    config_file: str | None
    everything: bool
    into: str | None
    output: str
    name: str | None
    index: str | None
    sequence: int | None
    timestamp: str | None
    pattern: str | None
    parallelism: int
    delta: bool
    follow: bool
    poll_interval: float
    ignore_free_space: bool
    if_not_exists: bool
    if_replica_exists: bool
    dry_run: bool
    as_json: bool
    quiet: bool


@click.command(
    epilog="""\b
Examples:
  litelog restore file:///backup/events -o /var/lib/events
  litelog restore --dry-run file:///backup/events -o /var/lib/events
  litelog restore --sequence 41999 file:///backup/events -o /tmp/events
  litelog restore --timestamp 2026-11-21T10:00:00Z file:///backup/events -o /tmp/events
  litelog restore --follow file:///backup/events -o /var/lib/events-copy
  litelog restore --delta file:///backup/events -o /var/lib/events
  litelog restore --if-not-exists --if-replica-exists file:///backup/events -o /var/lib/events
  litelog restore file:///backup/events s3://bucket/events -o /var/lib/events
  litelog restore --config /etc/litelog.yml /var/lib/events
  litelog restore --all --config /etc/litelog.yml
  litelog restore --all --into /mnt/copy --timestamp 1h
\b
litelog restores the replica of a log that reaches furthest. The other replicas
supply data that it lost. LOG_DIR, the folder of a log in the
configuration (--config, $LITELOG_CONFIG or /etc/litelog.yml), stands for all
of that log's replicas.
\b
--all restores every log of the configuration. Logs in folders of logs are
found by listing the replicas, even if their folders are lost. A log that cannot
be restored does not stop the others; the exit code is the highest of all. A
time ends each log separately: logs have no common point in time.
\b
Exit codes: 0 restored, or nothing to do, 1 the output exists, or a failure,
2 usage or configuration, 3 no replica there, or nothing that early, 6 damage
that nothing replaces. With --all, the highest of all logs.
"""
)
@click.argument("replica_urls", metavar="[REPLICA_URL|LOG_DIR]...", nargs=-1, type=PLACE)
@config_option
@as_of_option
@click.option("--all", "everything", is_flag=True, help="Restore all logs of the configuration.")
@click.option("--into", metavar="FOLDER", type=OUTPUT, help="With --all: restore to the same paths below this folder.")
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    type=OUTPUT,
    help="Folder to write; it must not exist, or must be empty.  [default: the folder of a configured log]",
)
@click.option("--generation", "name", type=GENERATION, help="Generation to restore.  [default: the latest]")
@click.option(
    "--index", metavar="INDEX", help="Restore up to the end of this log segment (hexadecimal, as in object names)."
)
@click.option("--sequence", type=SEQUENCE, help="Restore up to this record; whole commits only.")
@click.option(
    "--timestamp", metavar="TIME", help="Restore up to this time: ISO (UTC without a zone), or before now (1h)."
)
@click.option(
    "--pattern",
    metavar="PATTERN",
    help="Pattern for the names of log segments (formats lines and raw).  [default: all]",
)
@click.option(
    "--parallelism",
    type=click.IntRange(1, MAX_PARALLELISM),
    default=DEFAULT_PARALLELISM,
    show_default=True,
    help="Objects to read in parallel.",
)
@click.option("--delta", is_flag=True, help="Replace an older copy in the output; read only what it lacks.")
@click.option("--follow", is_flag=True, help="Keep the copy up to date afterwards, until a signal.")
@click.option("--poll-interval", type=DURATION, default=1.0, help="Time between two polls.  [default: 1s]")
@click.option("--ignore-free-space", is_flag=True, help="Restore even if the disk seems to be too small.")
@click.option("--if-not-exists", is_flag=True, help="Exit with code 0 if the output already exists.")
@click.option("--if-replica-exists", is_flag=True, help="Exit with code 0 if there is nothing to restore.")
@click.option("--dry-run", is_flag=True, help="Print the plan without changing anything.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan or the result as one JSON object.")
@quiet_option
def restore(**arguments: Any) -> int:
    """Rebuild a log from its replicas: complete, checked and synced, or not at all."""
    from litelog.restore.opened_restore import is_taken

    options = RestoreOptions(**arguments)
    if options.poll_interval < MIN_POLL_SECONDS:
        raise click.BadParameter(f"must be at least {MIN_POLL_SECONDS:g}s", param_hint="--poll-interval")
    if options.delta and options.if_not_exists:
        raise click.UsageError("--delta and --if-not-exists exclude each other")
    target = make_target(None, options.index, options.sequence, options.timestamp)
    if options.everything:
        return _restore_all(target, options)
    if options.into is not None:
        raise click.UsageError("--into needs --all; one log is restored to -o FOLDER")
    sources = find_sources(options.replica_urls, options.config_file)
    if not options.output:
        if sources.log is None:
            raise click.UsageError("-o FOLDER is missing: only a configured log has a folder to restore to")
        options = replace(options, output=sources.log)
    if options.if_not_exists and is_taken(options.output):
        _report_nothing_to_do(f"{options.output}: exists already, nothing to do", options.output, options.as_json)
        return ExitCode.DONE
    if options.follow and (options.name is not None or target != make_target(None, None, None, None)):
        raise click.UsageError("--follow continues after the end of the log: use it without --generation or bounds")
    options = replace(options, pattern=options.pattern or sources.pattern)
    try:
        _restore(sources.replicas, target, options)
    except OutputExistsError as error:
        if not options.if_not_exists:
            raise
        _report_nothing_to_do(str(error), options.output, options.as_json)
    return ExitCode.DONE


def _restore_all(target: Target, options: RestoreOptions) -> int:
    from litelog.restore.several import RestoreRules
    from litelog.system.memory import keep_freed_memory
    from litelog_cli.restore_all import find_restores, restore_all

    of_one = {
        "REPLICA_URL": options.replica_urls,
        "--output": options.output,
        "--generation": options.name,
        "--index": options.index,
        "--sequence": options.sequence,
        "--pattern": options.pattern,
        "--follow": options.follow,
    }
    given = next((name for name, value in of_one.items() if value), None)
    if given is not None:
        raise click.UsageError(f"{given} is for one log, and --all restores several")
    keep_freed_memory()
    rules = RestoreRules(
        target,
        parallelism=options.parallelism,
        delta=options.delta,
        check_space=not options.ignore_free_space,
        dry_run=options.dry_run,
        if_not_exists=options.if_not_exists,
        if_replica_exists=options.if_replica_exists,
    )
    logs = find_restores(options.config_file, options.into)
    return restore_all(logs, rules, as_json=options.as_json, quiet=options.quiet)


def _restore(replicas: Sequence[ConfiguredReplica], target: Target, options: RestoreOptions) -> None:
    from litelog.restore.opened_restore import opened_restore, require_free
    from litelog.system.memory import keep_freed_memory

    keep_freed_memory()
    output, as_json, quiet = options.output, options.as_json, options.quiet or options.as_json
    addresses = [(replica.url, replica.options) for replica in replicas]
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(
                opened_restore(addresses, target, generation=options.name, pattern=options.pattern)
            )
        except NothingToRestoreError as error:
            if not options.if_replica_exists:
                raise
            _report_nothing_to_do(f"{error}; nothing to do", output, as_json)
            return
        plan = opened.plan
        _print_skipped(opened.skipped)
        if options.dry_run:
            _print_plan(plan, opened.skipped, as_json)
            return
        if not options.delta:
            require_free(output)
        if not quiet:
            said = f"restoring {format_size(plan.size)} up to {plan.end} into {output}"
            say(said, "restoring", replica=plan.replica, position=str(plan.end), log_bytes=plan.size, output=output)
        with showing_progress("restore", quiet=quiet) as show:
            result = opened.run(
                output,
                parallelism=options.parallelism,
                progress=None if show is None else lambda progress: show(progress.restored, plan.size),
                delta=options.delta,
                check_space=not options.ignore_free_space,
            )
        _report(result, opened.skipped, options)
        if options.follow:
            _follow(opened.choice, result.output, options.poll_interval, quiet=quiet)


def _report_nothing_to_do(reason: str, output: str, as_json: bool) -> None:
    """Report why nothing is restored; the user asked for exit code 0 in this case."""
    say(f"litelog: {reason}", "nothing-to-do", output=output)
    if as_json:
        print_json({"output": os.path.abspath(output), "nothing_to_do": reason})


def _print_plan(plan: RestorePlan, skipped: Sequence[tuple[str, str]], as_json: bool) -> None:
    if as_json:
        print_json({**_plan_json(plan.as_json()), "skipped": _as_json(skipped)})
    else:
        echo_lines(plan.lines())


def _plan_json(plan: Mapping[str, Any]) -> dict[str, Any]:
    before = plan["before"]
    return {**with_times(plan, "last_shipped"), "before": None if before is None else _plan_json(before)}


def _report(result: RestoreResult, skipped: Sequence[tuple[str, str]], options: RestoreOptions) -> None:
    if options.as_json:
        print_json({**result.as_json(), "skipped": _as_json(skipped)})
        return
    for repaired in result.repaired:
        say(f"litelog: {_render(repaired)}", "repaired", level=logging.WARNING)
    held = f"{format_count(result.records, 'record')}, {format_count(result.files, 'file')}"
    echo(
        f"restored {format_size(result.bytes)} ({held}) in {format_duration(result.seconds)} "
        f"to {result.output}{_origin(result)}"
    )
    if result.next is not None and options.sequence is not None and result.next <= options.sequence:
        short = options.sequence - result.next + 1
        echo(
            f"it ends with sequence {result.next - 1}, {format_count(short, 'record')} before the one asked for: "
            f"{options.sequence} is inside a commit, and a restore ends where a commit ends"
        )


def _follow(choice: ReplicaChoice, output: str, poll_interval: float, *, quiet: bool) -> None:
    from litelog.restore.follow import CopyFollower

    stop = Event()
    with CopyFollower(choice.client, output, choice.plan, choice.log_format) as follower:
        say(f"following {choice.client.url} (Ctrl-C ends it)", "following", replica=choice.client.url)
        shown = watching_status(quiet=quiet, look=lambda: _describe_follower(follower))
        late = f"{choice.client.url}: restore --delta --follow continues the copy"
        with ending_on_signals(stop, late), shown:
            follower.run(stop, poll_interval)
        said = f"followed up to {follower.position}, {format_size(follower.appended)} more"
        say(said, "followed", replica=choice.client.url, position=str(follower.position), log_bytes=follower.appended)


def _describe_follower(follower: CopyFollower) -> str:
    """One line about a copy that is kept up to date."""
    age = follower.seconds_since_news
    news = "nothing new yet" if age is None else f"the last of it {format_duration(age)} ago"
    return f"following: {format_size(follower.appended)} appended, {news}"


def _print_skipped(skipped: Sequence[tuple[str, object]]) -> None:
    from litelog.restore.choose_replica import describe

    for url, reason in skipped:
        said = f"litelog: skipped {describe(url, reason)}"
        say(said, "replica-skipped", level=logging.WARNING)


def _as_json(skipped: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"replica": url, "reason": reason} for url, reason in skipped]


def _render(repaired: RepairedRange) -> str:
    """One line about a lost object: what replaced it."""
    if repaired.file is None:
        return f"{repaired.reason}: skipped, since it holds no data of the log"
    return f"{repaired.reason}: {repaired.file} bytes {repaired.start} to {repaired.end} are from {repaired.replica}"


def _origin(result: RestoreResult) -> str:
    others = {repaired.replica for repaired in result.repaired if repaired.replica is not None}
    if not others:
        return ""
    taken = sum(repaired.end - repaired.start for repaired in result.repaired)
    return f", {format_size(taken)} of it from {', '.join(sorted(others))}, the rest from {result.replica}"
