"""``read_committed`` gives what Kafka's consumer gives with that isolation, in any pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import ConfigError, LitelogError
from litelog.formats import Expectation
from litelog.formats.committed_reading import CommittedReading
from litelog.formats.kafka import KafkaFormat
from litelog.formats.kafka.committed import CommittedRecords
from litelog.formats.litelog import LitelogFormat
from tests.builders.kafka_log import as_served, recording, write_transactions
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Generator

    from litelog.formats.columns import Columns, Record

pytestmark = pytest.mark.slow

NAME = f"{0:020d}.log"


def read(segments: list[tuple[str, bytes]], commits: int = 1000, **bounds: int) -> list[Record]:
    """The committed records of log segments that are read some commits at a time."""
    reading = CommittedReading(lambda _: KafkaFormat())
    log_format = reading.open_format("kafka")

    def batches() -> Generator[Columns, None, None]:
        expect = Expectation()
        for name, data in segments:
            places = [commit.end for commit in log_format.commits(name, memoryview(data), 0, expect)]
            starts = [0, *places[commits - 1 : -1 : commits]]
            for start, end in zip(starts, [*starts[1:], len(data)], strict=True):
                columns = log_format.decode(name, memoryview(data)[start:end], start, expect)
                expect = log_format.scan(name, memoryview(data)[start:end], start, expect).expectation
                if len(columns):
                    yield columns

    return [record for columns in reading.filtered(batches(), **bounds) for record in columns.records()]


@pytest.mark.parametrize("commits", [1, 2, 3, 1000])
@pytest.mark.parametrize("scene", ["transactions", "plain_none", "after_compaction"])
def test_records_are_those_that_the_broker_served_as_committed(scene: str, commits: int) -> None:
    recorded = recording(scene)
    found = [as_served(record) for record in read(recorded.segments, commits)]
    assert found == recorded.served["read_committed"]


steps = st.tuples(st.sampled_from(["plain", "write", "write", "commit", "abort"]), st.integers(1, 3))


@given(st.lists(steps, min_size=1, max_size=30), st.integers(1, 5))
@settings(max_examples=examples(200))
def test_interleaved_transactions_are_decided_by_their_markers(todo: list[tuple[str, int]], commits: int) -> None:
    data, expected = write_transactions(todo)
    assert [record.sequence for record in read([(NAME, data)], commits)] == expected


def test_the_end_bounds_records_and_not_the_markers_that_decide_about_them() -> None:
    data, _ = write_transactions([("write", 1), ("plain", 0), ("write", 1), ("commit", 1)])
    assert [record.sequence for record in read([(NAME, data)], 1, end=2)] == [0, 1]


def test_only_the_formats_own_columns_remain() -> None:
    (record, *_) = read(recording("transactions").segments)
    assert list(record.extra or ()) == list(KafkaFormat().extra_columns)


def test_what_is_held_back_has_a_limit() -> None:
    data, _ = write_transactions([("write", 1), *[("plain", 0)] * 20])
    columns = KafkaFormat(markers=True).decode(NAME, memoryview(data), 0, Expectation())
    with pytest.raises(LitelogError, match="begins at offset 0 is still open"):
        list(CommittedRecords(max_held_bytes=len(data) - 1).add(columns))
    assert list(CommittedRecords(max_held_bytes=2 * len(data)).add(columns)) == []


def test_a_log_without_transactions_cannot_be_read_so() -> None:
    with pytest.raises(ConfigError, match="format litelog have no transactions"):
        CommittedReading(lambda _: LitelogFormat()).open_format("litelog")
