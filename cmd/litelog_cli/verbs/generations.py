"""``litelog generations``: lists the histories in a replica."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litelog.units import format_duration, format_size
from litelog_cli.arguments import PLACE
from litelog_cli.listed import as_of_option, config_option, each_replica, print_facts, print_heading, wide_option
from litelog_cli.output import (
    echo,
    echo_lines,
    format_moment,
    format_number,
    format_place,
    format_range,
    print_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog_cli.listing import ListedGeneration

_COLUMNS = ("generation", "state", "sequences", "last shipped", "stored")
_WIDE_COLUMNS = (
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
_WIDE_NUMBERS = ("first", "sealed", "stored", "ratio", "snapshots", "WAL", "size", "lag")

_TIMES = ("claimed", "first_shipped", "last_shipped")


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
@as_of_option
@wide_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each generation.")
def generations(place: str, config_file: str | None, wide: bool, as_json: bool) -> None:
    """List the generations of a replica, oldest first.

    A generation is one unbroken history of a log, as one owner wrote it. Isolated owners (fencing: isolated) leave
    theirs open, and several may be written at a time; readers take the newest generation that has reached its
    predecessor's end. A generation that never began was ended before its owner wrote the first snapshot, and holds
    nothing. The lag is the time between a generation's last shipped bytes and the newest shipped bytes of all. LOG_DIR,
    the folder of a configured log, stands for its replicas.
    """
    from litelog_cli.listing import describe_generations

    for url, _, found in each_replica(place, config_file, describe_generations):
        if as_json:
            for facts in found:
                print_facts(url, {**asdict(facts), "position": _position(facts)}, _TIMES)
        else:
            print_heading(url, echo)
            if wide:
                print_table(_WIDE_COLUMNS, map(_wide_row, found), _WIDE_NUMBERS)
            else:
                print_table(_COLUMNS, map(_row, found), ("stored",))
            echo_lines(line for facts in found for line in _notes(facts))


def _notes(facts: ListedGeneration) -> Iterator[str]:
    """The unusual facts about a generation."""
    if facts.reason:
        yield f"{facts.generation} {facts.relation}: {facts.reason}"
    if facts.damage:
        yield f"{facts.generation} is damaged: {facts.damage}"
    if facts.relation is None:
        yield f"{facts.generation} has no claim"


def _row(facts: ListedGeneration) -> tuple[str, ...]:
    return (
        facts.generation,
        _state(facts),
        format_range(facts.first, facts.next),
        format_moment(facts.last_shipped),
        format_size(facts.sealed_stored_bytes + facts.wal_stored_bytes),
    )


def _position(facts: ListedGeneration) -> str | None:
    return None if facts.position is None else str(facts.position)


def _state(facts: ListedGeneration) -> str:
    return "never began" if not facts.began else "ended" if facts.ended else "open"


def _wide_row(facts: ListedGeneration) -> tuple[str, ...]:
    return (
        facts.generation,
        _state(facts),
        facts.relation or "no claim",
        facts.fencing or "-",
        facts.owner or "-",
        facts.host or "-",
        "-" if facts.first_index is None else f"{facts.first_index:x}",
        format_place(_position(facts)),
        format_range(facts.first, facts.next),
        format_number(facts.sealed_segments),
        format_size(facts.sealed_stored_bytes),
        format_number(facts.ratio),
        "damaged" if facts.damage else format_number(facts.snapshots),
        format_number(facts.wal_segments),
        format_size(facts.wal_stored_bytes),
        format_moment(facts.first_shipped),
        format_moment(facts.last_shipped),
        "-" if facts.lag_seconds is None else format_duration(facts.lag_seconds),
    )
