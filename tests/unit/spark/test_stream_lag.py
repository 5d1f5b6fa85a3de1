"""The progress of a stream shows how many records and bytes it has not processed, and for how long they wait."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import StoreError
from litelog.objects.position import Position, generation
from litelog.spark import describe, lag
from litelog.spark.stream.lag import StreamLag
from litelog.spark.stream.steps import LogOffset, encode, encode_report
from tests.builders.replica_builder import make_log
from tests.builders.spark_streaming import Query, live_builder

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE = StreamLag(0, 0, 0.0)


def _progress(query: Query, *others: Any) -> Any:
    """The progress that Spark would report, after the last batch."""
    source = SimpleNamespace(endOffset=query.offsets[-1], latestOffset=json.dumps(query.follower.report()))
    return SimpleNamespace(sources=[source, *others])


def _lags(query: Query) -> list[StreamLag]:
    """The lag after each batch, without the first one, which is empty."""
    found = []
    while query.step():
        if query.follower.report() is not None:
            (one,) = lag(_progress(query)).values()
            found.append(one)
    return found


def _left(query: Query, data: bytes, marks: Sequence[tuple[int, int]], records: Sequence[int]) -> list[StreamLag]:
    """The lag after each mark but the last: the bytes that follow it, which were shipped by the next one."""
    now = query.clock.now()
    return [
        StreamLag(count, len(data) - end, (now - shipped) / 1_000_000)
        for count, (end, _), (_, shipped) in zip(records, marks, marks[1:], strict=False)
    ]


@pytest.mark.slow
def test_the_lag_is_what_was_not_yet_processed() -> None:
    builder, url = live_builder()
    generation = builder.add()
    (segment,) = make_log([[2, 2, 3, 1]])
    generation.ship_segment(segment, cuts=range(9), final=None)
    query = Query(url, maxFilesPerTrigger=1)
    left = _left(query, segment.data, generation.shipped[0].marks, (6, 4, 1))
    assert _lags(query) == [*left, DONE]
    assert list(lag(_progress(query))) == [url.removeprefix("memory://")]


@pytest.mark.slow
def test_the_rest_of_a_sealed_segment_waits_since_its_bytes_were_shipped() -> None:
    builder, url = live_builder()
    generation = builder.add()
    log = make_log([[1] * 5, [1]])
    generation.ship_segment(log[0], cuts=range(9))
    generation.ship_segment(log[1], final=None)
    generation.snapshot(1)
    generation.prune(1)
    query = Query(url, maxRecordsPerTrigger=1)
    data = log[0].data + log[1].data
    marks = [*generation.shipped[0].marks, (len(data), generation.clock)]
    assert _lags(query) == [*_left(query, data, marks, (5, 4, 3, 2, 1)), DONE]


@pytest.mark.slow
def test_only_the_header_of_the_first_waiting_wal_segment_is_read() -> None:
    builder, url = live_builder()
    builder.add().ship_segment(make_log([[1] * 12])[0], cuts=range(12), final=None)
    query = Query(url, maxFilesPerTrigger=1)
    assert query.step()
    query.reset_counts()
    assert query.next_offset() is not None
    assert query.counts["GET"] <= 5  # claim, snapshot, and headers: the newest, that of the batch, and the next one
    before = query.counts.copy()
    assert query.follower.report() is not None
    assert query.counts == before


@pytest.mark.slow
def test_a_store_that_fails_leaves_the_seconds_unknown() -> None:
    builder, url = live_builder()
    builder.add().ship_segment(make_log([[1] * 3])[0], cuts=range(3), final=None)
    query = Query(url, maxFilesPerTrigger=1)
    assert query.step()
    assert query.step()
    tail = query.follower._begun[url.removeprefix("memory://")].tail
    tail.steps[0] = replace(tail.steps[0], shipped=None)  # type: ignore[arg-type]
    query.stores[0].failures += [StoreError("get", url, "away", retryable=False)]
    tail.read_backlog()
    (one,) = lag(_progress(query)).values()
    assert (one.records, one.seconds) == (2, None)
    tail.read_backlog()
    (one,) = lag(_progress(query)).values()
    assert one.seconds is not None


@pytest.mark.slow
def test_an_unknown_lag_is_none_and_other_sources_are_omitted() -> None:
    builder, url = live_builder()
    builder.add().ship_segment(make_log([[2]])[0], final=None)
    query = Query(url).run()
    other = SimpleNamespace(endOffset="12", latestOffset=None)
    name = url.removeprefix("memory://")
    assert lag(_progress(query, other)) == {name: DONE}
    query.offsets.append(json.dumps(encode({})))
    assert lag(_progress(query)) == {name: StreamLag(None, 0, 0.0)}


def _at(epoch: int, sequence: int | None, offset: int = 0) -> dict[str, LogOffset]:
    position = Position(generation(f"{epoch:08x}000000a1"), 0, offset)
    return {"bucket/a": LogOffset(position, sequence)}


def _reported(end: dict[str, LogOffset], head: dict[str, LogOffset], backlog: dict[str, Any]) -> Any:
    report = encode_report(head, {"bucket/a": backlog})
    return SimpleNamespace(sources=[SimpleNamespace(endOffset=encode(end), latestOffset=report)])


def test_records_are_unknown_in_an_older_generation_and_bytes_are_known() -> None:
    progress = _reported(_at(1, 5), _at(2, 9), {"bytes": 100, "seconds": 2.5})
    assert lag(progress) == {"bucket/a": StreamLag(None, 100, 2.5)}
    assert describe(progress) == (
        "bucket/a: next is record 5 in generation 00000001000000a1, behind by ? records, 100 B, 2.5s"
    )


def test_it_is_described_in_a_line_for_each_log() -> None:
    progress = _reported(_at(1, 5), _at(1, 1205, 9), {"bytes": 131072, "seconds": 75})
    assert describe(progress) == (
        "bucket/a: next is record 5 in generation 00000001000000a1, behind by 1,200 records, 128.0 KiB, 1m15s"
    )
    unknown = _reported(_at(1, None), _at(1, None, 9), {"bytes": 1, "seconds": None})
    assert describe(unknown).endswith(
        "next is not known in generation 00000001000000a1, behind by ? records, 1 B, ? seconds"
    )
    assert describe(_reported({}, _at(1, 9), {})) == "bucket/a: not begun"


def test_a_report_of_an_older_litelog_has_no_bytes() -> None:
    source = SimpleNamespace(endOffset=encode(_at(1, 5)), latestOffset=json.dumps(encode(_at(1, 9, 7))))
    assert lag(SimpleNamespace(sources=[source])) == {"bucket/a": StreamLag(4, None, None)}
