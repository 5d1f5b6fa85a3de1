"""``litelog restore --all``: restores every log of a configuration."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

import click

from litelog.errors import ExitCode
from litelog.units import format_count, format_duration, format_size
from litelog_cli.config_file import config_path, read_config
from litelog_cli.configured import configured
from litelog_cli.logging_setup import say
from litelog_cli.output import echo, error_json, kind_of, print_json, with_times
from litelog_cli.progress import watching_status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.restore.several import LogRestore, RestoreOutcome, RestoreRules


def find_restores(config_file: str | None, into: str | None) -> list[LogRestore]:
    """The restores of all logs of a configuration: to their folders, or to the same paths below ``into``.

    Raises UsageError without a configuration, and what ``find_replicated_logs`` raises.
    """
    from litelog.config.replicated_logs import find_replicated_logs
    from litelog.restore.several import LogRestore

    config = read_config(config_file)
    if config is None:
        raise click.UsageError(f"--all needs a configuration: give --config ({config_path(None)} is not there)")
    return [
        LogRestore(
            log.path,
            tuple((replica.url, replica.options) for replica in map(configured, log.replicas)),
            log.path if into is None else os.path.join(into, os.path.abspath(log.path).lstrip("/")),
            log.pattern,
        )
        for log in find_replicated_logs(config)
    ]


def restore_all(logs: Sequence[LogRestore], rules: RestoreRules, *, as_json: bool, quiet: bool) -> ExitCode:
    """Restore ``logs``, print a line for each and a summary, and return the exit code: the highest of the failures'."""
    from litelog.restore.several import restore_each

    began = time.monotonic()
    outcomes: list[RestoreOutcome] = []
    count = format_count(len(logs), "log")
    with watching_status(quiet=quiet or as_json, look=lambda: f"restore: {len(outcomes)} of {count}"):
        for outcome in restore_each(logs, rules):
            outcomes.append(outcome)
            _print_outcome(outcome, as_json)
    failed = [outcome.error for outcome in outcomes if outcome.error is not None]
    code = max((error.exit_code for error in failed), default=ExitCode.DONE)
    _print_summary(outcomes, time.monotonic() - began, as_json)
    return code


def _print_outcome(outcome: RestoreOutcome, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(outcome))
        return
    log = outcome.restore.log
    for url, reason in outcome.skipped:
        say(f"litelog: {log}: skipped {url}: {reason}", "replica-skipped", level=logging.WARNING, log=log)
    if outcome.error is not None:
        say(f"litelog: {log}: {outcome.error}", "restore-failed", level=logging.ERROR, log=log)
    elif outcome.result is not None:
        result = outcome.result
        held = f"{format_count(result.records, 'record')}, {format_count(result.files, 'file')}"
        echo(f"{log}: restored {format_size(result.bytes)} ({held}) to {result.output}")
    elif outcome.plan is not None:
        plan = outcome.plan
        size, files = format_size(plan.size), format_count(len(plan.all_files), "file")
        echo(f"{log}: {size} in {files}, up to {plan.end}, from {plan.replica} to {outcome.restore.output}")
    else:
        echo(f"{log}: nothing to do ({outcome.left})")


def _as_json(outcome: RestoreOutcome) -> dict[str, Any]:
    facts: dict[str, Any] = {"log": outcome.restore.log, "output": os.path.abspath(outcome.restore.output)}
    if outcome.result is not None:
        facts |= outcome.result.as_json()
    elif outcome.plan is not None:
        plan = with_times(outcome.plan.as_json(), "last_shipped")
        facts |= {name: plan[name] for name in ("replica", "generation", "position", "last_shipped", "log_bytes")}
    elif outcome.error is not None:
        error = outcome.error
        facts["error"] = error_json(kind_of(error), str(error), int(error.exit_code))
    else:
        facts["nothing_to_do"] = outcome.left
    return {**facts, "skipped": [{"replica": url, "reason": reason} for url, reason in outcome.skipped]}


def _print_summary(outcomes: Sequence[RestoreOutcome], seconds: float, as_json: bool) -> None:
    results = [outcome.result for outcome in outcomes if outcome.result is not None]
    plans = [outcome.plan for outcome in outcomes if outcome.plan is not None]
    failed = sum(1 for outcome in outcomes if outcome.error is not None)
    size = sum(result.bytes for result in results) + sum(plan.size for plan in plans)
    done = len(results) + len(plans)
    if as_json:
        counts = {"log_count": len(outcomes), "restored_count": len(results), "failed_count": failed}
        print_json({**counts, "log_bytes": size, "seconds": seconds})
        return
    verb = "planned" if plans else "restored"
    failures = f"; {format_count(failed, 'log')} failed" if failed else ""
    left = len(outcomes) - done - failed
    failures = (f"; nothing to do for {format_count(left, 'log')}" if left else "") + failures
    said = f"{verb} {done:,} of {format_count(len(outcomes), 'log')}, {format_size(size)}"
    echo(f"{said}, in {format_duration(seconds)}{failures}")
