"""What a plan for Java says, and what it may not hold."""

from __future__ import annotations

import json
import os
import pickle
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from litelog.spark.jvm.handover import is_columnar, pickled, plan_lines, unpickled
from litelog.spark.options import parse_options
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


def test_java_gets_sealed_segments_and_python_the_rest(options: ReadOptions, tmp_path: Path) -> None:
    partitions = plan(options).partitions
    told, share = map(json.loads, plan_lines(partitions, stated_columns(options)))
    assert ["entry" in part for part in share] == [True, True, False]
    assert told["logs"][0]["folder"] == str(tmp_path)
    assert is_columnar(partitions)
    assert unpickled(share[2]["pieces"]) == partitions[0].parts[0].pieces[2:]
    assert unpickled(told["logs"][0]["pickled"]) == partitions[0].parts[0].log


def test_nothing_else_is_unpickled() -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"a plan does not hold posix\.getpid"):
        unpickled(pickled(Harm()))
