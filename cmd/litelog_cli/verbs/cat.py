"""``litelog cat``: prints the records of a log or a replica."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from litelog.dataclass import dataclass
from litelog.units import StartKind, StartPoint
from litelog_cli.arguments import FORMAT, GENERATION, PLACE, is_replica, parse_start, wait_for_place
from litelog_cli.configured import find_log, find_replica, require_present
from litelog_cli.consuming import ConsumedPlace, consumed_batches
from litelog_cli.inputs import (
    DEFAULT_FORMAT,
    DEFAULT_ISOLATION,
    GenerationSource,
    LogFolder,
    choose_format,
    log_batches,
    replica_batches,
    require_log,
)
from litelog_cli.journals import GAZETTE, journal_batches
from litelog_cli.listed import as_of_option, place_config_option
from litelog_cli.logging_setup import say
from litelog_cli.output import json_line, naming_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.formats.columns import Columns

RECORDS_AT_A_TIME = 4096
"""Records turned into Python objects at a time, to save memory."""


@dataclass(frozen=True, slots=True)
class CatOptions:
    """The arguments and options of ``litelog cat``."""

    places: tuple[str, ...]
    start_text: str
    end_text: str | None
    follow: bool
    as_json: bool
    format_name: str | None
    pattern: str | None
    name: str | None
    config_file: str | None
    state_dir: str | None
    isolation: str
    consumer: str | None
    ack: str | None

    @property
    def place(self) -> str:
        """The first place."""
        return self.places[0]


@click.command(
    epilog="""\b
Examples:
  litelog cat /var/lib/events
  litelog cat --from latest --follow /var/lib/events
  litelog cat --from 10s --json /var/lib/events
  litelog cat --from 1000 --to 2000 file:///backup/events
  litelog cat --from 2month3days --to 1day /var/lib/events
  litelog cat --format lines --pattern '*.log' /var/log/app
  litelog cat --format gazette s3://bucket/acme/clicks/part-000
  litelog cat --format kafka --isolation read_committed /var/lib/kafka/orders-0
  litelog cat --consumer billing --follow /var/lib/events
  litelog cat --follow http://HOST:9977/logs/events s3://bucket/events
\b
A place is beginning (first, oldest, start), latest (last), end (now), a sequence,
a duration back from now (10s, 1day, 2month3days, by the calendar), or an ISO time
(in UTC if it has no zone).
\b
Exit codes: 0 the end was reached, 1 failure, 2 usage, 3 nothing there,
5 another process moved the consumer, 6 damage.
"""
)
@click.argument("places", metavar="LOG_DIR|REPLICA_URL...", nargs=-1, required=True, type=PLACE)
@click.option("--from", "start_text", metavar="BOUND", default="beginning", show_default=True, help="Where to begin.")
@click.option("--to", "end_text", metavar="BOUND", help="Sequence or time to stop before.  [default: the end]")
@click.option("-f", "--follow", is_flag=True, help="Continue with records appended later; wait until the place exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each record.")
@click.option(
    "--format",
    "format_name",
    type=FORMAT,
    help="A log's format; a replica has its own. With gazette: the fragments of a journal, in a folder or a bucket.  "
    "[default: as configured, or litelog]",
)
@click.option("--pattern", metavar="PATTERN", help="Pattern for the names of log segments (formats lines and raw).")
@click.option("--generation", "name", type=GENERATION, help="Generation of the replica to read.  [default: the latest]")
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default=DEFAULT_ISOLATION,
    help="read_committed leaves out aborted and open transactions (format kafka).  [default: read_uncommitted]",
)
@click.option(
    "--consumer",
    metavar="NAME",
    help="Continue where the consumer of this name was, and move it on. --from: where a new consumer begins.",
)
@click.option(
    "--ack",
    type=click.Choice(["auto", "manual"]),
    help="When a consumer moves. auto: after records were written. manual: when a line of standard input "
    "states the sequence of a record that is processed, with all before it.  [default: auto]",
)
@place_config_option
@as_of_option
@click.option(
    "--state-dir",
    metavar="FOLDER",
    help="Where the log's daemon keeps its state (for truncated logs of lines and raw), and consumers their positions.",
)
def cat(**arguments: Any) -> None:
    """Print the records of a log or a replica.

    Prints each value unchanged, followed by a newline. With --json, prints an object for each record, with sequence,
    timestamp, key and value, and the columns of the format's own; bytes that are not UTF-8 become {"base64": ...}.

    Several places are those of one log, in the order in which they are preferred, for example the URL at its daemon and
    the replica in the object store. While the first one cannot be reached, the next one is read.
    """
    options = CatOptions(**arguments)
    if options.ack is not None and options.consumer is None:
        raise click.UsageError("--ack is for a consumer: name one with --consumer")
    now = datetime.now(UTC)
    start, end = parse_start(options.start_text, now), _parse_end(options.end_text, now)
    if end is not None and start.kind is end.kind and end.value <= start.value:
        raise click.UsageError(f"--from {options.start_text} is not before --to {options.end_text}")
    write = _write_json if options.as_json else _write_values
    for_logs = (options.config_file, options.format_name, options.state_dir)
    if len(options.places) == 1 and options.follow and not any(value is not None for value in for_logs):
        start = wait_for_start(options.place, start)
    with ExitStack() as stack:
        batches = _open_batches(stack, options, start, end)
        printed = 0
        for columns in batches:
            with naming_output():
                write(columns)
                sys.stdout.flush()
            printed += len(columns)
    if len(options.places) > 1:
        return
    if not printed and not options.follow and options.format_name != GAZETTE and options.consumer is None:
        _explain_nothing(options, start)


def _open_batches(
    stack: ExitStack, options: CatOptions, start: StartPoint, end: StartPoint | None
) -> Iterator[Columns]:
    """The records that the options ask for. ``stack`` closes what this opens."""
    if options.consumer is not None:
        require_present("a consumer")
        return _consumer_batches(stack, options, options.consumer, start)
    if not is_replica(options.place) and options.format_name != GAZETTE:
        require_present(f"the log in {options.place}")
    if len(options.places) > 1:
        return _several_batches(stack, options, start, end)
    if options.format_name == GAZETTE:
        _require_journal(options)
        require_present("the fragments of a journal")
        return journal_batches(stack, options.place, options.config_file, start, end, follow=options.follow)
    if is_replica(options.place):
        for option, given, why in (
            ("--format", options.format_name, "a replica knows its format; "),
            ("--state-dir", options.state_dir, ""),
        ):
            if given is not None:
                raise click.UsageError(f"{why}{option} is for logs")
        replica = find_replica(options.place, options.config_file)
        generation = GenerationSource(replica, options.name, options.pattern)
        return replica_batches(stack, generation, start, end, options.follow, options.isolation)
    if options.name is not None:
        raise click.UsageError("--generation is for replicas")
    log = _find_log(options)
    if not options.follow:
        require_log(log)
    return log_batches(stack, log, start, end, options.follow, options.isolation)


def _several_batches(
    stack: ExitStack, options: CatOptions, start: StartPoint, end: StartPoint | None
) -> Iterator[Columns]:
    """The records of a log from several places of it. Raises UsageError for an option that is for one place."""
    _refuse(
        "is for one place of a log, not for several",
        ("--generation", options.name),
        ("--isolation", options.isolation if options.isolation != DEFAULT_ISOLATION else None),
        (f"--format {GAZETTE}", options.format_name if options.format_name == GAZETTE else None),
    )
    return _place_of(options).open_batches(stack, start, end, follow=options.follow)


def _refuse(why: str, *given: tuple[str, object]) -> None:
    """Raise UsageError for the first option that was given."""
    for option, value in given:
        if value is not None:
            raise click.UsageError(f"{option} {why}")


def _place_of(options: CatOptions) -> ConsumedPlace:
    folder = next((place for place in options.places[1:] if not is_replica(place)), None)
    if folder is not None:
        raise click.UsageError(
            f"{folder}: is not a replica: of several places of a log, only the first may be a folder"
        )
    first, *others = options.places
    return ConsumedPlace(first, options.config_file, options.format_name, options.pattern, options.state_dir, others)


def _consumer_batches(stack: ExitStack, options: CatOptions, name: str, start: StartPoint) -> Iterator[Columns]:
    """The records that a consumer gets next. Raises UsageError for an option that it does not have."""
    _refuse(
        "is not for a consumer",
        ("--to", options.end_text),
        ("--generation", options.name),
        ("--isolation", options.isolation if options.isolation != DEFAULT_ISOLATION else None),
        (f"--format {GAZETTE}", options.format_name if options.format_name == GAZETTE else None),
    )
    consumer = _place_of(options).open_consumer(name, start, follow=options.follow)
    return consumed_batches(stack, consumer, manual=options.ack == "manual", follow=options.follow)


def _require_journal(options: CatOptions) -> None:
    """Raise UsageError for an option that a journal's fragments do not have."""
    for option, given in (
        ("--generation", options.name),
        ("--pattern", options.pattern),
        ("--state-dir", options.state_dir),
    ):
        if given is not None:
            raise click.UsageError(f"{option} is not for the fragments of a journal (--format {GAZETTE})")


def _explain_nothing(options: CatOptions, start: StartPoint) -> None:
    """Report where the log ends, if the start lies after its end."""
    if start.kind not in (StartKind.SEQUENCE, StartKind.TIME):
        return
    with ExitStack() as stack:
        last, end = None, StartPoint(StartKind.LAST)
        if is_replica(options.place):
            source = GenerationSource(find_replica(options.place, options.config_file), options.name, options.pattern)
            batches = replica_batches(stack, source, end, None, follow=False)
        else:
            batches = log_batches(stack, _find_log(options), end, None, follow=False)
        for columns in batches:
            last = int(columns.sequences[-1])
    if last is None:
        say(f"litelog: {options.place}: holds no record yet", "nothing-printed", level=logging.WARNING)
    elif start.kind is StartKind.TIME or start.value > last:
        said = f"no such record: the last one has the sequence {last}"
        say(f"litelog: {options.place}: {said}", "nothing-printed", level=logging.WARNING)


def wait_for_start(place: str, start: StartPoint, wait: Callable[[float], object] = time.sleep) -> StartPoint:
    """Wait until ``place`` is a log or a replica. Returns where to begin: after a wait, at the first record."""
    waited = wait_for_place(place, wait)
    return StartPoint(StartKind.BEGINNING) if waited and start.kind in (StartKind.LAST, StartKind.END) else start


def _find_log(options: CatOptions) -> LogFolder:
    """The log in a folder, from the options, then from its configuration.

    The default configuration is read only for formats whose first sequence is in the daemon's state.
    """
    configured, state_dir = None, options.state_dir
    if options.config_file is not None or (state_dir is None and options.format_name not in (None, DEFAULT_FORMAT)):
        configured, config_state = find_log(options.place, options.config_file)
        state_dir = state_dir or config_state
    return LogFolder(options.place, *choose_format(configured, options.format_name, options.pattern), state_dir)


def _parse_end(text: str | None, now: datetime) -> StartPoint | None:
    if text is None:
        return None
    end = parse_start(text, now)
    if end.kind not in (StartKind.SEQUENCE, StartKind.TIME):
        raise click.BadParameter(f"{text!r} is neither a sequence nor a time", param_hint="--to")
    return end


def _write_values(columns: Columns) -> None:
    data = columns.data
    starts = columns.value_starts
    ends = starts + columns.value_lengths
    out = sys.stdout.buffer
    for at in range(0, len(columns), RECORDS_AT_A_TIME):
        part = slice(at, at + RECORDS_AT_A_TIME)
        values = [data[start:end] for start, end in zip(starts[part].tolist(), ends[part].tolist(), strict=True)]
        values.append(data[:0])  # so that the last one also gets a newline
        out.write(b"\n".join(values))


def _write_json(columns: Columns) -> None:
    from litelog.formats.record_json import record_fields

    for record in columns.records():
        sys.stdout.write(json_line(record_fields(record)))
