"""Runs of objects as a plan holds them: entries of a snapshot that was read, and names of WAL segments."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from litelog.objects import snapshot as snapshots
from litelog.objects.position import Position
from litelog.objects.snapshot import Snapshot
from litelog.objects.snapshot_entries import EntryColumns, SnapshotEntry
from litelog.reading.wal_names import WalNames
from litelog.stores.registry import open_store
from litelog.stores.replica_client import WalSegmentInfo
from tests.builders.replica_builder import ReplicaBuilder, make_log

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from litelog.objects.claim import Claim


def entry(claim: Claim, number: int, first: int | None, records: int, length: int) -> SnapshotEntry:
    """The entry of a log segment; ``first``: None without records."""
    following = None if first is None else first + records
    stamp = None if first is None else number
    stated = (f"{number:020d}.log", length // 2 + 200, length, f"{number:064x}", number, first, following, records)
    times = (stamp, stamp, number, number + 1)
    return SnapshotEntry(number, claim.generation, number, *stated, *times, exact=number % 3 > 0)


def entry_columns(claim: Claim, count: int, random: Random) -> EntryColumns:
    """Entries as a snapshot gives them that was read. Some log segments have no records."""
    records = [random.choice([0, 1, 500]) for _ in range(count)]
    firsts = [*accumulate(records, initial=0)][:count]
    entries = [
        entry(claim, number, first if held else None, held, random.randrange(100, 1 << 26))
        for number, (first, held) in enumerate(zip(firsts, records, strict=True))
    ]
    name = claim.generation
    held = Snapshot(claim.log, claim.format, name, claim.owner, 0, count, 0, segments=tuple(entries))
    found = snapshots.decode(held.key, snapshots.encode(held))
    assert isinstance(found.segments, EntryColumns)
    return found.segments


def wal_names(claim: Claim, count: int, random: Random) -> WalNames:
    """Names of WAL segments of random sizes, in log segments from index 9 on."""
    names = WalNames(claim.generation)
    at = Position(claim.generation, 9, 0)
    for _ in range(count):
        names.append(WalSegmentInfo(at, random.randrange(100, 1 << 20)))
        fresh = random.random() < 0.2
        following = Position(at.generation, at.index + 1, 0)
        at = following if fresh else replace(at, offset=at.offset + random.randrange(1, 1 << 20))
    return names


def sealed_and_wal() -> ReplicaBuilder:
    """A replica of two sealed segments and two WAL segments: 14 records."""
    builder, log = ReplicaBuilder(), make_log([[3, 2], [4, 1], [2, 2]])
    generation = builder.add()
    for segment in log[:2]:
        generation.ship_segment(segment, cuts=[0])
    generation.ship_segment(log[2], cuts=[0], final=None)
    generation.snapshot(2)
    generation.prune(2)
    return builder


def put_sealed_and_wal(folder: Path) -> None:
    """Put the replica of ``sealed_and_wal`` into a folder."""
    sealed_and_wal().put_into(open_store(str(folder)))
