"""A plan of runs is the plan of their single objects."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import accumulate
from random import Random

import pytest

from litelog.formats.litelog import LitelogFormat
from litelog.objects import snapshot as snapshots
from litelog.objects.position import Position
from litelog.objects.snapshot import Snapshot
from litelog.objects.snapshot_entries import MANY, EntryColumns, SnapshotEntry
from litelog.reading.wal_names import WalNames
from litelog.spark.options import parse_options
from litelog.spark.scan.inputs import ScanInput
from litelog.spark.scan.packing import Item, SealedItem, WalItem, pack
from litelog.spark.scan.partitions import Partition, SealedPiece
from litelog.spark.scan.planning import plan_log
from litelog.spark.scan.runs import Run, SealedRun, WalRun
from litelog.stores.replica_client import WalSegmentInfo
from tests.builders.replica_builder import ReplicaBuilder

CLAIM = ReplicaBuilder().claim()
LOG = plan_log(ScanInput("memory://x"), parse_options({"path": "memory://x"}), LitelogFormat(), CLAIM)
NAME = CLAIM.generation


def entry(number: int, first: int | None, records: int, length: int) -> SnapshotEntry:
    following = None if first is None else first + records
    stamp = None if first is None else number
    stated = (f"{number:020d}.log", length // 2 + 200, length, f"{number:064x}", number, first, following, records)
    return SnapshotEntry(number, NAME, number, *stated, stamp, stamp, number, number + 1, exact=number % 3 > 0)


def columns(count: int, random: Random) -> EntryColumns:
    """Entries as a snapshot gives them that was read. Some log segments have no records."""
    records = [random.choice([0, 1, 500]) for _ in range(count)]
    firsts = [*accumulate(records, initial=0)][:count]
    entries = [
        entry(number, first if held else None, held, random.randrange(100, 1 << 26))
        for number, (first, held) in enumerate(zip(firsts, records, strict=True))
    ]
    held = Snapshot(CLAIM.log, CLAIM.format, NAME, CLAIM.owner, 0, count, 0, segments=tuple(entries))
    found = snapshots.decode(held.key, snapshots.encode(held))
    assert isinstance(found.segments, EntryColumns)
    return found.segments


def wal(count: int, random: Random) -> WalNames:
    names = WalNames(NAME)
    at = Position(NAME, 9, 0)
    for _ in range(count):
        names.append(WalSegmentInfo(at, random.randrange(100, 1 << 20)))
        fresh = random.random() < 0.2
        at = Position(NAME, at.index + 1, 0) if fresh else replace(at, offset=at.offset + random.randrange(1, 1 << 20))
    return names


def singles(run: Run) -> list[Item]:
    """The objects of a run, one by one."""
    if isinstance(run, SealedRun):
        return [SealedItem(run.log, piece) for piece in run.pieces()]
    items: list[Item] = []
    infos = [*run.names]
    for number, (info, raw) in enumerate(zip(infos, run.raws.tolist(), strict=True)):
        before = infos[number - 1].position if number else None
        behind = infos[number + 1].position if number + 1 < len(infos) else None
        items.append(WalItem(run.log, info, raw, None, before, behind, run.starts_log and not number))
    return items


def shown(partitions: tuple[Partition, ...]) -> list[object]:
    return [(made.raw_bytes, [(part.log, tuple(part.pieces)) for part in made.parts]) for made in partitions]


@pytest.mark.slow
@pytest.mark.parametrize("count", [None, 1, 3, 40])
def test_runs_are_packed_as_their_objects_are(count: int | None) -> None:
    random = Random(count)
    entries = columns(MANY + 500, random)
    for sealed in (entries, entries.part(0, 3)):
        runs: list[Run] = [
            SealedRun(LOG, sealed, sealed.follows()),
            WalRun.of(LOG, wal(random.randrange(1, 900), random), None, starts_log=False),
        ]
        made = pack(runs, 512 << 20, count, 2)
        one_by_one = pack([item for run in runs for item in singles(run)], 512 << 20, count, 2)
        assert shown(made) == shown(one_by_one)
        assert shown(pickle.loads(pickle.dumps(made))) == shown(made)


@pytest.mark.slow
def test_a_run_knows_what_its_segments_follow() -> None:
    entries = columns(MANY, Random(3))
    pieces = [*SealedRun(LOG, entries, entries.follows()).pieces()]
    known = [None, *accumulate((one.next for one in entries), lambda held, new: held if new is None else new)]
    assert pieces == [SealedPiece(one, 0, one.length, at) for one, at in zip(entries, known, strict=False)]
