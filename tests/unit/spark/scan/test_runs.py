"""A plan of runs is the plan of their single objects."""

from __future__ import annotations

import pickle
from itertools import accumulate
from random import Random

import pytest

from litelog.formats.litelog import LitelogFormat
from litelog.objects.snapshot_entries import MANY
from litelog.spark.options import parse_options
from litelog.spark.scan.inputs import ScanInput
from litelog.spark.scan.packing import Item, SealedItem, WalItem, pack
from litelog.spark.scan.partitions import Partition, SealedPiece
from litelog.spark.scan.planning import plan_log
from litelog.spark.scan.runs import Run, SealedRun, WalRun
from tests.builders.planned_runs import entry_columns, wal_names
from tests.builders.replica_builder import ReplicaBuilder

CLAIM = ReplicaBuilder().claim()
LOG = plan_log(ScanInput("memory://x"), parse_options({"path": "memory://x"}), LitelogFormat(), CLAIM)


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
    entries = entry_columns(CLAIM, MANY + 500, random)
    for sealed in (entries, entries.part(0, 3)):
        runs: list[Run] = [
            SealedRun.of(LOG, sealed),
            WalRun.of(LOG, wal_names(CLAIM, random.randrange(1, 900), random), None, starts_log=False),
        ]
        made = pack(runs, 512 << 20, count, 2)
        one_by_one = pack([item for run in runs for item in singles(run)], 512 << 20, count, 2)
        assert shown(made) == shown(one_by_one)
        assert shown(pickle.loads(pickle.dumps(made))) == shown(made)


@pytest.mark.slow
def test_a_run_knows_what_its_segments_follow() -> None:
    entries = entry_columns(CLAIM, MANY, Random(3))
    pieces = [*SealedRun.of(LOG, entries).pieces()]
    known = [None, *accumulate((one.next for one in entries), lambda held, new: held if new is None else new)]
    assert pieces == [SealedPiece(one, 0, one.length, at) for one, at in zip(entries, known, strict=False)]
