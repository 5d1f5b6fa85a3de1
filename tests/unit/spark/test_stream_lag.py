"""The progress of a stream shows how many records it has not processed."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from litelog.spark import lag
from litelog.spark.stream.steps import encode
from tests.builders.replica_builder import make_log
from tests.builders.spark_streaming import Query, live_builder


def _progress(query: Query, *others: Any) -> Any:
    """The progress that Spark would report, after the last batch."""
    source = SimpleNamespace(endOffset=query.offsets[-1], latestOffset=json.dumps(query.follower.report()))
    return SimpleNamespace(sources=[source, *others])


@pytest.mark.slow
def test_the_lag_is_the_number_of_records_not_yet_processed() -> None:
    builder, url = live_builder()
    generation = builder.add()
    generation.ship_segment(make_log([[2, 2, 3, 1]])[0], cuts=range(9), final=None)
    query = Query(url, maxFilesPerTrigger=1)
    name = url.removeprefix("memory://")
    found = []
    while query.step():
        if query.follower.report() is not None:
            found.append(lag(_progress(query)))
    assert found == [{name: count} for count in (6, 4, 1, 0)]


@pytest.mark.slow
def test_an_unknown_lag_is_none_and_other_sources_are_omitted() -> None:
    builder, url = live_builder()
    builder.add().ship_segment(make_log([[2]])[0], final=None)
    query = Query(url).run()
    other = SimpleNamespace(endOffset="12", latestOffset=None)
    name = url.removeprefix("memory://")
    assert lag(_progress(query, other)) == {name: 0}
    query.offsets.append(json.dumps(encode({})))
    assert lag(_progress(query)) == {name: None}
