"""What a plan for Java says, and what it may not hold."""

from __future__ import annotations

import json
import os
import pickle
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from litelog.spark.jvm.handover import is_columnar, pickled, plan_lines, read_pieces, unpickled
from litelog.spark.options import parse_options
from litelog.spark.scan.partitions import SealedPiece
from litelog.spark.scan.planning import plan, stated_columns
from litelog.stores.registry import open_store
from tests.builders.replica_builder import ReplicaBuilder, make_log

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.spark.options import ReadOptions


class Harm:
    """Not a part of a plan."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.getpid, ()


@pytest.fixture
def options(tmp_path: Path) -> ReadOptions:
    """A replica of sealed segments and WAL segments, in a folder."""
    builder, log = ReplicaBuilder(), make_log([[3, 2], [4, 1], [2, 2]])
    generation = builder.add()
    for segment in log[:2]:
        generation.ship_segment(segment, cuts=[0])
    generation.ship_segment(log[2], cuts=[0], final=None)
    generation.snapshot(2)
    store = open_store(str(tmp_path))
    for key, body in builder.objects().items():
        store.put(key, [body])
    return parse_options({"path": str(tmp_path), "numPartitions": "1"})


def test_java_gets_sealed_segments_and_python_the_rest(options: ReadOptions) -> None:
    partitions = plan(options).partitions
    told, share = map(json.loads, plan_lines(partitions, stated_columns(options)))
    part = partitions[0].parts[0]
    sealed = [piece for piece in part.pieces if isinstance(piece, SealedPiece)]
    assert [one["key"] for one in share] == [*(piece.entry.key for piece in sealed), None]
    assert [one["facts"]["records"] for one in share[:2]] == [5, 5]
    assert is_columnar(partitions)
    assert [piece for one in share for piece in read_pieces(one["pieces"])] == list(part.pieces)
    assert unpickled(told["logs"][0]["pickled"]) == part.log


def test_nothing_else_is_unpickled() -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"a plan does not hold posix\.getpid"):
        unpickled(pickled(Harm()))
