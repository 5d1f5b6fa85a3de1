"""What a plan for Java says, and what it may not hold."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from litelog.formats.litelog import LitelogFormat
from litelog.objects.snapshot_entries import MANY
from litelog.spark.jvm.conditions import QueriedLog
from litelog.spark.jvm.handover import describe_columns, hand_over, is_columnar, read_fields, read_log
from litelog.spark.jvm.part_rows import PART, Kind, read_pieces
from litelog.spark.jvm.pickles import pickled, unpickled
from litelog.spark.options import Mode, parse_options
from litelog.spark.scan.inputs import ScanInput
from litelog.spark.scan.packing import pack
from litelog.spark.scan.partitions import SealedPiece
from litelog.spark.scan.planning import plan, plan_log, stated_columns
from litelog.spark.scan.runs import SealedRun, WalRun
from tests.builders.planned_runs import entry_columns, put_sealed_and_wal, wal_names
from tests.builders.replica_builder import ReplicaBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from litelog.spark.jvm.handover import PackedPlan
    from litelog.spark.options import ReadOptions
    from litelog.spark.scan.partitions import Piece, PlannedLog


class Harm:
    """Not a part of a plan."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.getpid, ()


@pytest.fixture
def options(tmp_path: Path) -> ReadOptions:
    """A replica of sealed segments and WAL segments, in a folder."""
    put_sealed_and_wal(tmp_path)
    return parse_options({"path": str(tmp_path), "numPartitions": "1"})


def pieces_by_task(made: PackedPlan, logs: Sequence[PlannedLog]) -> list[tuple[int, Kind, tuple[Piece, ...]]]:
    """(task, kind, pieces) of each row, as Java passes them on."""
    whole = b"".join(made.chunks())
    assert len(whole) == made.nbytes
    start = 4 + int.from_bytes(whole[:4], "little")
    assert json.loads(whole[4:start]) == made.facts
    extras = whole[start + made.facts["parts"] * PART.itemsize :]
    rows = np.frombuffer(whole, PART, made.facts["parts"], start)
    shown = []
    for row in rows:
        extra = extras[row["extra"] : row["extra"] + row["extra_bytes"]]
        pieces = read_pieces(row.tobytes(), extra, logs[row["log"]])
        shown.append((int(row["task"]), Kind(row["kind"]), pieces))
    return shown


def test_java_gets_sealed_segments_and_python_the_rest(options: ReadOptions) -> None:
    partitions = plan(options).partitions
    made = hand_over(partitions, stated_columns(options))
    part = partitions[0].parts[0]
    (rows,) = made.rows.arrays()
    assert rows["kind"].tolist() == [Kind.SEALED, Kind.SEALED, Kind.OTHER]
    assert rows["records"].tolist()[:2] == [5, 5]
    assert is_columnar(partitions)
    shown = pieces_by_task(made, [part.log])
    assert [piece for _, _, pieces in shown for piece in pieces] == list(part.pieces)
    assert read_log(made.facts["logs"][0]) == QueriedLog(part.log)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 400])
def test_the_rows_of_runs_hold_all_pieces(tmp_path: Path, count: int) -> None:
    """Sealed segments and WAL segments in columns, each of which one task reads, except those without records."""
    random = Random(count)
    claim = ReplicaBuilder().claim()
    asked = parse_options({"path": f"file://{tmp_path}"})
    log = plan_log(ScanInput(f"file://{tmp_path}"), asked, LitelogFormat(), claim)
    entries, names = entry_columns(claim, MANY + 900, random), wal_names(claim, 3000, random)
    sealed = SealedRun.of(log, entries)
    partitions = pack([sealed, WalRun.of(log, names, None, starts_log=False)], 512 << 20, count, 2)
    made = hand_over(partitions, ())
    wanted: list[tuple[int, Piece]] = []
    for task, partition in enumerate(partitions):
        wanted += ((task, piece) for part in partition.parts for piece in part.pieces)
    shown = pieces_by_task(made, [log])
    read = [(task, piece) for task, _, pieces in shown for piece in pieces]
    assert read == [
        (task, piece) for task, piece in wanted if not isinstance(piece, SealedPiece) or piece.entry.records
    ]
    kinds = {kind for _, kind, _ in shown}
    assert kinds == ({Kind.SEALED, Kind.OTHER, Kind.WAL} if count > 3 else {Kind.SEALED, Kind.OTHER})
    rows = np.concatenate([*made.rows.arrays()])
    assert rows["first"].tolist() == sorted(rows["first"].tolist())
    assert made.rows.extras[0] == json.dumps([claim.generation, entries.array("file")[0]]).encode()


def test_columns_are_described_as_spark_reads_and_writes_them(options: ReadOptions) -> None:
    columns = stated_columns(replace(options, mode=Mode.PERMISSIVE, corrupt_column="a`b"))
    described = "`timestamp` timestamp, `key` binary, `value` binary, `a``b` string"
    assert describe_columns(columns) == f"`sequence` bigint, {described}"
    assert describe_columns(stated_columns(options)).endswith("`key` binary, `value` binary NOT NULL")
    kinds = ["long", "timestamp", "integer", {"type": "array", "elementType": "binary", "containsNull": True}]
    fields = [{"name": f"c{at}", "type": kind, "nullable": at > 0} for at, kind in enumerate(kinds)]
    read = read_fields(json.dumps({"type": "struct", "fields": fields}))
    assert read[:3] == [("c0", "bigint", False), ("c1", "timestamp", True), ("c2", "int", True)]
    assert "elementType" in read[3][1]


def test_nothing_else_is_unpickled() -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"a plan does not hold posix\.getpid"):
        unpickled(pickled(Harm()))
