"""``stream.writeStream.format("litelog")`` on real Spark: each record of a stream is in the log once."""

from __future__ import annotations

import os
import time
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders.spark_driver import AWAITED_SECONDS, driver
from tests.builders.spark_writing import expected, read_replica, require_records, require_well, rows
from tests.sampling import SEED, times
from tests.spark.conftest import killed

if TYPE_CHECKING:
    from pathlib import Path

DRIVER = """
import sys
from litelog.spark.spark_session import session
from tests.spark.conftest import JVM
from tests.spark.test_stream_sink import to_log

source, url, checkpoint = sys.argv[1:]
spark = session("killed", master="local[2,4]", driver_memory="512m", config=JVM)
to_log(spark, source, url, checkpoint).awaitTermination()
"""


def to_log(spark: Any, source: str, url: str, checkpoint: str) -> Any:
    """A query that appends to a log all that a folder of files with records holds, a file at a time."""
    frame = spark.readStream.schema(rows(spark, 0, 1).schema).option("maxFilesPerTrigger", 1).parquet(source)
    writer = frame.writeStream.format("litelog").option("segmentBytes", "16KiB")
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(url)


def add_files(spark: Any, source: Path, first: int, count: int, files: int) -> None:
    """Add files of records, whose modification times order them as their records are."""
    size = count // files
    for number in range(files):
        folder = source.parent / "made"
        rows(spark, size, 1, first + number * size).write.mode("overwrite").parquet(str(folder))
        source.mkdir(exist_ok=True)
        (part,) = folder.glob("*.parquet")
        name = source / f"{first + number * size:08}.parquet"
        part.rename(name)
        stamp = 1_700_000_000 + first + number * size
        os.utime(name, (stamp, stamp))


def finish(spark: Any, tmp_path: Path) -> None:
    query = to_log(spark, str(tmp_path / "source"), str(tmp_path / "replica"), str(tmp_path / "checkpoint"))
    assert query.awaitTermination(AWAITED_SECONDS)
    assert query.exception() is None


def forget_newest_batch(checkpoint: Path) -> None:
    """What a driver leaves that dies after the commit of the sink, and before that of the checkpoint."""
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink()


def test_a_stream_becomes_a_log_and_a_batch_that_is_run_again_is_not_in_it_twice(spark: Any, tmp_path: Path) -> None:
    """The driver is lost between the commits of sink and checkpoint: Spark runs the batch again. Then more follows."""
    url = str(tmp_path / "replica")
    add_files(spark, tmp_path / "source", 0, 60, 2)
    finish(spark, tmp_path)
    require_records(read_replica(url), expected(60))
    forget_newest_batch(tmp_path / "checkpoint")
    finish(spark, tmp_path)
    require_records(read_replica(url), expected(60))
    add_files(spark, tmp_path / "source", 60, 30, 1)
    finish(spark, tmp_path)
    require_records(read_replica(url), expected(90))
    require_well(url)
    assert spark.read.format("litelog").load(url).count() == 90


def test_a_stream_that_cannot_be_a_log_says_why(spark: Any, tmp_path: Path) -> None:
    add_files(spark, tmp_path / "source", 0, 10, 1)
    frame = spark.readStream.schema(rows(spark, 0, 1).schema).parquet(str(tmp_path / "source"))
    counted = frame.groupBy("value").count().selectExpr("value", "CAST(NULL AS BINARY) AS key")
    writer = counted.writeStream.format("litelog").outputMode("complete")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "replica"))
    with pytest.raises(Exception, match="a log is only appended to"):
        query.awaitTermination(AWAITED_SECONDS)
    assert not (tmp_path / "replica").exists()


@killed("sink")
@pytest.mark.timeout(3600)
def test_killed_drivers_leave_every_record_once(spark: Any, tmp_path: Path) -> None:
    """kill -9 of the driver with all of its processes, at any moment of a stream into a log: at night five times.

    ``tests/faults/test_sink_crash.py`` does it more often, without a JVM.
    """
    url, source, checkpoint = (str(tmp_path / name) for name in ("replica", "source", "checkpoint"))
    kills, chance, records = times(1, at_night=5), Random(f"{SEED} killed sinks"), 0
    for number in range(kills):
        add_files(spark, tmp_path / "source", records, 200, 20)
        records += 200
        claims = tmp_path / "replica" / "epochs"
        before = len(os.listdir(claims)) if claims.exists() else 0
        with driver(DRIVER, source, url, checkpoint, output=tmp_path / f"output-{number}") as wait:
            wait(lambda: claims.exists() and len(os.listdir(claims)) > before + 1)  # noqa: B023
            time.sleep(chance.uniform(0, 1))  # not for a state: the moment of the kill is meant to be any
    assert len(read_replica(url)) < records, "the last kill came before the end of the stream"
    finish(spark, tmp_path)
    require_records(read_replica(url), expected(records))
