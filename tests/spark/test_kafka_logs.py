"""Logs of Kafka in Spark: a job for the Kafka source reads them with another line for loading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders.kafka_rows import consumer_rows, ship_partition
from tests.builders.recorded_logs import unpack

if TYPE_CHECKING:
    from pathlib import Path

SCENES = ("plain_none", "rolled", "transactions")


@pytest.fixture(scope="module")
def topic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The replicas of three partitions of one topic."""
    folder = tmp_path_factory.mktemp("kafka")
    for number, scene in enumerate(SCENES):
        unpack("kafka", scene, folder / "unpacked").rename(folder / f"orders-{number}")
        ship_partition(folder / f"orders-{number}", folder / "replicas")
    return folder / "replicas"


def as_dicts(rows: list[Any]) -> list[dict[str, Any]]:
    def plain(value: Any) -> Any:
        if isinstance(value, bytearray):
            return bytes(value)
        if isinstance(value, list):
            return [plain(each.asDict()) for each in value]
        return {name: plain(each) for name, each in value.items()} if isinstance(value, dict) else value

    found = [plain(row.asDict()) for row in rows]
    for row in found:
        row["timestamp"] = int(row["timestamp"].timestamp() * 1000)
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def test_a_batch_has_the_rows_of_a_consumer(spark: Any, topic: Path) -> None:
    frame = spark.read.format("litelog").option("includeHeaders", "true").load(f"file://{topic}/orders-*")
    wanted = [row for number, scene in enumerate(SCENES) for row in consumer_rows(scene, "orders", number)]
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert as_dicts(frame.collect()) == wanted
    counted = frame.where("partition = 1 and offset >= 5").selectExpr("cast(value as string) as text").count()
    assert counted == sum(row["partition"] == 1 and row["offset"] >= 5 for row in wanted)
    ranged = spark.read.format("litelog").option("startingOffsets", '{"orders": {"0": 3, "1": -2}}')
    ranged = ranged.option("endingOffsets", '{"orders": {"0": -1, "1": 7, "2": 0}}').load(f"file://{topic}/orders-*")
    assert sorted((row.partition, row.offset) for row in ranged.collect()) == [
        (row["partition"], row["offset"])
        for row in wanted
        if (row["offset"] >= 3 if row["partition"] == 0 else row["offset"] < 7 and row["partition"] == 1)
    ]


def test_a_batch_has_the_rows_of_a_consumer_that_reads_committed(spark: Any, topic: Path) -> None:
    reader = spark.read.format("litelog").option("includeHeaders", "true").option("isolation", "read_committed")
    frame = reader.load(f"file://{topic}/orders-*")
    committed = [consumer_rows(scene, "orders", number, "read_committed") for number, scene in enumerate(SCENES)]
    wanted = [row for rows in committed for row in rows]
    assert as_dicts(frame.collect()) == wanted
    assert frame.count() == len(wanted)
    few = frame.where(f"partition = 2 and offset >= {committed[2][1]['offset']}").select("offset")
    assert sorted(row.offset for row in few.collect()) == [row["offset"] for row in committed[2][1:]]


def test_counts_leave_out_null_values(spark: Any, topic: Path) -> None:
    rows = [row for number, scene in enumerate(SCENES) for row in consumer_rows(scene, "orders", number)]
    frame = spark.read.format("litelog").schema("key binary, value binary").load(f"file://{topic}/orders-*")
    for keys in ([], ["key"]):
        counted = frame.groupBy(*keys).agg({"value": "count"}).collect()
        assert sum(row["count(value)"] for row in counted) == sum(row["value"] is not None for row in rows) < len(rows)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_stream_has_them_too(spark: Any, topic: Path, tmp_path: Path, isolation: str) -> None:
    reader = spark.readStream.format("litelog").option("includeHeaders", "true").option("isolation", isolation)
    frame = reader.load(f"file://{topic}/orders-*")
    query = (
        frame.writeStream.format("memory")
        .queryName(f"kafka_{isolation}")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    wanted = [row for number, scene in enumerate(SCENES) for row in consumer_rows(scene, "orders", number, isolation)]
    assert as_dicts(spark.table(f"kafka_{isolation}").collect()) == wanted
