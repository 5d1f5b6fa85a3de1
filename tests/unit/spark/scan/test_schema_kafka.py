"""Logs of Kafka have the columns of Spark's Kafka source: what a broker's own consumer read is the test's data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import ConfigError
from litelog.spark.jvm.handover import hand_over
from litelog.spark.options import parse_options
from litelog.spark.scan.decoding import read_partition
from litelog.spark.scan.planning import plan, stated_columns
from litelog.spark.scan.schema import KAFKA, asked_columns, type_of
from litelog.spark.stream.options import parse_stream_options
from tests.builders.kafka_rows import consumer_rows, ship_partition
from tests.builders.log_builder import make_log
from tests.builders.recorded_logs import unpack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KINDS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The schema of Spark's Kafka source, with ``includeHeaders``."""


def read(**options: str) -> Iterator[dict[str, Any]]:
    parsed = parse_options({name.lower(): value for name, value in options.items()})
    columns = stated_columns(parsed)
    for partition in plan(parsed).partitions:
        for batch in read_partition(partition, columns):
            yield from batch.to_pylist()


def as_read(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "timestamp": int(row["timestamp"].timestamp() * 1000)} for row in rows]


@pytest.fixture
def partition(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """The scene, and the folder of its partition."""
    scene = getattr(request, "param", "plain_none")
    return scene, unpack("kafka", scene, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "partition",
    ["plain_none", "plain_zstd", "append_time", "rolled", "after_compaction", "transactions"],
    indirect=True,
)
def test_the_rows_are_those_of_a_consumer(partition: tuple[str, Path], tmp_path: Path) -> None:
    scene, folder = partition
    topic, _, number = folder.name.rpartition("-")
    wanted = consumer_rows(scene, topic, int(number))
    assert as_read(read(path=str(folder), format="kafka", includeHeaders="true")) == wanted
    url = ship_partition(folder, tmp_path / "replicas")
    assert as_read(read(path=url, includeHeaders="true")) == wanted
    middle = wanted[len(wanted) // 2]["offset"]
    assert as_read(read(path=url, includeHeaders="true", startingOffsets=str(middle))) == [
        row for row in wanted if row["offset"] >= middle
    ]


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["transactions"], indirect=True)
def test_committed_rows_are_those_of_a_consumer_that_reads_committed(
    partition: tuple[str, Path], tmp_path: Path
) -> None:
    scene, folder = partition
    topic, _, number = folder.name.rpartition("-")
    wanted = consumer_rows(scene, topic, int(number), "read_committed")
    assert len(wanted) < len(consumer_rows(scene, topic, int(number)))
    committed = {"includeHeaders": "true", "isolation": "read_committed", "numPartitions": "5"}
    url = ship_partition(folder, tmp_path / "replicas")
    for place in ({"path": url}, {"path": str(folder), "format": "kafka"}):
        assert as_read(read(**place, **committed)) == wanted
        for bound in (each["offset"] for each in wanted):
            late = [row for row in wanted if row["offset"] >= bound]
            assert as_read(read(**place, **committed, startingSequence=str(bound))) == late
            early = [row for row in wanted if row["offset"] < bound]
            assert as_read(read(**place, **committed, endingSequence=str(bound))) == early
        times = sorted({row["timestamp"] for row in wanted})
        middle = times[len(times) // 2]
        timed = read(**place, **committed, startingTimestamp=str(middle), endingTimestamp=str(times[-1]))
        assert as_read(timed) == [row for row in wanted if middle <= row["timestamp"] < times[-1]]


@pytest.mark.slow
def test_each_of_several_partitions_is_read_by_one_task(tmp_path: Path) -> None:
    for number in range(2):
        unpack("kafka", "transactions", tmp_path / "unpacked").rename(tmp_path / f"my-topic-{number}")
        ship_partition(tmp_path / f"my-topic-{number}", tmp_path / "replicas")
    path = f"file://{tmp_path}/replicas/my-topic-*"
    options = parse_options({"path": path, "isolation": "read_committed", "numpartitions": "7"})
    assert len(plan(options).partitions) == 2
    wanted = [row for number in range(2) for row in consumer_rows("transactions", "my-topic", number, "read_committed")]
    rows = read(path=path, isolation="read_committed", includeHeaders="true")
    assert sorted(as_read(rows), key=lambda row: (row["partition"], row["offset"])) == wanted


@pytest.mark.slow
@pytest.mark.parametrize(("isolation", "narrowed"), [("read_committed", False), ("read_uncommitted", True)])
def test_java_narrows_no_read_of_committed_rows(tmp_path: Path, isolation: str, narrowed: bool) -> None:
    """The end of a transaction lies after its rows, so that a filter of these must not shorten the read."""
    url = ship_partition(unpack("kafka", "transactions", tmp_path), tmp_path / "replicas")
    options = parse_options({"path": url, "isolation": isolation, "recordschema": "log"})
    made = hand_over(plan(options).partitions, stated_columns(options)).facts
    assert (made["by_sequence"], made["parts"]) == (narrowed, 1)


@pytest.mark.parametrize(
    "other", [{"mode": "PERMISSIVE"}, {"failondataloss": "false"}, {"includemetadata": "true"}, {"engine": "java"}]
)
def test_committed_rows_need_the_whole_log(other: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="isolation=read_committed does not work with"):
        parse_options({"path": "x", "isolation": "read_committed", **other})


def test_readers_that_cannot_tell_committed_rows_refuse(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not work with failOnDataLoss=false"):
        parse_stream_options({"path": "x", "isolation": "read_committed", "failondataloss": "false"})
    with pytest.raises(ConfigError, match="isolation='x' must be read_uncommitted or read_committed"):
        parse_options({"path": "x", "isolation": "x"})
    log = make_log(tmp_path / "log")
    log.roll(2)
    with pytest.raises(ConfigError, match="have no transactions"):
        list(read(path=log.folder, isolation="read_committed"))


@pytest.mark.slow
def test_the_schema_is_that_of_sparks_kafka_source(partition: tuple[str, Path], tmp_path: Path) -> None:
    url = ship_partition(partition[1], tmp_path / "replicas")
    plain = stated_columns(parse_options({"path": url}))
    assert {column.title: type_of(column) for column in plain} == {
        name: kind for name, kind in KINDS.items() if name != "headers"
    }
    columns = stated_columns(parse_options({"path": url, "includeheaders": "true"}))
    assert {column.title: type_of(column) for column in columns} == KINDS
    assert all(column.nullable for column in columns)
    own = stated_columns(parse_options({"path": url, "recordschema": "log"}))
    assert [column.title for column in own] == ["sequence", "timestamp", "key", "value"]


@pytest.mark.slow
def test_several_partitions_are_told_apart(tmp_path: Path) -> None:
    for number, scene in enumerate(("plain_none", "rolled")):
        unpack("kafka", scene, tmp_path / "unpacked").rename(tmp_path / f"my-topic-{number}")
        ship_partition(tmp_path / f"my-topic-{number}", tmp_path / "replicas")
    rows = list(read(path=f"file://{tmp_path}/replicas/my-topic-*"))
    assert {(row["topic"], row["partition"]) for row in rows} == {("my-topic", 0), ("my-topic", 1)}
    assert "log" not in rows[0]


@pytest.mark.slow
def test_a_log_of_another_format_has_no_such_schema(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log-0")
    log.roll(2)
    with pytest.raises(ConfigError, match="recordSchema=kafka needs logs of the format kafka"):
        stated_columns(parse_options({"path": log.folder, "recordschema": "kafka"}))
    assert [column.title for column in stated_columns(parse_options({"path": log.folder}))][:1] == ["sequence"]


def test_a_schema_may_ask_for_columns_of_either_kind() -> None:
    options = parse_options({"path": "x"})
    kafkas = asked_columns(options, [(name, kind, True) for name, kind in KINDS.items()])
    assert [(column.title, column.name) for column in kafkas] == list(KAFKA.items())
    (own,) = asked_columns(options, [("offset", "bigint", True)])
    assert own.name == "offset"
    (named,) = asked_columns(parse_options({"path": "x", "recordschema": "kafka"}), [("OFFSET", "bigint", True)])
    assert (named.name, named.title) == ("sequence", "OFFSET")
    with pytest.raises(ConfigError, match="Kafka's schema has no column 'sequence'"):
        asked_columns(options, [("topic", "string", True), ("sequence", "bigint", True)])
    with pytest.raises(ConfigError, match="column partition is INT, not BIGINT"):
        asked_columns(options, [("partition", "bigint", True)])
    with pytest.raises(ConfigError, match="recordSchema='x' must be log or kafka"):
        parse_options({"path": "x", "recordschema": "x"})
