"""Runs ``verify`` for the folder of a log instead of a replica: checks the log's own files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from litelog.dataclass import dataclass
from litelog.errors import ExitCode
from litelog.units import format_count, format_duration, format_size
from litelog_cli.arguments import is_replica
from litelog_cli.config_file import read_config
from litelog_cli.inputs import choose_format
from litelog_cli.output import echo, format_number, print_table
from litelog_cli.progress import showing_progress

if TYPE_CHECKING:
    from litelog.config import LogConfig
    from litelog.formats import LogFormat
    from litelog.verify.local_report import LocalReport


@dataclass(frozen=True, slots=True)
class LocalCheck:
    """A log whose own files are to be checked."""

    folder: str
    log_format: LogFormat
    is_all: bool
    """Whether nothing else is: the place does not stand for a replica as well."""


def find_local_check(
    place: str, format_name: str | None, pattern: str | None, config_file: str | None, *, only_local: bool
) -> LocalCheck | None:
    """Choose the checks of the log in ``place``; None if ``place`` is a replica.

    A folder with the contents of a replica is a replica, and a configured log stands for itself and its replica.

    Raises:
        UsageError: ``format_name`` or ``only_local`` is given, and ``place`` is a replica or not a folder; or the
            format is unknown, and the place cannot be a replica.
        ConfigError: The format does not exist, or the configuration is invalid.
    """
    is_folder = not is_replica(place) and os.path.isdir(place)
    if format_name is not None or only_local:
        if not is_folder:
            option = "--local" if format_name is None else f"--format {format_name}"
            what = "a replica, which knows its format" if is_replica(place) else "not a folder"
            raise click.UsageError(f"{option} is for the files of a log: {place} is {what}")
        log_format = open_local_format(place, _find_log(place, config_file), format_name, pattern)
        if log_format is None:
            raise click.UsageError(f"{place}: its files show no known format: give --format")
        return LocalCheck(place, log_format, is_all=True)
    if not is_folder:
        return None
    log = _find_log(place, config_file)
    if log is None and (config_file is not None or _is_configured_replica(place)):
        return None
    log_format = open_local_format(place, log, None, pattern)
    if log_format is None and pattern is not None:
        raise click.UsageError(f"{place}: its files show no known format: --pattern needs --format")
    return None if log_format is None else LocalCheck(place, log_format, is_all=log is None)


def open_local_format(
    folder: str, log: LogConfig | None, format_name: str | None, pattern: str | None
) -> LogFormat | None:
    """The format of a log: as given, as configured, or as its files show; None if that is not known.

    Raises:
        ConfigError: The format does not exist, or a pattern is missing, or the format takes none.
        OSError: The folder cannot be listed.
    """
    from litelog.formats.registry import open_format
    from litelog.formats.signatures import recognise_log

    if format_name is not None or log is not None:
        return open_format(*choose_format(log, format_name, pattern))
    found = recognise_log(folder)
    return None if found is None else open_format(found.format, pattern)


def _find_log(place: str, config_file: str | None) -> LogConfig | None:
    config = read_config(config_file)
    return None if config is None else config.find_log(place)


def _is_configured_replica(place: str) -> bool:
    config = read_config(None)
    return config is not None and config.find_replica(place) is not None


def check_local(check: LocalCheck, *, shown: bool) -> LocalReport:
    """Check the files of a log. ``shown``: show progress."""
    from litelog.verify.local_log import SETTLE_SECONDS, check_log

    with showing_progress("verify", quiet=not shown) as show:
        return check_log(check.folder, check.log_format, show, settle=SETTLE_SECONDS)


def local_exit_code(report: LocalReport, *, strict: bool) -> ExitCode:
    """The exit code for a check. ``strict``: harmless anomalies count, too."""
    if report.harmful or (strict and report.anomalies):
        return ExitCode.CORRUPTION
    return ExitCode.FAILURE if report.failures else ExitCode.DONE


def print_local(report: LocalReport) -> None:
    """Print a check for people; the last line is the verdict."""
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
    echo(local_verdict(report))


def local_verdict(report: LocalReport) -> str:
    """The result of a check, in a line."""
    if report.harmful:
        return format_count(report.harmful, "anomaly", "anomalies")
    if report.failures:
        return "no anomaly was found, but not every log segment could be read"
    harmless = sum(report.counts.values())
    return "all is well" + (f" (harmless anomalies: {harmless})" if harmless else "")
