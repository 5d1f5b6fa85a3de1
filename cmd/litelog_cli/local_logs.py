"""What ``verify`` does with the folder of a log instead of a replica: it checks the log's own files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from litelog.errors import ExitCode
from litelog.units import format_count, format_duration, format_size
from litelog_cli.arguments import is_replica
from litelog_cli.config_file import read_config
from litelog_cli.output import echo, format_number, print_json, print_table
from litelog_cli.progress import showing_progress

if TYPE_CHECKING:
    from litelog.formats import LogFormat
    from litelog.verify.local_report import LocalReport


def find_local_format(
    place: str, format_name: str | None, pattern: str | None, config_file: str | None
) -> LogFormat | None:
    """The format of the log whose own files are to be checked; None if ``place`` stands for a replica.

    A folder with the contents of a replica is a replica, and a configured log stands for its replica.

    Raises:
        UsageError: ``format_name`` is given, and ``place`` is a replica or not a folder.
        ConfigError: The format does not exist, or the configuration is invalid.
    """
    from litelog.formats.registry import open_format
    from litelog.stores.missing import recognise_log

    is_folder = not is_replica(place) and os.path.isdir(place)
    if format_name is not None:
        if not is_folder:
            what = "a replica, which knows its format" if is_replica(place) else "not a folder"
            raise click.UsageError(f"--format {format_name} is for the files of a log: {place} is {what}")
        return open_format(format_name, pattern)
    if not is_folder or config_file is not None:
        return None
    config = read_config(None)
    if config is not None and (config.find_log(place) is not None or config.find_replica(place) is not None):
        return None
    found = recognise_log(place)
    return None if found is None else open_format(found.format)


def check_local(folder: str, log_format: LogFormat, *, strict: bool, as_json: bool, shown: bool) -> int:
    """Check the log in ``folder``, print the report, and return the exit code.

    Args:
        folder: The log's folder.
        log_format: Its format.
        strict: Harmless anomalies count, too.
        as_json: Print one JSON object.
        shown: Show progress.
    """
    from litelog.verify.local_log import check_log

    with showing_progress("verify", quiet=not shown) as show:
        report = check_log(folder, log_format, show)
    if as_json:
        print_json(report.as_json())
    else:
        _print(report)
    if report.harmful or (strict and report.anomalies):
        return ExitCode.CORRUPTION
    return ExitCode.FAILURE if report.failures else ExitCode.DONE


def _print(report: LocalReport) -> None:
    if report.anomalies:
        rows = [
            (
                str(each.kind),
                each.file,
                format_number(each.offset),
                "" if each.sequence is None else format_number(each.sequence),
                each.message if each.harmful else f"{each.message} (harmless)",
            )
            for each in report.anomalies
        ]
        print_table(("anomaly", "log segment", "offset", "sequence", ""), rows, ("offset", "sequence"))
        if unlisted := sum(report.counts.values()) - len(report.anomalies):
            echo(f"... and {unlisted} more")
        echo()
    for failure in report.failures:
        echo(f"could not be read: {failure}")
    echo(
        f"read {format_count(report.segments, 'log segment')} ({format_size(report.bytes)}) of {report.log}, format "
        f"{report.format}, with {format_count(report.commits, 'good commit')} in {format_duration(report.seconds)}"
    )
    if report.harmful:
        echo(format_count(report.harmful, "anomaly", "anomalies"))
    elif report.failures:
        echo("no anomaly was found, but not every log segment could be read")
    else:
        harmless = sum(report.counts.values())
        echo("all is well" + (f" (harmless anomalies: {harmless})" if harmless else ""))
