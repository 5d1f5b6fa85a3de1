"""``litelog segments``: lists the log segments of a replica or a log."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litelog.units import format_size
from litelog_cli.arguments import FORMAT, GENERATION, PLACE, is_replica, opened_replica
from litelog_cli.configured import find_log, find_replica, require_present
from litelog_cli.inputs import choose_format
from litelog_cli.listed import as_of_option, choose_claim, place_config_option, wide_option
from litelog_cli.output import format_moment, format_number, format_range, print_json, print_table, with_times
from litelog_cli.segment_listing import local_segments, replica_segments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog_cli.segment_listing import SegmentFacts

_REPLICA = ("file", "stored", "sequences", "log bytes", "")
_WIDE_REPLICA = (
    "index",
    "file",
    "stored",
    "records",
    "first",
    "next",
    "log bytes",
    "size",
    "ratio",
    "objects",
    "from",
    "to",
    "",
)
_LOG = ("file", "sequences", "log bytes", "")
_WIDE_LOG = ("file", "first", "next", "log bytes", "from", "")
_NUMBERS = ("index", "records", "first", "next", "log bytes", "size", "ratio", "objects")


@click.command(
    epilog="""\b
Examples:
  litelog segments file:///backup/events
  litelog segments --json s3://bucket/events
  litelog segments --generation 000000010badcafe file:///backup/events
  litelog segments /var/lib/events
  litelog segments --format lines --pattern '*.log' /var/log/app
  litelog segments --config /etc/litelog.yml /var/log/app
"""
)
@click.argument("place", metavar="REPLICA_URL|LOG_DIR", type=PLACE)
@click.option("--generation", "name", type=GENERATION, help="Generation to list.  [default: the latest]")
@click.option(
    "--format",
    "format_name",
    type=FORMAT,
    help="A log's format; a replica has its own.  [default: as configured, or litelog]",
)
@click.option("--pattern", metavar="PATTERN", help="Pattern for the names of log segments (formats lines and raw).")
@place_config_option
@as_of_option
@wide_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each log segment.")
def segments(
    place: str,
    name: str | None,
    format_name: str | None,
    pattern: str | None,
    config_file: str | None,
    wide: bool,
    as_json: bool,
) -> None:
    """List the log segments of a replica or a log in order, with sequences, sizes and times.

    The newest snapshot of a replica names its sealed log segments; each later log segment costs one or two small
    requests. Times are timestamps of records or, if these are not known, times of shipping.
    """
    if is_replica(place) or name is not None:
        if format_name is not None or pattern is not None:
            raise click.UsageError("a replica has its own format; --format and --pattern are for logs")
        replica = find_replica(place, config_file)
        with opened_replica(replica.url, replica.options) as client:
            _print(replica_segments(client, choose_claim(client, name)), as_json, _WIDE_REPLICA if wide else _REPLICA)
    else:
        from litelog.formats.registry import open_format

        require_present(f"the log in {place}")
        log = find_log(place, config_file)[0] if config_file is not None else None
        log_format = open_format(*choose_format(log, format_name, pattern))
        _print(local_segments(place, log_format), as_json, _WIDE_LOG if wide else _LOG)


def _print(found: Iterable[SegmentFacts], as_json: bool, columns: tuple[str, ...]) -> None:
    if as_json:
        for facts in found:
            print_json(
                with_times(asdict(facts), "lowest_timestamp", "highest_timestamp", "first_shipped", "last_shipped")
            )
        return
    rows = (_row(facts) for facts in found)
    print_table(columns, ([row[column] for column in columns] for row in rows), _NUMBERS)


def _row(facts: SegmentFacts) -> dict[str, str]:
    return {
        "index": "-" if facts.index is None else f"{facts.index:x}",
        "file": facts.file,
        "stored": facts.stored,
        "records": format_number(facts.records),
        "sequences": format_range(facts.first, facts.next),
        "first": format_number(facts.first),
        "next": format_number(facts.next),
        "log bytes": format_size(facts.log_bytes),
        "size": "-" if facts.stored_bytes is None else format_size(facts.stored_bytes),
        "ratio": format_number(facts.ratio),
        "objects": format_number(facts.objects),
        "from": format_moment(facts.first_shipped if facts.lowest_timestamp is None else facts.lowest_timestamp),
        "to": format_moment(facts.last_shipped if facts.highest_timestamp is None else facts.highest_timestamp),
        "": "" if facts.finished else "grows",
    }
