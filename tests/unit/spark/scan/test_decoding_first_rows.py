"""A query with a limit takes the first rows of a task and ends it, so a task reads little before its first rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from litelog.spark.scan.decoding import read_pieces
from litelog.spark.scan.task import JOBS, Task, open_log_format
from litelog.stores.object_store import ObjectReplicaClient
from tests.builders.replica_builder import ReplicaBuilder, make_log
from tests.builders.spark_reading import planned, stored
from tests.builders.spark_streaming import CountingStore

if TYPE_CHECKING:
    from collections.abc import Generator

    from litelog.spark.scan.record_runs import Malformed, RecordRun, SegmentCommits

SEGMENTS = 3 * JOBS


def _opened(store: CountingStore, url: str) -> Generator[RecordRun | SegmentCommits | Malformed, None, None]:
    """The runs that the only task of a plan reads, from a store that counts requests."""
    (partition,) = planned(url, numPartitions=1).partitions
    (part,) = partition.parts
    with ThreadPoolExecutor(JOBS) as executor, ThreadPoolExecutor(1) as decoder:
        client = ObjectReplicaClient(store)
        yield from read_pieces(Task(part.log, client, executor, decoder, open_log_format("litelog", None)), part)


@pytest.mark.slow
@pytest.mark.parametrize("sealed", [0, SEGMENTS])
def test_read_ahead_grows_with_the_results_that_are_taken(sealed: int) -> None:
    builder, log = ReplicaBuilder(), make_log([[1]] * SEGMENTS)
    generation = builder.add()
    for segment in log:
        generation.ship_segment(segment)
    if sealed:
        generation.snapshot(sealed)
        generation.prune(sealed)
    url = stored(builder.objects())
    for taken, most in ((1, 1), (2, 7), (3, 15)):
        store = CountingStore(builder.store)
        reading = _opened(store, url)
        assert len([*islice(reading, taken)]) == taken
        reading.close()
        assert store.counts["GET"] <= most
    store = CountingStore(builder.store)
    assert sum(1 for _ in _opened(store, url)) == SEGMENTS
    assert store.counts["GET"] == SEGMENTS
