"""Spark in separate processes: drivers that are killed, tasks that fail and are tried again, Spark Connect."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from litelog.formats.registry import open_format
from litelog.spark import write
from litelog.spark.jobs import export, exported
from litelog.spark.jvm.jar import find_jar
from litelog.spark.spark_session import java_home
from litelog.stores.registry import open_store
from litelog.verify.execution import verify
from litelog.verify.findings import AnomalyKind
from litelog_cli.verbs.spark import spark as group
from tests.builders.spark_driver import driver
from tests.builders.spark_reading import table_sequences
from tests.builders.spark_writing import expected, read_replica, require_records, require_well, rows
from tests.spark.conftest import QUICK_JVM, killed, started_by_itself

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.verify.report import VerifyReport

TASK_BYTES = 8 << 10
SECONDS = 200
"""Time for a JVM to start and reach the awaited state on a busy machine."""

DRIVER = """
import os, sys, threading, time
from pathlib import Path
from litelog.spark.spark_session import session
from litelog.spark.jobs import export
from tests.builders.spark_writing import rows

place = Path(sys.argv[1])
from tests.spark.conftest import JVM
spark = session("killed", master="local[2,2]", driver_memory="512m", config=JVM)

def fail_once(batches):
    from pyspark import TaskContext
    for batch in batches:
        yield batch
    if TaskContext.get().partitionId() == 1 and TaskContext.get().attemptNumber() == 0:
        raise OSError("as if the machine had gone")

def hang(batches):
    from pyspark import TaskContext
    for batch in batches:
        yield batch
    while TaskContext.get().partitionId() == 1:
        time.sleep(1)

def write(kind, name):
    frame = rows(spark, 1000, 2)
    writer = frame.mapInArrow(kind, frame.schema).write.format("litelog").mode("append")
    writer.option("segmentBytes", "8KiB").save(str(place / name))

def export_meanwhile():
    while len(list((place / "unfinished").rglob("*.segment.lz4"))) < 2:
        time.sleep(0.01)
    export(spark, str(place / "long"), str(place / "table"), partition_by="date", task_bytes=int(sys.argv[2]))

write(fail_once, "retried")
threading.Thread(target=export_meanwhile, daemon=True).start()
write(hang, "unfinished")
"""


@killed("write")
def test_killed_and_retried_nothing_is_twice_or_half(spark: Any, tmp_path: Path) -> None:
    """kill -9 of a driver and its workers, in the middle of a write and of an export. Before that, a task of a write
    failed once after it had written its sealed segments."""
    write(rows(spark, 8000, 2), str(tmp_path / "long"), options={"segmentBytes": "8KiB"})
    write(rows(spark, 50, 1), str(tmp_path / "unfinished"))
    table, manifest = tmp_path / "table", tmp_path / "table" / "_litelog" / "00000001.json"
    with driver(DRIVER, str(tmp_path), str(TASK_BYTES), output=tmp_path / "output") as wait:
        wait(lambda: list(table.rglob("*.parquet")))
    assert not manifest.exists()
    assert 0 < len(table_sequences(table)) < 8000

    retried = str(tmp_path / "retried")
    assert "as if the machine had gone" in (tmp_path / "output").read_text()
    require_records(read_replica(retried), expected(1000))
    require_well(retried)

    unfinished = str(tmp_path / "unfinished")
    require_records(read_replica(unfinished), expected(50))
    before = check(unfinished)
    assert (before.harmful, before.failed) == (0, 0)
    write(rows(spark, 10, 1, first=50), unfinished)
    require_records(read_replica(unfinished), expected(60))
    behind = check(unfinished)
    assert {(anomaly.kind, anomaly.harmful) for anomaly in behind.anomalies} == {(AnomalyKind.ORPHAN, False)}
    assert not behind.failed

    write(rows(spark, 100, 1, first=8000), str(tmp_path / "long"))
    done = export(spark, str(tmp_path / "long"), str(table), partition_by="date", task_bytes=16 * TASK_BYTES)
    assert (done.runs, done.next) == (2, 8100)
    assert table_sequences(table) == list(range(8100))
    assert exported(spark, str(table)).count() == 8100


def check(url: str) -> VerifyReport:
    """The report of ``litelog verify``."""
    store = open_store(url)
    report = verify(store, formats=open_format)
    store.close()
    return report


CONNECT = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.remote("local[2]").config("spark.driver.memory", "512m")
for jar in sys.argv[3:]:
    builder = builder.config("spark.jars", jar)
spark = builder.getOrCreate()
url = sys.argv[1]
frame = spark.read.format("litelog").option("startingSequence", 90).load(url)
print(sorted(row.sequence for row in frame.collect()))
spark.sql(f"CREATE TEMPORARY VIEW log USING litelog OPTIONS (path '{url}')")
print(spark.sql("SELECT count(*) AS n, max(CAST(value AS STRING)) AS last FROM log WHERE sequence < 10").first())

from litelog.spark import read, write
fast = read(spark, url, columns=["sequence"], where=[("sequence", "<", 3)], engine="python")
print([row.sequence for row in fast.collect()])
spark.range(10**9).withColumnRenamed("id", "sequence").join(fast, "sequence").explain()
frame.where("sequence = 95").explain()
write(spark.range(5).selectExpr("concat('v', id) AS value").coalesce(1), sys.argv[2])

from litelog.spark import decode, lag, lag_listener, latest_by_key
print("keys", latest_by_key(spark.read.format("litelog").load(url)).count())
orders = spark.sql("SELECT CAST('{\\"id\\": 7}' AS BINARY) AS value")
print(decode(orders, "json", schema="id BIGINT").select("value.id").first(), decode(orders, "json").count())
try:
    decode(orders, "avro", schema='"long"')
except Exception as error:
    print(type(error).__name__, str(error).partition(";")[0])
measured = []
listener = lag_listener(lambda query, lags: measured.append((query, lags)))
spark.streams.addListener(listener)
stream = spark.readStream.format("litelog").option("startingOffsets", '{"replica": 90}').load(url)
query = stream.writeStream.format("noop").queryName("q").trigger(availableNow=True).start()
query.awaitTermination()
import time
end = time.monotonic() + 60
while not measured and time.monotonic() < end:
    time.sleep(0.05)
print("measured", measured[-1] == ("q", lag(query.lastProgress)), [one.records for one in measured[-1][1].values()])
spark.streams.removeListener(listener)
"""


@started_by_itself("connect")
def test_spark_connect(spark: Any, tmp_path: Path) -> None:
    """A Connect server with the columnar reader's jar, and its thin client: batch, SQL, fast path, a write."""
    if missing := [name for name in ("grpc", "google.rpc", "grpc_status", "zstandard") if not _is_there(name)]:
        pytest.skip(f"{missing[0]} is missing; run: pip install 'litelog[spark-connect]'")
    url, written = str(tmp_path / "replica"), str(tmp_path / "written")
    write(rows(spark, 100, 2), url)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment = {**kept, **QUICK_JVM, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    if (home := java_home()) is not None:
        environment["JAVA_HOME"] = home
    jar = find_jar()
    done = subprocess.run(
        [sys.executable, "-c", CONNECT, url, written, *([] if jar is None else [str(jar)])],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    said = [str(list(range(90, 100))), "Row(n=10, last='value 9')", "[0, 1, 2]"]
    assert (done.returncode, done.stdout.splitlines()[: len(said)]) == (0, said), done.stderr[-3000:]
    assert "MapInArrow" in done.stdout
    assert "BroadcastExchange" not in done.stdout
    assert "measured True [0]" in done.stdout
    assert "keys 7\nRow(id=7) 1\nConfigError decode: the session lacks Spark's jar for avro: start it" in done.stdout
    assert ("pushed: [sequence = 95]" in done.stdout) == (jar is not None)
    assert [record.value for record in read_replica(written)] == [b"v%d" % number for number in range(5)]


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_a_write_that_lost_everything_holds_nothing(tmp_path: Path) -> None:
    """The leftovers of a first write that ended before its commit are not a log."""
    from litelog.spark.sink.options import parse_write_options
    from litelog.spark.sink.plan import plan_write
    from litelog.system.clock import SystemClock

    plan_write(parse_write_options({"path": str(tmp_path)}), SystemClock(), overwrite=False)
    assert read_replica(str(tmp_path)) == []


@started_by_itself("submit")
def test_spark_submit_runs_a_job_as_the_help_says(spark: Any, tmp_path: Path) -> None:
    """The command of ``litelog spark --help``, with this machine as the cluster and the replica of this test."""
    submit = shutil.which("spark-submit", path=os.path.dirname(sys.executable))
    if submit is None:
        pytest.skip("pyspark has no spark-submit here")
    url = str(tmp_path / "replica")
    write(rows(spark, 100, 2), url)
    told = CliRunner().invoke(group, ["--help"]).output
    command = told[told.index("spark-submit") :].replace("\\\n", " ").splitlines()[0]
    command = command.replace("--master yarn", "--master 'local[1]' --driver-memory 512m")
    command = command.replace(
        "spark export s3://bucket/events s3://bucket/table", 'spark stats "$REPLICA" --json --quiet'
    )
    environment = {
        **os.environ,
        **QUICK_JVM,
        "REPLICA": url,
        "PATH": os.pathsep.join([os.path.dirname(submit), os.environ["PATH"]]),
    }
    environment |= {} if (home := java_home()) is None else {"JAVA_HOME": home}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["records"] == 100
