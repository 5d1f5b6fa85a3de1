"""``litelog wal``: lists the WAL segments of a generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from litelog.formats import shown_lowest
from litelog.units import format_size
from litelog_cli.arguments import GENERATION, PLACE
from litelog_cli.listed import as_of_option, choose_generation, config_option, each_replica, print_heading
from litelog_cli.listing import ratio
from litelog_cli.output import echo, format_moment, format_number, format_range, json_time, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.objects.wal_segment import WalHeader
    from litelog.stores.replica_client import ReplicaClient, WalSegmentInfo

_COLUMNS = ("position", "size", "log bytes", "sequences", "shipped", "")
_WIDE_COLUMNS = ("position", "size", "file", "log bytes", "ratio", "records", "first", "next", "shipped", "")
_NUMBERS = ("size", "log bytes", "ratio", "records", "first", "next")


@click.command(
    epilog="""\b
Examples:
  litelog wal file:///backup/events
  litelog wal --headers file:///backup/events
  litelog wal --generation 000000010badcafe --json file:///backup/events
  litelog wal --config /etc/litelog.yml /var/lib/events
"""
)
@click.argument("place", metavar="REPLICA_URL|LOG_DIR", type=PLACE)
@click.option("--generation", "name", type=GENERATION, help="Generation to list.  [default: the latest]")
@click.option("--headers", is_flag=True, help="Also read each header, with one small request each.")
@config_option
@as_of_option
@click.option("--wide", is_flag=True, help="Show all columns, as --headers does with fewer.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each WAL segment.")
def wal(place: str, name: str | None, headers: bool, config_file: str | None, wide: bool, as_json: bool) -> None:
    """List the WAL segments of a generation, in order.

    The index and offset are in hexadecimal, as in object names. WAL segments that a snapshot covers are removed after a
    while: `litelog segments` lists what they held. LOG_DIR, the folder of a configured log, stands for its replicas.
    """
    for url, client, chosen in each_replica(place, config_file, lambda client: choose_generation(client, name)):
        found = client.wal_segments(chosen)
        if as_json:
            _print_lines(client, found, headers, {"replica": url} if url else {})
            continue
        print_heading(url, echo)
        echo(f"generation {chosen}:")
        if headers or wide:
            columns = _WIDE_COLUMNS if wide else _COLUMNS
            rows = (_long_row(info, header) for info, header in _with_headers(client, found))
            print_table(columns, ([row[column] for column in columns] for row in rows), _NUMBERS)
        else:
            print_table(("position", "size"), map(_row, found), ("size",))


def _with_headers(client: ReplicaClient, found: Iterator[WalSegmentInfo]) -> Iterator[tuple[WalSegmentInfo, WalHeader]]:
    from litelog.reading.search import read_header

    for info in found:
        yield info, read_header(client, info.position)


def _print_lines(client: ReplicaClient, found: Iterator[WalSegmentInfo], headers: bool, fields: dict[str, str]) -> None:
    if headers:
        for info, header in _with_headers(client, found):
            print_json(
                {
                    **fields,
                    "position": str(info.position),
                    "stored_bytes": info.size,
                    **_header_json(header),
                }
            )
        return
    for info in found:
        where = info.position
        print_json(
            {
                **fields,
                "position": str(where),
                "generation": where.generation,
                "index": where.index,
                "offset": where.offset,
                "stored_bytes": info.size,
            }
        )


def _header_json(header: WalHeader) -> dict[str, Any]:
    return {
        "generation": header.generation,
        "index": header.index,
        "offset": header.offset,
        "log_id": header.log,
        "format": header.format,
        "owner": header.owner,
        "file": header.file,
        "log_bytes": header.length,
        "first": header.first,
        "next": header.next,
        "records": header.records,
        "lowest_timestamp": json_time(shown_lowest(header.lowest)),
        "highest_timestamp": json_time(header.highest),
        "shipped": json_time(header.shipped),
        "final": header.final,
        "sealed_digest": header.sealed,
        "crc": header.crc,
        "crc_total": header.crc_total,
        "check_offset": header.check_start,
        "check_digest": header.check_digest,
        "previous_digest": header.previous,
        "successor": header.successor,
    }


def _row(info: WalSegmentInfo) -> tuple[str, ...]:
    return (_place(info), format_size(info.size))


def _place(info: WalSegmentInfo) -> str:
    """Index and offset, without leading zeros."""
    return f"{info.position.index:x}/{info.position.offset:x}"


def _long_row(info: WalSegmentInfo, header: WalHeader) -> dict[str, str]:
    return {
        "position": _place(info),
        "size": format_size(info.size),
        "file": header.file or "-",
        "log bytes": format_size(header.length),
        "ratio": format_number(ratio(header.length, info.size)),
        "records": format_number(header.records),
        "sequences": format_range(header.first, header.next),
        "first": format_number(header.first),
        "next": format_number(header.next),
        "shipped": format_moment(header.shipped),
        "": f"ended by {header.successor}" if header.successor else "final" if header.final else "",
    }
