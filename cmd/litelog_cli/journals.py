"""Runs ``cat`` and ``verify`` with ``--format gazette``, for the fragments of a journal in a folder or a bucket."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import click

from litelog.errors import CorruptObjectError, ExitCode
from litelog.units import StartKind, StartPoint, format_count, format_size
from litelog_cli.arguments import opened_replica
from litelog_cli.configured import find_replica
from litelog_cli.inputs import report_gaps
from litelog_cli.output import echo, format_number, print_json, print_table
from litelog_cli.progress import showing_progress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from litelog.formats.columns import Columns
    from litelog.fragments.verification import JournalReport
    from litelog.stores.object_store import ObjectReplicaClient, ObjectStore

GAZETTE = "gazette"
"""The value of ``--format``. The verbs read a bucket of fragments with it. No log has this format, so nothing of it is
replicated."""


@contextmanager
def opened_journal(place: str, config_file: str | None) -> Iterator[ObjectStore]:
    """The store that holds the fragments, with retries; it is closed at the end. Errors about damage say what to do."""
    replica = find_replica(place, config_file)
    with opened_replica(replica.url, replica.options) as client:
        try:
            yield cast("ObjectReplicaClient", client).store
        except CorruptObjectError as error:
            checks = f"litelog verify --format {GAZETTE} {shlex.quote(client.url)}"
            error.lines = (f"{client.url}: {error}", f"{checks} lists all that is damaged or missing")
            raise


def journal_batches(
    stack: ExitStack, place: str, config_file: str | None, start: StartPoint, end: StartPoint | None, *, follow: bool
) -> Iterator[Columns]:
    """Yield the lines of a journal, also of later fragments if ``follow``, and report gaps.

    ``stack`` closes what this opens.
    """
    from litelog.fragments.cover import find_cover, list_fragments
    from litelog.fragments.reader import FragmentReader, JournalGapError

    offsets = {StartKind.BEGINNING, StartKind.SEQUENCE}
    if start.kind not in {*offsets, StartKind.END} or (end is not None and end.kind not in offsets):
        raise click.UsageError("a journal has no times: --from is beginning, end or an offset, and --to an offset")
    first = start.value if start.kind is StartKind.SEQUENCE else None
    store = stack.enter_context(opened_journal(place, config_file))
    if start.kind is StartKind.END:
        first = find_cover(list_fragments(store))[-1].stop
    stop = None if end is None else end.value
    reader = stack.enter_context(FragmentReader(store, start=first, end=stop, follow=follow))
    yield from report_gaps(reader.read, JournalGapError, "journal-gap")


def verify_fragments(place: str, config_file: str | None, parallelism: int, *, as_json: bool, quiet: bool) -> int:
    """Verify a journal, print the report, and return the exit code."""
    from litelog.fragments.verification import verify_journal

    with (
        opened_journal(place, config_file) as store,
        showing_progress("verify", quiet=quiet or as_json) as show,
    ):
        report = verify_journal(store, parallelism, show)
    if as_json:
        print_json(report.as_json())
    else:
        _print(report)
    if report.harmful:
        return ExitCode.CORRUPTION
    return ExitCode.FAILURE if report.failed else ExitCode.DONE


def _print(report: JournalReport) -> None:
    if report.faults:
        print_table(("anomaly", "fragment", ""), [(each.kind, each.key, each.message) for each in report.faults])
    for first, following in report.gaps:
        echo(f"gap: no fragment holds the bytes {format_number(first)} to {format_number(following - 1)}")
    echo(
        f"read {format_count(report.fragments, 'fragment')} ({format_size(report.stored_bytes)}) and checked "
        f"{format_size(report.content_bytes)} of the journal, from offset {format_number(report.first)} to "
        f"{format_number(report.next)}"
    )
    if report.harmful:
        echo(format_count(report.harmful, "anomaly", "anomalies"))
    elif report.failed:
        echo("no anomaly was found, but not every fragment could be read")
    else:
        echo("all is well")
