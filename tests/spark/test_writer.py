"""A DataFrame becomes a log: restore and cat read it, readers see it once complete, and a failed write leaves none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types

from litelog.errors import ConfigError
from litelog.log.reader import LogReader
from litelog.log.writer import LogWriter
from litelog.spark import write
from litelog.spark.sink.writer import make_writer
from litelog.verify.findings import AnomalyKind
from tests.builders.log_builder import make_log
from tests.builders.spark_writing import expected, read_replica, require_records, require_well, rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.servers import S3Server


def test_a_written_dataframe_is_a_log(spark: Any, tmp_path: Path) -> None:
    """Two writes of several partitions each make one dense log. Verify finds it sound, and restore rebuilds it."""
    url = str(tmp_path / "replica")
    rows(spark, 3000, 2).write.format("litelog").mode("append").option("segmentBytes", "8KiB").save(url)
    rows(spark, 300, 2, first=3000).write.format("litelog").mode("append").save(url)
    require_records(read_replica(url), expected(3300))
    require_well(url)

    from litelog_cli.main import run

    assert run(["restore", url, "-o", str(tmp_path / "restored")]) == 0
    with LogReader(str(tmp_path / "restored")) as restored:
        require_records(list(restored), expected(3300))
    assert len(os.listdir(tmp_path / "restored")) > 5  # segmentBytes made several of each partition
    assert spark.read.format("litelog").load(url).count() == 3300


def test_counted_first_nothing_is_written_twice(spark: Any, tmp_path: Path) -> None:
    """The snapshot names the objects of the tasks where the tasks wrote them."""
    url = str(tmp_path / "replica")
    write(rows(spark, 1000, 2), url)
    require_records(read_replica(url), expected(1000))
    require_well(url)
    generations = sorted(os.listdir(tmp_path / "replica" / "generations"))
    held = [sorted(os.listdir(tmp_path / "replica" / "generations" / name)) for name in generations]
    assert held == [["segments", "wal"], ["snapshots"]]


def test_a_log_that_a_daemon_shipped_is_continued(spark: Any, tmp_path: Path) -> None:
    """The write also continues the open log segment, which is only in WAL segments. It refuses without ``takeover``."""
    from litelog_cli.main import run

    folder, url = str(tmp_path / "log"), str(tmp_path / "replica")
    with LogWriter(folder) as log:
        for timestamp, key, value in expected(50):
            log.append([value], keys=[key], timestamps=timestamp)
    state = ["--state-dir", str(tmp_path / "state")]
    assert run(["replicate", "--once", folder, url, *state]) == 0
    more = rows(spark, 40, 2, first=50).write.format("litelog").mode("append")
    with pytest.raises(Exception, match="takeover"):
        more.save(url)
    require_records(read_replica(url), expected(50))
    broken = spark.range(3).selectExpr("if(id = 2, NULL, concat('v', id)) AS value")
    with pytest.raises(Exception, match="a value is null"):
        write(broken, url, options={"takeover": True})  # found before the claim: the daemon continues
    assert run(["replicate", "--once", folder, url, *state]) == 0
    more.option("takeover", "true").save(url)
    require_records(read_replica(url), expected(90))
    require_well(url)
    assert run(["replicate", "--once", folder, url, *state]) == 5  # fenced: it is not the owner any more


def test_overwriting_begins_again(spark: Any, tmp_path: Path) -> None:
    url = str(tmp_path / "replica")
    write(rows(spark, 100, 2), url)
    write(rows(spark, 10, 1, first=500), url, overwrite=True)
    found = read_replica(url)
    assert [record.sequence for record in found] == list(range(10))
    assert found[0].value == b"value 500"
    require_well(url)


def test_a_write_that_fails_leaves_nothing_to_read(spark: Any, tmp_path: Path) -> None:
    """One task fails after the other has written. No reader sees any of it, and the next write extends the old log."""
    url = str(tmp_path / "replica")
    write(rows(spark, 100, 2), url)
    before = read_replica(url)
    broken = rows(spark, 100, 2).selectExpr("if(value = 'value 99', NULL, value) AS value")
    with pytest.raises(Exception, match="a value is null"):
        broken.write.format("litelog").mode("append").save(url)
    assert read_replica(url) == before
    write(rows(spark, 7, 1, first=100), url)
    require_records(read_replica(url), expected(107))
    require_well(url, besides=(AnomalyKind.ORPHAN,))  # the other task may still have been writing after the abort


def test_a_write_that_is_given_up_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    """The objects that tasks had written are deleted."""
    url = str(tmp_path / "replica")
    write(rows(spark, 10, 1), url)
    writer = make_writer({"path": url}, rows(spark, 0, 1).schema, overwrite=False)
    done = writer.write(iter(rows(spark, 5, 1, first=10).toArrow().to_batches()))
    (entry,) = done.entries
    assert (tmp_path / "replica" / entry.key).exists()
    writer.abort([done, None])
    assert not (tmp_path / "replica" / entry.key).exists()
    require_records(read_replica(url), expected(10))
    require_well(url)


def test_nothing_is_visible_until_all_is(spark: Any, tmp_path: Path) -> None:
    """A replica with only a claim and the objects of tasks holds no records. Only the commit makes it a log."""
    from litelog.spark.sink.options import parse_write_options
    from litelog.spark.sink.plan import plan_write
    from litelog.spark.sink.writer import LitelogWriter
    from litelog.system.clock import SystemClock

    url = str(tmp_path / "replica")
    write(rows(spark, 10, 1), url)
    plan = plan_write(parse_write_options({"path": url}), SystemClock(), overwrite=False)
    writer = LitelogWriter(plan)
    done = writer.write(iter(rows(spark, 5, 1, first=10).toArrow().to_batches()))
    assert done.records == 5
    assert len(read_replica(url)) == 10
    retried = writer.write(iter(()))  # another attempt, whose message Spark may use or ignore
    assert retried.records == 0
    writer.commit([done])
    require_records(read_replica(url), expected(15))


def test_of_two_writes_at_once_one_wins(spark: Any, tmp_path: Path) -> None:
    """The write that ends first wins. The other one gets an error, and nothing of it is visible or left."""
    from litelog.spark.sink.options import parse_write_options
    from litelog.spark.sink.plan import OvertakenError, plan_write
    from litelog.spark.sink.writer import LitelogWriter
    from litelog.system.clock import SystemClock

    url = str(tmp_path / "replica")
    write(rows(spark, 10, 1), url)
    options, clock = parse_write_options({"path": url}), SystemClock()
    batches = rows(spark, 5, 1, first=10).toArrow().to_batches()
    first, second = (LitelogWriter(plan_write(options, clock, overwrite=False)) for _ in range(2))
    done = [writer.write(iter(batches)) for writer in (first, second)]
    first.commit([done[0]])
    with pytest.raises(OvertakenError, match="claimed it while this write ran; nothing of this one is in the log"):
        second.commit([done[1]])
    second.abort([done[1]])
    require_records(read_replica(url), expected(15))
    require_well(url)


def test_an_empty_frame_adds_nothing(spark: Any, tmp_path: Path) -> None:
    url = str(tmp_path / "replica")
    rows(spark, 0, 2).write.format("litelog").mode("append").save(url)
    assert read_replica(url) == []
    assert spark.read.format("litelog").load(url).count() == 0


def test_an_empty_frame_overwrites_nothing_and_says_so(spark: Any, tmp_path: Path) -> None:
    url = str(tmp_path / "replica")
    rows(spark, 0, 2).write.format("litelog").mode("overwrite").save(url)
    write(rows(spark, 100, 2), url)
    claims = sorted((tmp_path / "replica" / "epochs").iterdir())
    with pytest.raises(Exception, match="an empty DataFrame cannot overwrite a log"):
        write(rows(spark, 0, 2), url, overwrite=True)
    assert sorted((tmp_path / "replica" / "epochs").iterdir()) == claims
    with pytest.raises(Exception, match="an empty DataFrame cannot overwrite a log"):
        rows(spark, 0, 2).write.format("litelog").mode("overwrite").save(url)
    write(rows(spark, 10, 1, first=100), url)
    require_records(read_replica(url), expected(110))
    require_well(url)


def test_a_replica_cannot_be_in_the_folder_of_a_log(spark: Any, tmp_path: Path) -> None:
    """Otherwise the log in that folder could not be read any more."""
    log = make_log(tmp_path / "log")
    log.roll(3)
    with pytest.raises(Exception, match="is the folder of a log, not a replica"):
        write(rows(spark, 2, 1), log.folder)
    assert spark.read.format("litelog").load(log.folder).count() == 3


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("id", "a column named value"),
        ("value, id AS sequence", "drop it"),
        ("value, id AS other", "column other"),
        ("value, value", "column value appears twice"),
    ],
)
def test_columns_that_are_not_a_record_are_reported(spark: Any, tmp_path: Path, columns: str, said: str) -> None:
    frame = spark.range(3).selectExpr("concat('v', id) AS value", "id").selectExpr(*columns.split(", "))
    with pytest.raises(Exception, match=said):
        frame.write.format("litelog").mode("append").save(str(tmp_path / "replica"))
    assert not (tmp_path / "replica").exists()


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("value", types.IntegerType()),
        ("value", types.StructType()),
        ("value", types.NullType()),
        ("key", types.LongType()),
        *(("timestamp", kind()) for kind in (types.StringType, types.LongType, types.DateType, types.NullType)),
    ],
)
def test_a_type_that_is_not_a_record_is_reported_before_anything_is_claimed(
    tmp_path: Path, column: str, kind: Any
) -> None:
    fit = {"value": types.BinaryType(), "key": types.BinaryType(), "timestamp": types.TimestampType()}
    schema = types.StructType([types.StructField(name, a_type) for name, a_type in {**fit, column: kind}.items()])
    with pytest.raises(ConfigError, match=rf"column {column} is .*, not \w+ or \w+: cast it"):
        make_writer({"path": str(tmp_path / "replica")}, schema, overwrite=False)
    assert not (tmp_path / "replica").exists()


@pytest.mark.parametrize("counted", [True, False])
def test_a_write_of_another_type_fences_no_daemon(spark: Any, tmp_path: Path, counted: bool) -> None:
    from litelog_cli.main import run

    folder, url = str(tmp_path / "log"), str(tmp_path / "replica")
    with LogWriter(folder) as log:
        log.append([b"one"])
    state = ["--state-dir", str(tmp_path / "state")]
    assert run(["replicate", "--once", folder, url, *state]) == 0
    frame = spark.range(3).selectExpr("CAST(id AS INT) AS value")
    with pytest.raises(Exception, match="column value is INT, not BINARY or STRING"):
        write(frame, url, count_first=counted, options={"takeover": True})
    assert run(["replicate", "--once", folder, url, *state]) == 0


def test_types_that_say_less_are_a_record_as_well(spark: Any, tmp_path: Path) -> None:
    """The frame has no key, a time without a zone, and text with a collation."""
    url = str(tmp_path / "replica")
    sql = (
        "concat('v', id) COLLATE UTF8_LCASE AS value",
        "NULL AS key",
        "TIMESTAMP_NTZ '1970-01-01 00:00:02' AS timestamp",
    )
    write(spark.range(1).selectExpr(*sql), url)
    require_records(read_replica(url), [(2_000_000, None, b"v0")])


def test_s3_without_a_secret_in_plans_logs_or_the_replica(spark: Any, server: S3Server, event_log: Path) -> None:
    """The S3 settings are Spark's. Neither the plans nor the event log nor the replica shows the secret."""
    from litelog.spark import read, s3_options

    bucket = server.make_bucket()
    settings = {
        "fs.s3a.access.key": "AKIDOFTHETESTS",
        "fs.s3a.secret.key": "hidden-in-the-settings",
        "fs.s3a.endpoint": server.endpoint,
        "fs.s3a.endpoint.region": "eu-west-1",
        "fs.s3a.path.style.access": "true",
    }
    for name, value in settings.items():
        spark.sparkContext._jsc.hadoopConfiguration().set(name, value)
    options = s3_options(spark)
    url = f"s3a://{bucket}/events"
    rows(spark, 100, 2).write.format("litelog").mode("append").options(**options).save(url)
    frames = [spark.read.format("litelog").options(**options).load(url), read(spark, url, options=options)]
    plans = []
    for frame in frames:
        assert sorted(row.sequence for row in frame.collect()) == list(range(100))
        plans.append(frame._jdf.queryExecution().toString())
    logs = [path for path in event_log.rglob("*") if path.is_file()]
    assert any(_holds(path, b"litelog") for path in logs)
    assert not any(_holds(path, b"hidden-in-the-settings") for path in logs)
    assert not any(b"hidden-in-the-settings" in body for body in _bodies(server, bucket))
    assert not any("hidden-in-the-settings" in plan for plan in plans)
    assert options["s3.secret-access-key"] == "hidden-in-the-settings"


def _holds(path: Path, text: bytes) -> bool:
    """Whether a line of a file holds ``text``. An event log has tens of MiB."""
    with path.open("rb") as file:
        return any(text in line for line in file)


def _bodies(server: Any, bucket: str) -> list[bytes]:
    """The bodies of all objects in a bucket."""
    keys = [one["Key"] for one in server.admin.list_objects_v2(Bucket=bucket)["Contents"]]
    return [server.admin.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys]
