"""``litelog influxdb``: writes and reads the snapshot stream of InfluxDB 0.9's broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from litelog.units import format_count, format_size
from litelog_cli.arguments import PLACE
from litelog_cli.output import echo, print_json

if TYPE_CHECKING:
    from litelog.log.broker_snapshot import BrokerTotals

_json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")


@click.group(
    epilog="""\b
Examples:
  litelog influxdb export /var/lib/influxdb/broker broker.snapshot
  litelog influxdb import broker.snapshot /var/lib/influxdb/broker
"""
)
def influxdb() -> None:
    """Write or read the snapshot of an InfluxDB 0.9 broker."""


@influxdb.command(
    "export",
    short_help="Write a broker's topics to a snapshot file",
    epilog="""\b
Examples:
  litelog influxdb export /var/lib/influxdb/broker broker.snapshot
  litelog influxdb export --json restored/broker broker.snapshot
\b
A message that is not whole at a topic's end is left out: the broker may be
writing it. Damage before that is an error, and nothing is written.
Exit codes: 0 written, 1 failure, 2 usage, 6 corruption.
""",
)
@click.argument("broker_dir", type=PLACE)
@click.argument("file", type=PLACE)
@_json_option
def export_snapshot(broker_dir: str, file: str, as_json: bool) -> None:
    """Write all topics in BROKER_DIR to FILE, as a broker's snapshot."""
    from litelog.log.broker_snapshot import write_broker_snapshot

    _print("wrote", file, write_broker_snapshot(broker_dir, file), as_json=as_json)


@influxdb.command(
    "import",
    short_help="Write a snapshot's topics to a new folder",
    epilog="""\b
Examples:
  litelog influxdb import broker.snapshot /var/lib/influxdb/broker
  litelog influxdb import --json broker.snapshot broker
\b
BROKER_DIR appears whole, checked and synced, or not at all.
Exit codes: 0 written, 1 failure, 2 usage, 6 corruption.
""",
)
@click.argument("file", type=PLACE)
@click.argument("broker_dir", type=PLACE)
@_json_option
def import_snapshot(file: str, broker_dir: str, as_json: bool) -> None:
    """Write the topics of a broker's snapshot, FILE, to the new folder BROKER_DIR."""
    from litelog.log.broker_snapshot import read_broker_snapshot

    _print("wrote", broker_dir, read_broker_snapshot(file, broker_dir), as_json=as_json)


def _print(done: str, place: str, totals: BrokerTotals, *, as_json: bool) -> None:
    if as_json:
        fields = {"topics": totals.topics, "log_segments": totals.segments, "log_bytes": totals.bytes}
        print_json({"output": place, **fields, "next": totals.index + 1})
        return
    parts = f"{format_count(totals.topics, 'topic')}, {format_count(totals.segments, 'log segment')}"
    echo(f"{done} {place}: {parts}, {format_size(totals.bytes)}, up to index {totals.index}")
