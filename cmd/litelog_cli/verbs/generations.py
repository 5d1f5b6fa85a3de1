"""``litelog generations``: lists the histories in a replica."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litelog.units import format_duration, format_size
from litelog_cli.arguments import PLACE
from litelog_cli.listed import config_option, each_replica, print_heading
from litelog_cli.output import echo, format_number, format_time, print_json, print_table

if TYPE_CHECKING:
    from litelog_cli.listing import ListedGeneration

_COLUMNS = (
    "generation",
    "state",
    "relation",
    "fencing",
    "owner",
    "host",
    "first",
    "end",
    "sequences",
    "sealed",
    "stored",
    "ratio",
    "snapshots",
    "WAL",
    "size",
    "shipped",
    "last",
    "lag",
)
_NUMBERS = ("first", "sealed", "stored", "ratio", "snapshots", "WAL", "size", "lag")


@click.command(
    epilog="""\b
Examples:
  litelog generations file:///backup/events
  litelog generations --json file:///backup/events
  litelog generations --config /etc/litelog.yml /var/lib/events
"""
)
@click.argument("place", metavar="REPLICA_URL|LOG_DIR", type=PLACE)
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each generation.")
def generations(place: str, config_file: str | None, as_json: bool) -> None:
    """List the generations of a replica, oldest first.

    A generation is one unbroken history of a log, as one owner wrote it. Isolated owners (fencing: isolated) leave
    theirs open, and several may be written at a time; readers take the newest one that has reached its predecessor's
    end. A generation that never began was ended before its owner wrote the first snapshot, and holds nothing. The lag
    is the time between a generation's last shipped bytes and the newest shipped bytes of all. LOG_DIR, the folder of a
    configured log, stands for its replicas.
    """
    from litelog_cli.listing import describe_generations

    for url, _, found in each_replica(place, config_file, describe_generations):
        if as_json:
            for facts in found:
                print_json({**({"replica": url} if url else {}), **asdict(facts)})
        else:
            print_heading(url, echo)
            print_table(_COLUMNS, map(_row, found), _NUMBERS)


def _row(facts: ListedGeneration) -> tuple[str, ...]:
    relation = facts.relation or "no claim"
    return (
        facts.generation,
        "never began" if not facts.began else "ended" if facts.ended else "open",
        f"{relation}: {facts.reason}" if facts.reason else relation,
        facts.fencing or "-",
        facts.owner or "-",
        facts.host or "-",
        "-" if facts.first_index is None else f"{facts.first_index:x}",
        facts.end.partition("/")[2] if facts.end else "-",
        _range(facts.first_sequence, facts.next_sequence),
        str(facts.sealed_segments),
        format_size(facts.sealed_bytes),
        format_number(facts.ratio),
        "damaged" if facts.damage else str(facts.snapshots),
        str(facts.wal_segments),
        format_size(facts.wal_bytes),
        format_time(facts.first_shipped),
        format_time(facts.last_shipped),
        "-" if facts.lag is None else format_duration(facts.lag),
    )


def _range(first: int | None, following: int | None) -> str:
    return "-" if first is None or following is None or first == following else f"{first}-{following - 1}"
