"""``litelog wal``: the WAL segments of a generation."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from litelog.errors import NothingToRestoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.position import Generation
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
@click.option("--generation", "name", help="Which generation.  [default: the one that readers read]")
@click.option("--headers", is_flag=True, help="Read each one's header too: one small request for each.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each WAL segment.")
def wal(replica_url: str, name: str | None, headers: bool, as_json: bool) -> None:
    """List the WAL segments of a generation, in order.

    The index and offset are in hexadecimal digits, as in the objects' names.
    """
    from litelog_cli.output import print_table
    from litelog_cli.places import open_client

    with closing(open_client(replica_url)) as client:
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


def _choose(client: ReplicaClient, name: str | None) -> Generation:
    from litelog.lineage import find_latest, read_claims
    from litelog.position import generation

    if name is None:
        latest = find_latest(client, read_claims(client))
        if latest is None:
            raise NothingToRestoreError(f"{client.url}: holds no generation")
        return generation(latest[0].generation)
    try:
        wanted = generation(name)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--generation") from error
    there = client.generations()
    if wanted not in there:
        known = ", ".join(there) or "none"
        raise NothingToRestoreError(f"{client.url}: holds no generation {wanted} (it holds: {known})")
    return wanted


def _with_headers(client: ReplicaClient, found: Iterator[WalSegmentInfo]) -> Iterator[tuple[WalSegmentInfo, WalHeader]]:
    from litelog_cli.listing import read_header

    for info in found:
        yield info, read_header(client, info.position)


def _print_lines(client: ReplicaClient, found: Iterator[WalSegmentInfo], headers: bool) -> None:
    from dataclasses import asdict

    from litelog_cli.output import print_json

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
    from litelog.quantities import format_size

    return (str(info.position), format_size(info.size))


def _long_row(info: WalSegmentInfo, header: WalHeader) -> tuple[str, ...]:
    from litelog_cli.output import format_time

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
