"""Bounds that an option gives for single logs: which log a name means, and what is then read of each log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import ConfigError
from litelog.spark.log_bounds import match_names, split_by_log
from litelog.spark.options import format_options, parse_options
from litelog.spark.query.counting import count_records
from litelog.spark.scan.inputs import find_places
from litelog.spark.stream.options import parse_any_options, parse_stream_options
from tests.builders.replica_builder import ReplicaBuilder, make_log
from tests.builders.spark_reading import planned, rows, stored
from tests.builders.spark_streaming import Query

if TYPE_CHECKING:
    from collections.abc import Iterable

LOGS = ("bucket/logs/orders", "bucket/logs/payments", "bucket/old/orders", "orders")


@pytest.fixture(scope="module")
def urls() -> list[str]:
    """Two replicas of ten records each: sequences 0 to 9, a second apart from 1970 on."""
    found = []
    for _ in range(2):
        builder = ReplicaBuilder()
        builder.add().ship_segment(make_log([[1] * 10])[0], cuts=range(10), final=None)
        found.append(stored(builder.objects()))
    return found


def names(urls: list[str]) -> list[str]:
    return [url.removeprefix("memory://") for url in urls]


def by_log(given: Iterable[dict[str, Any]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in given:
        found.setdefault(row["log"], []).append(row["sequence"])
    return found


def batch(urls: list[str], **options: object) -> dict[str, list[int]]:
    given = format_options(options | {"paths": urls[1:], "includeMetadata": True})
    return by_log(rows(urls[0], planned(urls[0], **given), **given))


def stream(urls: list[str], **options: object) -> dict[str, list[int]]:
    given = format_options(options | {"paths": urls[1:], "includeMetadata": True})
    query = Query(urls[0], **given)
    query.columns = query.columns[:4] + tuple(each for each in query.columns if each.title == "log")
    return by_log(query.run().all_rows())


@pytest.mark.parametrize(
    ("name", "log"),
    [
        *(("payments", 1), ("logs/orders", 0), ("old/orders", 2), ("bucket/logs/payments", 1), ("/payments/", 1)),
        *(("s3://bucket/logs/orders", 0), ("s3a://bucket/old/orders/", 2), ("orders", 3)),
    ],
)
def test_a_name_means_a_whole_path_or_else_the_end_of_one(name: str, log: int) -> None:
    assert match_names("startingSequence", [name], LOGS) == {log: name}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["users"], "no log is named 'users'; the logs are bucket/logs/orders, bucket/logs/payments"),
        (["ders"], "no log is named 'ders'"),
        ([""], "no log is named ''"),
        (["payments", "logs/payments"], "'payments' and 'logs/payments' mean the same log, bucket/logs/payments"),
    ],
)
def test_a_name_that_means_no_log_or_another_name_s_log_is_refused(asked: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=f"endingSequence: {said}"):
        match_names("endingSequence", asked, LOGS)


def test_a_name_that_may_mean_several_logs_is_refused() -> None:
    with pytest.raises(ConfigError, match="'orders' may mean bucket/logs/orders, bucket/old/orders: write more"):
        match_names("endingSequence", ["orders"], LOGS[:3])
    with pytest.raises(ConfigError, match=r"the logs are a0, a1, a2, a3, a4, and 3 others$"):
        match_names("endingSequence", ["orders"], [f"a{number}" for number in range(8)])


def test_a_bound_may_be_of_a_partition_as_kafka_writes_it() -> None:
    given = '{"orders": {"0": 17, "12": -2, "3": -1}, "payments-7": 5}'
    found = {"orders-0": "17", "orders-12": "earliest", "orders-3": "latest", "payments-7": "5"}
    assert split_by_log("startingSequence", given) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"orders": 17', "is not valid JSON, such as"),
        ('{"orders": {"zero": 17}}', "'zero' of 'orders' is not the number of a partition"),
        ('{"orders": {"0": {"1": 2}}}', "'orders-0' must be a number or a text"),
        ('{"orders": {"0": true}}', "'orders-0' must be a number or a text, not true"),
        ('{"orders": -1}', "'orders' is -1: write \"latest\""),
        ('{"orders": -2}', "'orders' is -2: write \"earliest\""),
        ('{"orders": true}', "must be a number or a text, not true"),
        ('{"orders": 1.5}', "must be a number or a text, not 1.5"),
        ('{"orders": null}', "must be a number or a text, not null"),
    ],
)
def test_what_is_no_bound_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        split_by_log("startingSequence", text)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingSequence": {"a": "x"}}, "startingSequence of 'a'='x' must be a number"),
        ({"startingSequence": {"a": "latest"}}, "must be a number"),
        ({"startingTimestamp": {"a": 17}}, "startingTimestamp of 'a'='17' must be milliseconds"),
        ({"startingSequence": {"a": 9}, "endingSequence": {"a": 3}}, "endingSequence=3 of 'a' lies before"),
        ({"startingSequence": 9, "endingSequence": {"a": 3}}, "endingSequence=3 of 'a' lies before"),
        (
            {"startingTimestamp": "2026-01-02", "endingTimestamp": {"a": "2026-01-01"}},
            "endingTimestamp of 'a' lies before",
        ),
    ],
)
def test_a_bound_of_a_log_is_checked_as_one_of_all_logs(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_options(format_options({"path": "/a", **options}))


@pytest.mark.slow
def test_a_batch_reads_each_log_within_its_own_bounds(urls: list[str]) -> None:
    one, other = names(urls)
    every = list(range(10))
    assert batch(urls) == {one: every, other: every}
    assert batch(urls, startingOffsets={one: 7, other: "earliest"}, endingOffsets={other: 2}) == {
        one: [7, 8, 9],
        other: [0, 1],
    }
    assert batch(urls, startingSequence=4, endingSequence={one: 6, other: "latest"}) == {
        one: [4, 5],
        other: every[4:],
    }
    times = {one: "1970-01-01T00:00:03", other: "1970-01-01T01:00:07+01:00"}
    until = "1970-01-01T00:00:08Z"
    assert batch(urls, startingTimestamp=times, endingTimestamp=until) == {one: every[3:8], other: [7]}
    found = batch(urls, startingTimestamp={one: "1970-01-01T01:00:08"}, timeZone="Europe/Paris")
    assert found == {one: [8, 9], other: every}


@pytest.mark.slow
def test_a_filter_narrows_the_bounds_of_each_log_and_a_count_uses_them(urls: list[str]) -> None:
    one, other = names(urls)
    options = format_options({"paths": urls, "startingSequence": {one: 8}, "endingSequence": {other: 4}})
    assert count_records(parse_options(options)) == 2 + 4
    assert count_records(parse_options(options | {"startingTimestamp": json.dumps({one: 100_000_000_000})})) is None
    limits = [parse_options(options).range.narrow(2, 9).within(place.bounds) for place in places(options)]
    assert [(limit.first, limit.stop, limit.start) for limit in limits] == [(8, 9, 8), (2, 4, None)]


def places(options: dict[str, str]) -> list[Any]:
    return find_places(parse_options(options))


@pytest.mark.slow
def test_a_bound_of_a_log_that_is_not_read_is_refused_before_reading(urls: list[str]) -> None:
    options = format_options({"paths": urls, "startingSequence": {"users": "latest"}})
    with pytest.raises(ConfigError, match="startingSequence: no log is named 'users'; the logs are "):
        find_places(parse_any_options(options))
    with pytest.raises(ConfigError, match="no log is named 'users'"):
        stream(urls, startingSequence={"users": 3})


@pytest.mark.slow
def test_a_stream_begins_in_each_log_at_its_own_start(urls: list[str]) -> None:
    one, other = names(urls)
    every = list(range(10))
    assert stream(urls, startingOffsets={one: 7}) == {one: [7, 8, 9], other: every}
    assert stream(urls, startingSequence={one: "latest", other: 5}) == {other: every[5:]}
    assert stream(urls, startingOffsetsByTimestamp={one: "latest", other: "1970-01-01T00:00:06Z"}) == {other: every[6:]}
    mixed = stream(urls, startingSequence={one: 9}, startingTimestamp={other: "1970-01-01T00:00:08Z"})
    assert mixed == {one: [9], other: [8, 9]}


def test_a_stream_begins_in_a_log_at_a_sequence_or_at_a_time() -> None:
    both = {"path": "/a", "startingSequence": {"a": 3}, "startingTimestamp": {"a": "2026-01-01"}}
    with pytest.raises(ConfigError, match="both name 'a': give one of them"):
        parse_stream_options(format_options(both))
    with pytest.raises(ConfigError, match="cannot both be given"):
        parse_stream_options(format_options(both | {"startingTimestamp": "2026-01-01"}))
    with pytest.raises(ConfigError, match="a stream does not take endingSequence"):
        parse_stream_options(format_options({"path": "/a", "endingOffsets": {"a": 3}}))
