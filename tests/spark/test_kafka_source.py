"""A replica has the rows of Spark's own Kafka source, which reads the running broker: same columns, row by row.

The tests run where Kafka and the jars of Spark's Kafka source are installed (see tests/README.md).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders.kafka_broker import KafkaBroker, find_libs
from tests.builders.real_servers import find_jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def find_missing() -> str | None:
    """Find what is not installed; None if nothing is missing."""
    if find_libs() is None:
        return "Kafka or Java is not installed (see tests/README.md)"
    has_source = any("spark-sql-kafka" in path for path in find_jars())
    return None if has_source else "the jars of Spark's Kafka source are not installed (see tests/README.md)"


pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(find_missing() is not None, reason=str(find_missing())),
]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COLUMNS = ("topic", "partition", "offset", "key", "value", "timestamp", "timestampType", "headers")


@dataclass(frozen=True)
class Both:
    """A broker, and the replicas of its partitions."""

    spark: Any
    bootstrap: str
    replicas: Path

    def kafka(self, reader: Any, **options: str) -> Any:
        named = reader.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        return named.option("includeHeaders", "true").options(**options).load()

    def litelog(self, reader: Any, *patterns: str, **options: str) -> Any:
        paths = json.dumps([f"file://{self.replicas}/{pattern}" for pattern in patterns])
        return reader.format("litelog").option("paths", paths).options(includeHeaders="true", **options).load()


@pytest.fixture(scope="module")
def both(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("kafka-source")
    broker = KafkaBroker(folder / "broker")
    broker.format()
    broker.start()
    try:
        codecs = [verb for codec in CODECS for verb in (f"create plain.{codec}", f"plain plain.{codec} {codec}")]
        appended = ["create plain.appended message.timestamp.type=LogAppendTime", "plain plain.appended lz4"]
        transactions = ["create plain.transactions", "transactions plain.transactions"]
        broker.client(*codecs, *appended, *transactions, "create rolled segment.bytes=2048", "sizes rolled 60 150")
        wait_for_watermarks(broker, len(CODECS) + 3)
        (folder / "litelog.yml").write_text(
            f"state-dir: {folder}/state\naddr: off\nlogs:\n  - dir: {broker.data}\n    format: kafka\n    replicas:\n"
            f"      - url: file://{folder}/replicas/{{name}}\n"
        )
        command = [sys.executable, "-m", "litelog_cli", "replicate", "--once", "--config", str(folder / "litelog.yml")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
        assert done.returncode == 0, done.stderr
        yield Both(spark, broker.bootstrap, folder / "replicas")
    finally:
        broker.end()


def wait_for_watermarks(broker: KafkaBroker, topics: int) -> None:
    """Wait until the broker wrote the high watermarks of all topics twice: then they are those of all records."""
    file, written = broker.data / "replication-offset-checkpoint", set[int]()
    deadline = time.monotonic() + 60
    while len(written) < 3 or len(file.read_text().splitlines()) < 2 + topics:
        assert time.monotonic() < deadline, file.read_text()
        written.add(file.stat().st_mtime_ns if file.exists() else 0)
        time.sleep(0.05)


def rows(frame: Any) -> list[tuple[Any, ...]]:
    def plain(value: Any) -> Any:
        return [(each["key"], each["value"]) for each in value] if isinstance(value, list) else value

    return sorted(tuple(plain(row[name]) for name in COLUMNS) for row in frame.select(*COLUMNS).collect())


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_batches_and_streams_of_topics_by_pattern_are_equal(both: Both, tmp_path: Path, isolation: str) -> None:
    kafka = {"subscribePattern": "plain.*|rolled", "startingOffsets": "earliest", "kafka.isolation.level": isolation}
    ours = both.litelog(both.spark.read, "plain.*", "rolled-*", isolation=isolation)
    theirs = both.kafka(both.spark.read, **kafka)
    assert ours.schema == theirs.schema
    expected = rows(theirs)
    assert len({row[0] for row in expected}) == len(CODECS) + 3
    assert any(row[-1] for row in expected)
    assert rows(ours) == expected
    streams = {
        "ours": both.litelog(both.spark.readStream, "plain.*", "rolled-*", isolation=isolation),
        "theirs": both.kafka(both.spark.readStream, **kafka),
    }
    for name, frame in streams.items():
        writer = frame.writeStream.format("memory").queryName(f"{name}_{isolation}").trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / name)).start().awaitTermination()
        assert rows(both.spark.table(f"{name}_{isolation}")) == expected


def test_bounds_by_partition_are_equal(both: Both) -> None:
    bounds = {
        "startingOffsets": '{"rolled": {"0": 7}, "plain.none": {"0": -2}, "plain.gzip": {"0": 3}}',
        "endingOffsets": '{"rolled": {"0": 21}, "plain.none": {"0": -1}, "plain.gzip": {"0": 9}}',
    }
    expected = rows(both.kafka(both.spark.read, subscribe="rolled,plain.none,plain.gzip", **bounds))
    assert len(expected) > 20
    assert rows(both.litelog(both.spark.read, "rolled-0", "plain.none-0", "plain.gzip-0", **bounds)) == expected
