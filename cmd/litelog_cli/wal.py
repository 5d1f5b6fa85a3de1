"""``litelog wal``: the WAL segments of a generation."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litelog.position import Generation, generation
from litelog.quantities import format_size
from litelog_cli.output import format_time, print_json, print_table
from litelog_cli.places import GENERATION, opened_replica

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.replica_client import ReplicaClient, WalSegmentInfo
    from litelog.wal_segment import WalHeader


@click.command(
    epilog="""\b
Examples:
  litelog wal file:///backup/events
  litelog wal --headers file:///backup/events
  litelog wal --generation 000000010badcafe --json file:///backup/events
"""
)
@click.argument("replica_url")
@click.option("--generation", "name", type=GENERATION, help="Which generation.  [default: the one that readers read]")
@click.option("--headers", is_flag=True, help="Read each one's header too: one small request for each.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each WAL segment.")
def wal(replica_url: str, name: Generation | None, headers: bool, as_json: bool) -> None:
    """List the WAL segments of a generation, in order.

    The index and offset are in hexadecimal digits, as in the objects' names.
    """
    with opened_replica(replica_url) as client:
        chosen = _choose(client, name)
        found = client.wal_segments(chosen)
        if as_json:
            _print_lines(client, found, headers)
        elif headers:
            columns = ("position", "size", "file", "bytes", "records", "first", "next", "shipped", "")
            rows = (_long_row(info, header) for info, header in _with_headers(client, found))
            print_table(columns, rows, ("size", "bytes", "records", "first", "next"))
        else:
            print_table(("position", "size"), map(_row, found), ("size",))


def _choose(client: ReplicaClient, name: Generation | None) -> Generation:
    from litelog.reading.generation_choice import find_claim, find_latest

    claim = find_latest(client) if name is None else find_claim(client, name)
    return generation(claim.generation)


def _with_headers(client: ReplicaClient, found: Iterator[WalSegmentInfo]) -> Iterator[tuple[WalSegmentInfo, WalHeader]]:
    from litelog.reading.wal_search import read_header

    for info in found:
        yield info, read_header(client, info.position)


def _print_lines(client: ReplicaClient, found: Iterator[WalSegmentInfo], headers: bool) -> None:
    if headers:
        for info, header in _with_headers(client, found):
            print_json({"position": str(info.position), "size": info.size, **asdict(header)})
        return
    for info in found:
        where = info.position
        print_json(
            {
                "position": str(where),
                "generation": where.generation,
                "index": where.index,
                "offset": where.offset,
                "size": info.size,
            }
        )


def _row(info: WalSegmentInfo) -> tuple[str, ...]:
    return (str(info.position), format_size(info.size))


def _long_row(info: WalSegmentInfo, header: WalHeader) -> tuple[str, ...]:
    mark = f"ended by {header.successor}" if header.successor else "final" if header.final else ""
    return (
        *_row(info),
        header.file or "-",
        str(header.length),
        str(header.records),
        "-" if header.first is None else str(header.first),
        "-" if header.next is None else str(header.next),
        format_time(header.shipped),
        mark,
    )
