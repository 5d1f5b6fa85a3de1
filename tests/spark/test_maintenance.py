"""A real Spark session reads, streams and appends before and after small log segments were merged and pruned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.retention.policy import RetentionPolicy
from litelog.spark import read, write
from litelog.spark.maintenance.plan import MaintenanceOptions
from replica_clients.file import FileStore
from tests.builders.batch_replicas import run, small_appends

if TYPE_CHECKING:
    from pathlib import Path

APPENDS = 6
SECONDS = 300


def follow(spark: Any, url: str, folder: Path) -> list[int]:
    """The sequences in the sink of a stream, after it has taken what is there."""
    stream = spark.readStream.format("litelog").option("maxFilesPerTrigger", 2).load(url)
    query = stream.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    started = query.trigger(availableNow=True).start(str(folder / "sink"))
    assert started.awaitTermination(SECONDS)
    return sorted(row.sequence for row in spark.read.parquet(str(folder / "sink")).collect())


def test_reads_streams_and_appends_continue_after_a_merge(spark: Any, tmp_path: Path) -> None:
    url = str(tmp_path / "events")
    replica = small_appends(APPENDS, inner=FileStore(url), hours_ago=48)
    planned = spark.read.format("litelog").load(url).select("sequence", "value")
    before = sorted(planned.collect())
    assert follow(spark, url, tmp_path) == list(range(2 * APPENDS))
    done = run(replica, hours=0)
    assert [len(group) for group in done.plan.merges] == [APPENDS - 1]
    assert sorted(planned.collect()) == before
    assert sorted(spark.read.format("litelog").load(url).select("sequence", "value").collect()) == before
    pruned = run(replica, MaintenanceOptions(RetentionPolicy(max_age=3600.0)), hours=30)
    assert pruned.deleted > APPENDS
    assert read(spark, url).count() == 2 * APPENDS
    write(spark.range(3).selectExpr("CAST(id AS STRING) AS value"), url)
    assert follow(spark, url, tmp_path) == list(range(2 * APPENDS + 3))
    assert read(spark, url).count() == 2 * APPENDS + 3
