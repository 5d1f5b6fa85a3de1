"""``litelog snapshots``: lists the snapshots of a generation."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from litelog.dataclass import dataclass
from litelog.units import format_size
from litelog_cli.arguments import GENERATION, PLACE
from litelog_cli.listed import (
    as_of_option,
    choose_claim,
    config_option,
    each_replica,
    print_facts,
    print_heading,
    wide_option,
)
from litelog_cli.listing import ratio
from litelog_cli.output import echo, format_moment, format_number, format_range, print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.objects.claim import Claim
    from litelog.objects.snapshot import Snapshot
    from litelog.stores.replica_client import IndexedInfo, ReplicaClient

_COLUMNS = ("index", "created", "segments", "sequences", "log bytes", "stored", "")
_NUMBERS = ("index", "segments", "log bytes", "stored")
_WIDE_COLUMNS = (
    "index",
    "created",
    "size",
    "segments",
    "first",
    "next",
    "log bytes",
    "stored",
    "ratio",
    "from",
    "to",
    "",
)
_WIDE_NUMBERS = ("index", "size", "segments", "first", "next", "log bytes", "stored", "ratio")

_TIMES = ("created", "first_shipped", "last_shipped")


@dataclass(frozen=True, slots=True)
class ListedSnapshot:
    """One snapshot. Times are microseconds since 1970, sizes and lengths are bytes; None: unknown."""

    generation: str
    index: int
    """The snapshot describes all log segments below this index."""
    stored_bytes: int
    """Size of the object."""
    damage: str | None = None
    created: int | None = None
    first_index: int | None = None
    sealed_segments: int | None = None
    first: int | None = None
    """The first record's sequence."""
    next: int | None = None
    sealed_log_bytes: int | None = None
    sealed_stored_bytes: int | None = None
    ratio: float | None = None
    borrowed: int | None = None
    """How many of its sealed segments are in an earlier generation."""
    first_shipped: int | None = None
    last_shipped: int | None = None


@click.command(
    epilog="""\b
Examples:
  litelog snapshots file:///backup/events
  litelog snapshots --json s3://bucket/events
  litelog snapshots --generation 000000010badcafe file:///backup/events
  litelog snapshots --config /etc/litelog.yml /var/lib/events
"""
)
@click.argument("place", metavar="REPLICA_URL|LOG_DIR", type=PLACE)
@click.option("--generation", "name", type=GENERATION, help="Generation to list.  [default: the latest]")
@config_option
@as_of_option
@wide_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each snapshot.")
def snapshots(place: str, name: str | None, config_file: str | None, wide: bool, as_json: bool) -> None:
    """List the snapshots of a generation, in order.

    A snapshot at an index names a sealed segment for each log segment before it; readers begin with the newest one.
    Each snapshot costs one small request. LOG_DIR, the folder of a configured log, stands for its replicas.
    """
    for url, client, claim in each_replica(place, config_file, lambda client: choose_claim(client, name)):
        found = _describe_all(client, claim)
        if as_json:
            for facts in found:
                print_facts(url, asdict(facts), _TIMES)
        else:
            print_heading(url, echo)
            if wide:
                print_table(_WIDE_COLUMNS, map(_wide_row, found), _WIDE_NUMBERS)
            else:
                print_table(_COLUMNS, map(_row, found), _NUMBERS)


def _describe_all(client: ReplicaClient, claim: Claim) -> Iterator[ListedSnapshot]:
    from litelog.errors import CorruptObjectError, NotFoundError, UnknownVersionError
    from litelog.reading.contents import read_snapshot

    for info in client.snapshots(claim.generation):
        try:
            snapshot, _ = read_snapshot(client, claim, info.index)
        except (CorruptObjectError, UnknownVersionError) as error:
            yield ListedSnapshot(info.generation, info.index, info.size, str(error))
        except NotFoundError:
            continue  # retention removed it meanwhile
        else:
            yield _describe(info, snapshot)


def _describe(info: IndexedInfo, snapshot: Snapshot) -> ListedSnapshot:
    entries = snapshot.segments
    length, stored = sum(entry.length for entry in entries), sum(entry.size for entry in entries)
    return ListedSnapshot(
        generation=info.generation,
        index=info.index,
        stored_bytes=info.size,
        created=snapshot.created,
        first_index=snapshot.first,
        sealed_segments=len(entries),
        first=next((entry.first for entry in entries if entry.first is not None), None),
        next=next((entry.next for entry in reversed(entries) if entry.next is not None), None),
        sealed_log_bytes=length,
        sealed_stored_bytes=stored,
        ratio=ratio(length, stored),
        borrowed=sum(entry.generation != snapshot.generation for entry in entries),
        first_shipped=entries[0].shipped_first if entries else None,
        last_shipped=entries[-1].shipped_last if entries else None,
    )


def _row(facts: ListedSnapshot) -> tuple[str, ...]:
    return (
        f"{facts.index:x}",
        format_moment(facts.created),
        format_number(facts.sealed_segments),
        format_range(facts.first, facts.next),
        "-" if facts.sealed_log_bytes is None else format_size(facts.sealed_log_bytes),
        "-" if facts.sealed_stored_bytes is None else format_size(facts.sealed_stored_bytes),
        _note(facts),
    )


def _note(facts: ListedSnapshot) -> str:
    return facts.damage or (f"{facts.borrowed} in earlier generations" if facts.borrowed else "")


def _wide_row(facts: ListedSnapshot) -> tuple[str, ...]:
    return (
        f"{facts.index:x}",
        format_moment(facts.created),
        format_size(facts.stored_bytes),
        format_number(facts.sealed_segments),
        format_number(facts.first),
        format_number(facts.next),
        "-" if facts.sealed_log_bytes is None else format_size(facts.sealed_log_bytes),
        "-" if facts.sealed_stored_bytes is None else format_size(facts.sealed_stored_bytes),
        format_number(facts.ratio),
        format_moment(facts.first_shipped),
        format_moment(facts.last_shipped),
        _note(facts),
    )
