"""``litelog generations``: the histories that a replica holds."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litelog.quantities import format_size
from litelog_cli.output import format_time, print_json, print_table
from litelog_cli.places import opened_replica

if TYPE_CHECKING:
    from litelog_cli.listing import GenerationFacts

_COLUMNS = (
    "generation",
    "state",
    "relation",
    "fencing",
    "owner",
    "host",
    "first",
    "end",
    "WAL",
    "size",
    "shipped",
    "last",
)
_NUMBERS = ("first", "WAL", "size")


@click.command(
    epilog="""\b
Examples:
  litelog generations file:///backup/events
  litelog generations --json file:///backup/events
"""
)
@click.argument("replica_url")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each generation.")
def generations(replica_url: str, as_json: bool) -> None:
    """List the generations of a replica, oldest first.

    A generation is one unbroken history of a log, as one owner wrote it. Those of isolated owners (fencing: isolated)
    stay open, and several may be written at a time; readers take the newest one that has reached its predecessor's end.
    """
    from litelog_cli.listing import describe_generations

    with opened_replica(replica_url) as client:
        found = describe_generations(client)
    if as_json:
        for facts in found:
            print_json(asdict(facts))
    else:
        print_table(_COLUMNS, map(_row, found), _NUMBERS)


def _row(facts: GenerationFacts) -> tuple[str, ...]:
    relation = facts.relation or "no claim"
    return (
        facts.generation,
        "ended" if facts.ended else "open",
        f"{relation}: {facts.reason}" if facts.reason else relation,
        facts.fencing or "-",
        facts.owner or "-",
        facts.host or "-",
        "-" if facts.first_index is None else f"{facts.first_index:x}",
        facts.end.partition("/")[2] if facts.end else "-",
        str(facts.wal_segments),
        format_size(facts.wal_bytes),
        format_time(facts.first_shipped),
        format_time(facts.last_shipped),
    )
