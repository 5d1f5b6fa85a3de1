"""If its WAL segments were deleted after planning, a task looks once for the objects that now hold their content."""

from __future__ import annotations

from tests.builders.many_generations import CountedReplica
from tests.builders.replica_builder import ReplicaBuilder, make_log
from tests.builders.spark_reading import planned, rows


def test_objects_that_are_missing_cost_one_look_together() -> None:
    builder = ReplicaBuilder()
    built = builder.add()
    (segment,) = make_log([[1] * 12])
    built.ship_segment(segment, cuts=range(12), final=None)
    replica = CountedReplica(builder.store)
    made = planned(replica.url, failOnDataLoss="false")
    builder.client.delete_wal_segments(built.positions[1:11:2])
    found: list[int] = []
    requests = replica.count(lambda: found.extend(row["sequence"] for row in rows(replica.url, made)))
    assert found == [0, 2, 4, 6, 8, 10, 11]
    assert requests["list"] <= 2  # a hole is listed twice
