"""A batch of a stream keeps its limits, also within a sealed segment."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("pyarrow")

from tests.builders.replica_builder import GenerationBuilder, ReplicaBuilder, make_log
from tests.builders.spark_streaming import Query, live_builder

COMMITS = 12
RECORDS = 3 * COMMITS


def _sealed() -> tuple[ReplicaBuilder, GenerationBuilder, str]:
    """A replica of a sealed log segment of twelve commits and frames, and a WAL segment."""
    builder, url = live_builder()
    generation = builder.add()
    log = make_log([[3] * COMMITS, [1]])
    for segment in log:
        generation.ship_segment(segment, final=None if segment is log[-1] else "last")
    generation.snapshot(1)
    generation.prune(1)
    return builder, generation, url


def _sizes(query: Query) -> list[int]:
    assert query.sequences() == list(range(RECORDS + 1))
    return [len(rows) for rows in query.rows[1:]]


@pytest.mark.slow
def test_a_sealed_segment_is_cut_between_frames() -> None:
    _, _, url = _sealed()
    ends = [0, *make_log([[3] * COMMITS])[0].ends]
    for limit in (ends[1], ends[2], ends[5] + 1):
        query = Query(url, maxBytesPerTrigger=limit).run()
        taken = [0, *(sum(_sizes(query)[: number + 1]) // 3 for number in range(len(query.rows) - 1))]
        assert len(taken) > 3
        for before, after in pairwise(taken):
            assert after == before + 1 or ends[after] - ends[before] <= limit
        query.restart(forget=len(query.rows)).run()  # each batch is planned again
    query = Query(url, maxBytesPerTrigger=1)
    while query.step():
        query.restart()  # the stream begins again in the middle of the segment
    assert _sizes(query) == [3] * COMMITS + [1]


@pytest.mark.slow
@pytest.mark.parametrize("sealed", [True, False])
def test_records_are_limited(sealed: bool) -> None:
    if sealed:
        _, _, url = _sealed()
    else:
        builder, url = live_builder()
        builder.add().ship_segment(make_log([[3] * COMMITS + [1]])[0], cuts=range(99), final=None)
    assert _sizes(Query(url, maxRecordsPerTrigger=1).run()) == [3] * COMMITS + [1]
    assert _sizes(Query(url, maxRecordsPerTrigger=10).run()) == [9, 9, 9, 10]
    assert _sizes(Query(url, maxRecordsPerTrigger=7, maxFilesPerTrigger=1).run())[0] == (6 if sealed else 3)
    assert _sizes(Query(url, maxRecordsPerTrigger=100).run()) == [RECORDS + 1]


def test_a_segment_that_is_cut_costs_one_more_request() -> None:
    _, _, url = _sealed()
    query = Query(url, maxRecordsPerTrigger=6)
    query.step()
    query.step()
    query.reset_counts()
    while query.step():
        pass
    assert _sizes(query) == [6] * 6 + [1]
    assert query.counts["LIST"] <= 1
    assert query.counts["GET"] <= 4


def test_available_now_cuts_at_its_end_and_between_frames() -> None:
    builder, url = live_builder()
    generation = builder.add()
    log = make_log([[3] * COMMITS, [1]])
    generation.ship_segment(log[0], upto=5, final=None)
    query = Query(url, available_now=True, maxRecordsPerTrigger=6)
    generation.ship(log[0].data[generation.slot.offset :], log[0].name, final=True)
    generation.ship_segment(log[1], final=None)
    generation.snapshot(1)
    generation.prune(1)
    query.run()
    assert [len(rows) for rows in query.rows[1:]] == [6, 6, 3]


@pytest.mark.slow
def test_a_segment_without_a_readable_footer_is_taken_whole_and_the_tasks_report_it() -> None:
    builder, generation, url = _sealed()
    builder.client.delete_sealed_segments([(generation.name, 0)])
    query = Query(url, maxBytesPerTrigger=1, failOnDataLoss="false").run()
    assert query.sequences() == [RECORDS]
