"""``litelog consumers``: lists, moves and deletes the named consumers of a log or a replica."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from litelog_cli.arguments import FORMAT, PLACE, parse_start
from litelog_cli.consuming import ConsumedPlace
from litelog_cli.inputs import reader_bounds
from litelog_cli.listed import place_config_option
from litelog_cli.output import echo, format_moment, format_number, print_json, print_table, with_times

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_COLUMNS = ("consumer", "next", "lag", "updated", "")
_NUMBERS = ("next", "lag")

_NOTE = """\b
A consumer is a named reader with a durable position: litelog cat --consumer, or
litelog.Consumer in Python. Positions of a log are in the state folder of this
machine; those of a replica are in the replica, or with the daemon that serves it.
"""


def _place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a place, as of ``cat``."""
    for option in (
        click.option(
            "--state-dir",
            metavar="FOLDER",
            help="Folder with the positions.  [default: of a log, as for cat]",
        ),
        place_config_option,
        click.option(
            "--pattern", metavar="PATTERN", help="Pattern for the names of log segments (formats lines and raw)."
        ),
        click.option(
            "--format", "format_name", type=FORMAT, help="A log's format.  [default: as configured, or litelog]"
        ),
    ):
        command = option(command)
    return command


@click.group(
    epilog="""\b
Examples:
  litelog consumers list /var/lib/events
  litelog consumers move /var/lib/events billing latest
"""
    + _NOTE
)
def consumers() -> None:
    """List, move and delete the named consumers of a log or a replica."""


@consumers.command(
    "list",
    short_help="List consumers, and how far behind each is",
    epilog="""\b
Examples:
  litelog consumers list /var/lib/events
  litelog consumers list --json s3://bucket/events
  litelog consumers list http://HOST:9977/logs/events
"""
    + _NOTE,
)
@click.argument("place", metavar="LOG_DIR|REPLICA_URL", type=PLACE)
@_place_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each consumer.")
def list_verb(as_json: bool, **place: Any) -> None:
    """List the consumers of a log or a replica, and how many records each still has to process."""
    from litelog.consumers.administration import list_consumers

    found = list_consumers(ConsumedPlace(**place).open_log())
    if as_json:
        for state in found:
            print_json({"log": place["place"], **with_times(asdict(state), "updated")})
        return
    rows = (
        (
            state.consumer,
            "beginning" if state.next is None and state.reason is None else format_number(state.next),
            format_number(state.lag_records),
            format_moment(state.updated),
            state.reason or "",
        )
        for state in found
    )
    print_table(_COLUMNS, rows, _NUMBERS)


@consumers.command(
    short_help="Move a consumer, forward or back",
    epilog="""\b
Examples:
  litelog consumers move /var/lib/events billing beginning
  litelog consumers move /var/lib/events billing 1000
  litelog consumers move s3://bucket/events billing 1day
\b
START is what --from of cat takes. A process that runs under the name cannot
commit after that (exit code 5): start it again.
""",
)
@click.argument("place", metavar="LOG_DIR|REPLICA_URL", type=PLACE)
@click.argument("name")
@click.argument("start")
@_place_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def move(name: str, start: str, as_json: bool, **place: Any) -> None:
    """Move the consumer NAME to START, forward or back. Use it after a log was rewound."""
    from litelog.consumers.administration import move_consumer
    from litelog.log.read_bounds import ReadBounds
    from litelog.system.clock import SystemClock

    given = reader_bounds(parse_start(start, datetime.now(UTC)), None)
    bounds = ReadBounds.of(given.get("start", "earliest"), given.get("start_time"), None, None)
    following = move_consumer(ConsumedPlace(**place).open_log(), name, bounds, SystemClock())
    if as_json:
        print_json({"log": place["place"], "consumer": name, "next": following})
    else:
        where = "the first record" if following is None else f"sequence {following}"
        echo(f"moved: {name} of {place['place']} to {where}")


@consumers.command(
    short_help="Delete a consumer's position",
    epilog="""\b
Examples:
  litelog consumers delete /var/lib/events billing
""",
)
@click.argument("place", metavar="LOG_DIR|REPLICA_URL", type=PLACE)
@click.argument("name")
@_place_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def delete(name: str, as_json: bool, **place: Any) -> None:
    """Delete the position of the consumer NAME. The next consumer of that name is a new one."""
    from litelog.consumers.administration import delete_consumer

    delete_consumer(ConsumedPlace(**place).open_log(), name)
    if as_json:
        print_json({"log": place["place"], "consumer": name})
    else:
        echo(f"deleted: {name} of {place['place']}")
