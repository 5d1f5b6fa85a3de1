"""The data sent to a task of the fast path grows with the part that it reads, not with the log."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

import pyarrow

from litelog.formats.litelog import LitelogFormat
from litelog.objects.snapshot_entries import SnapshotEntry
from litelog.spark.options import parse_options
from litelog.spark.query.dealing import CLOSURE_BYTES, DealtWork, slot_keys
from litelog.spark.scan.inputs import ScanInput
from litelog.spark.scan.packing import SealedItem, pack
from litelog.spark.scan.partitions import SealedPiece
from litelog.spark.scan.planning import plan_log
from tests.builders.replica_builder import ReplicaBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.spark.scan.partitions import Partition


def _keys(partition: Partition) -> Iterator[int]:
    yield from (piece.entry.index for part in partition.parts for piece in part.pieces)  # type: ignore[union-attr]


def _partitions(objects: int) -> tuple[Partition, ...]:
    """The partitions of a log of ``objects`` sealed segments of 64 MiB."""
    builder = ReplicaBuilder()
    claim = builder.claim()
    log = plan_log(ScanInput("memory://x"), parse_options({"path": "memory://x"}), LitelogFormat(), claim)
    size = 64 << 20
    entries = [
        SnapshotEntry(
            *(number, claim.generation, number, f"{number:020d}.log", size // 3, size, f"{number:064x}", number),
            *(number, number + 1, 1, 0, 1, 0, 1, True),
        )
        for number in range(objects)
    ]
    return pack([SealedItem(log, SealedPiece(entry, 0, size, None)) for entry in entries], 512 << 20, None)


@pytest.mark.slow
def test_a_task_gets_its_own_part_of_a_plan_and_nothing_of_the_others() -> None:
    for objects in (50, 100, 800):
        parts = [pickle.dumps(partition) for partition in _partitions(objects)]
        assert max(map(len, parts)) < 4096
        work = DealtWork.of(_keys, parts, CLOSURE_BYTES)
        assert (work.parts is None) == (objects > 500)
        assert len(pickle.dumps(work)) <= (CLOSURE_BYTES + 1024 if work.parts else 1024)
        given = range(len(parts)) if work.parts else parts
        assert [*work([pyarrow.record_batch({"part": [*given]})])] == [*range(objects)]


@pytest.mark.parametrize("count", [1, 2, 7, 64, 1000])
def test_each_task_has_a_key(count: int) -> None:
    keys = slot_keys(count)
    assert len(keys) == count == len(Counter(keys.tolist()))
