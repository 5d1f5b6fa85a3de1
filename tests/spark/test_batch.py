"""``spark.read.format("litelog")`` on real Spark: the same rows as an independent decoding, for every option."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from litelog.log.writer import LogWriter
from litelog.objects.layout import sealed_key, wal_key
from litelog.shipping.context import Settings
from litelog.spark.options import Engine
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store
from replica_clients.file import FileStore
from tests.builders.daemon_builder import Daemon
from tests.builders.independent_reader import read_replica
from tests.builders.log_builder import make_log
from tests.builders.recorded_logs import unpack
from tests.builders.servers import ACCESS_KEY_ID, CREDENTIALS, REGION, SECRET_ACCESS_KEY
from tests.builders.spark_shipping import iso_time, micros, read, require_columnar, shipping, value_of
from tests.spark.independent_records import Row, decode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.servers import S3Server

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
METADATA = {"includeMetadata": "true"}
SETTINGS = Settings(max_segment_bytes=1 << 20, snapshot_segments=3)


@dataclass(frozen=True)
class Replica:
    """A replica on disk of a log of 800 records, partly sealed, and what an independent reader finds in it."""

    url: str
    log: str
    generation: str
    rows: list[Row]

    def between(self, low: int, high: int) -> list[Row]:
        """The records stamped from ``low`` to before ``high``."""
        return [row for row in self.rows if low <= row.timestamp < high]


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Replica:
    """A replica with keys and timestamps of every kind, in commits and log segments of many sizes."""
    folder = tmp_path_factory.mktemp("batch")
    random = Random(7)
    log = make_log(folder / "log")
    daemon: Daemon | None = None
    store = FileStore(str(folder / "replica"))
    with LogWriter(log.folder, segment_bytes=8 << 10) as writer:
        for number in range(40):
            stamps = [START + (20 * number + at) * SECOND + random.randrange(-9, 9) * SECOND for at in range(20)]
            keys = [random.choice([None, b"", b"k%d" % at]) for at in range(20)] if number % 3 else None
            values = [random.randbytes(random.randrange(80)) for _ in range(20)]
            writer.append(values, keys=keys, timestamps=stamps if number % 2 else stamps[0])
            if number in (12, 20, 25, 30, *range(34, 40)):
                daemon = daemon or Daemon(log, store, str(folder / "state"), backlog_sealer=True, settings=SETTINGS)
                while daemon.sync():
                    pass
    assert daemon is not None
    found = read_replica(store)[daemon.generation]
    texts: dict[int, bytes] = {index: text for index, (_, text) in found.sealed.items()}
    for header, data, _ in found.segments:
        if header["index"] >= found.covered and "sealed" not in header:
            texts[header["index"]] = texts.get(header["index"], b"") + data
    rows = decode(texts)
    assert [row.sequence for row in rows] == list(range(800))
    assert found.sealed
    assert sum(header["index"] >= found.covered for header, _, _ in found.segments) > 1
    daemon.close()
    return Replica(str(folder / "replica"), log.folder, daemon.generation, rows)


@pytest.fixture(params=Engine)
def engine(spark: Any, request: pytest.FixtureRequest) -> Engine:
    """The engine that reads: Python, and Java if the session has the columnar reader."""
    found = Engine(request.param)
    if found is Engine.JAVA:
        require_columnar(spark)
    return found


def facts(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(row.sequence, micros(row.timestamp), row.key, row.value) for row in rows]


def expected(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [tuple(row)[:4] for row in rows]


@pytest.mark.parametrize("count", ["1", "2", "7"])
def test_any_number_of_partitions_gives_all_records(spark: Any, engine: Engine, replica: Replica, count: str) -> None:
    frame = spark.read.format("litelog").option("engine", engine).options(numPartitions=count).load(replica.url)
    assert frame.rdd.getNumPartitions() == int(count)
    assert facts(sorted(frame.collect())) == expected(replica.rows)
    nullable = {field.name: field.nullable for field in frame.schema.fields}
    assert nullable == {"sequence": False, "timestamp": False, "key": True, "value": False}


def test_metadata_is_where_a_record_lies(spark: Any, engine: Engine, replica: Replica) -> None:
    found = read(spark, f"file://{replica.url}", engine=engine, **METADATA, maxPartitionBytes="256k")
    assert [(row["index"], row.offset) for row in found] == [(row.index, row.offset) for row in replica.rows]
    assert {(row.generation, row.epoch, row.log) for row in found} == {(replica.generation, 1, replica.url.lstrip("/"))}


def test_sequences_and_times_are_bounded(spark: Any, engine: Engine, replica: Replica) -> None:
    bounded = read(spark, replica.url, engine=engine, startingSequence="333", endingSequence="650", numPartitions="3")
    assert facts(bounded) == expected(replica.rows[333:650])
    low, high = START + 250 * SECOND, START + 700 * SECOND
    times = {"startingTimestamp": iso_time(low), "endingTimestamp": iso_time(high)}
    timed = read(spark, replica.url, engine=engine, numPartitions="3", **times)
    assert facts(timed) == expected(replica.between(low, high))
    assert facts(read(spark, replica.url, engine=engine, generation=replica.generation)) == expected(replica.rows)


def test_a_schema_prunes_and_orders_columns(spark: Any, engine: Engine, replica: Replica) -> None:
    found = (
        spark.read.format("litelog")
        .option("engine", engine)
        .schema("value binary not null, log string, index long")
        .load(replica.url)
    )
    rows = found.collect()
    assert found.columns == ["value", "log", "index"]
    assert sorted(row.value for row in rows) == sorted(row.value for row in replica.rows)
    assert spark.read.format("litelog").option("engine", engine).schema("log string").load(replica.url).count() == 800


def test_sql_finds_the_source_by_itself(spark: Any, replica: Replica) -> None:
    spark.sql(f"CREATE OR REPLACE TEMP VIEW batch USING litelog OPTIONS (path '{replica.url}', endingSequence 10)")
    assert spark.sql("SELECT count(*) AS n, max(sequence) AS last FROM batch").first() == (10, 9)
    # A filter of one query does not affect another query of the same view.
    counts = spark.sql("SELECT (SELECT count(*) FROM batch WHERE sequence < 3), (SELECT count(*) FROM batch)").first()
    assert tuple(counts) == (3, 10)


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE kept USING litelog OPTIONS (path '{url}')"],
        ["CREATE TABLE kept USING litelog LOCATION '{url}'"],
        ["CREATE TABLE kept (value binary) USING litelog OPTIONS (path '{url}')", "SELECT * FROM kept"],
        ["CREATE TABLE kept (value binary) USING litelog OPTIONS (path '{url}')", "INSERT INTO kept VALUES (X'00')"],
    ],
)
def test_options_for_the_table_of_a_catalog_are_refused(spark: Any, replica: Replica, statements: list[str]) -> None:
    *before, last = statements
    try:
        for statement in before:
            spark.sql(statement.format(url=replica.url))
        with pytest.raises(Exception, match="Spark keeps no options for a table of a catalog"):
            spark.sql(last.format(url=replica.url)).collect()
    finally:
        spark.sql("DROP TABLE IF EXISTS kept")


def test_a_limit_ends_early(spark: Any, engine: Engine, replica: Replica) -> None:
    assert len(spark.read.format("litelog").option("engine", engine).load(replica.url).limit(5).collect()) == 5


def test_several_logs_have_a_name(spark: Any, engine: Engine, replica: Replica, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "many").mkdir(exist_ok=True)
        os.symlink(replica.url, tmp_path / "many" / name)
    counts = {"one": 800, "two": 800}
    frames = [
        spark.read.format("litelog").option("engine", engine).load(str(tmp_path / "many" / "*")),
        spark.read.format("litelog").option("engine", engine).load([str(tmp_path / "many" / name) for name in counts]),
    ]
    for frame in frames:
        found = {row.log: row["count"] for row in frame.groupBy("log").count().collect()}
        assert found == {f"{str(tmp_path)[1:]}/many/{name}": count for name, count in counts.items()}


def test_a_folder_of_a_log_is_read_as_it_is(spark: Any, engine: Engine, replica: Replica) -> None:
    assert facts(read(spark, replica.log, engine=engine, numPartitions="3")) == expected(replica.rows)


def test_file_systems_of_fsspec(spark: Any, engine: Engine, replica: Replica) -> None:
    pytest.importorskip("fsspec")
    assert facts(read(spark, f"local://{replica.url}", engine=engine, numPartitions="2")) == expected(replica.rows)


@pytest.mark.parametrize("name", ["lines", "raw"])
def test_other_formats(spark: Any, engine: Engine, tmp_path: Path, name: str) -> None:
    log = make_log(tmp_path / "log", name)
    daemon = Daemon(log, FileStore(str(tmp_path / "replica")), str(tmp_path / "state"))
    for number in range(3):
        log.roll(number + 2, size=number + 5)
        while daemon.sync():
            pass
    daemon.close()
    text = b"".join(log.files().values())
    frames = [
        spark.read.format("litelog")
        .option("engine", engine)
        .option("numPartitions", 2)
        .load(str(tmp_path / "replica")),
        spark.read.format("litelog").option("engine", engine).options(format=name, pattern="app.*").load(log.folder),
    ]
    for frame in frames:
        rows = sorted(frame.collect(), key=lambda row: row.sequence)
        if name == "lines":
            assert [row.value for row in rows] == text.splitlines()
            assert [row.sequence for row in rows] == list(range(9))
        else:
            assert b"".join(row.value for row in rows) == text
        assert {(row.timestamp, row.key) for row in rows} == {(None, None)}


def test_the_columns_that_only_a_format_has(spark: Any, tmp_path: Path) -> None:
    """Also in a session with the columnar reader, which leaves them to Python."""
    folder = unpack("redis_aof", "commands", tmp_path)
    reading = spark.read.format("litelog").options(format="redis-aof")
    every = reading.option("includeMetadata", "true").load(str(folder))
    commands = every.where("command = 'SET'").orderBy("sequence").collect()
    assert [bytes(row.arguments[0]) for row in commands][:2] == [b"first:text", b"first:binary"]
    asked = reading.schema("command string, ts bigint").load(str(folder))
    assert asked.where("ts is not null").count() == every.where("ts is not null").count() > 0


def test_the_fragments_of_a_journal(spark: Any, tmp_path: Path) -> None:
    """Also in a session with the columnar reader, which leaves them to Python."""
    folder = unpack("gazette", "journal", tmp_path)
    frame = spark.read.format("litelog").options(format="gazette", maxPartitionBytes=2000).load(str(folder))
    rows = sorted(frame.collect(), key=lambda row: row.sequence)
    assert [json.loads(row.value)["n"] for row in rows] == list(range(150))
    assert frame.selectExpr("max(sequence)").first()[0] == rows[-1].sequence


def test_the_command_reports_corruption_in_a_task_and_nothing_else(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command prints one message and sets the exit code. It prints no traceback of Python or Java."""
    from litelog_cli.main import run

    log = make_log(tmp_path / "log")
    log.roll(50)
    daemon = Daemon(log, FileStore(str(tmp_path / "replica")), str(tmp_path / "state"))
    daemon.sync()
    daemon.close()
    (path,) = (tmp_path / "replica").rglob("*.wal.lz4")
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    spark.sparkContext.setLogLevel("FATAL")  # as in a session that the command starts
    try:
        assert run(["spark", "stats", "--quiet", str(tmp_path / "replica")]) == 6
    finally:
        spark.sparkContext.setLogLevel("ERROR")
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("litelog:") or "\tat " in line]
    assert len(said) == 1
    assert path.name in said[0]
    assert "Traceback" not in said[0]


@pytest.fixture(scope="module")
def bucket(module_server: S3Server, replica: Replica) -> str:
    """A bucket with the replica under ``log``."""
    name = module_server.make_bucket()
    store = open_store(f"s3://{name}/log", module_server.options())
    source = FileStore(replica.url)
    for info in source.list(""):
        with source.open(info.key) as stream:
            store.put(info.key, [stream.read()])
    store.close()
    return name


def test_s3_by_its_own_and_by_hadoops_options(
    spark: Any, module_server: S3Server, bucket: str, replica: Replica
) -> None:
    ours = {"s3.endpoint": module_server.endpoint, "s3.region": REGION}
    ours |= {f"s3.{name}": value for name, value in CREDENTIALS.items()}
    theirs = {
        "fs.s3a.endpoint": module_server.endpoint.removeprefix("http://"),
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.access.key": ACCESS_KEY_ID,
        "fs.s3a.secret.key": SECRET_ACCESS_KEY,
        "fs.s3a.path.style.access": "true",
    }
    for scheme, options in (("s3", ours), ("s3a", theirs), ("s3n", ours)):
        assert facts(read(spark, f"{scheme}://{bucket}/log", **options, numPartitions="3")) == expected(replica.rows)


def test_no_plan_and_no_error_shows_a_secret(spark: Any, module_server: S3Server, bucket: str, event_log: Path) -> None:
    secret = "not-to-be-shown-anywhere"
    options = {"s3.endpoint": module_server.endpoint, "s3.access-key-id": ACCESS_KEY_ID, "s3.secret-access-key": secret}
    frame = spark.read.format("litelog").options(**options).load(f"s3://{bucket}/log")
    plans = frame._jdf.queryExecution()
    frame.count()
    with pytest.raises(Exception, match="no replica there") as caught:
        spark.read.format("litelog").options(**options).load(f"s3://{bucket}/nothing").count()
    logged = b"".join(path.read_bytes() for path in event_log.rglob("*") if path.is_file())
    for text in (plans.toString(), str(caught.value)):
        assert secret not in text
    assert logged
    assert secret.encode() not in logged


def _copy(replica: Replica, place: Path) -> FileStore:
    store, source = FileStore(str(place)), FileStore(replica.url)
    for info in source.list(""):
        with source.open(info.key) as stream:
            store.put(info.key, [stream.read()])
    return store


def _flip(place: Path, key: str) -> None:
    path = place / key
    body = bytearray(path.read_bytes())
    body[30] ^= 8
    path.write_bytes(body)


def test_corrupt_objects_in_all_modes(spark: Any, engine: Engine, replica: Replica, tmp_path: Path) -> None:
    """One sealed segment and one WAL segment are damaged. The records of the others are read, and these are named."""
    store = _copy(replica, tmp_path)
    client = ObjectReplicaClient(store)
    covered = max(info.index for info in client.snapshots(replica.generation))  # type: ignore[arg-type]
    tail = [info for info in client.wal_segments(replica.generation) if info.position.index >= covered]  # type: ignore[arg-type]
    bad = [sealed_key(replica.generation, 0), wal_key(tail[0].position)]  # type: ignore[arg-type]
    client.delete_wal_segments([info.position for info in client.wal_segments(replica.generation) if info not in tail])  # type: ignore[arg-type]
    behind = tail[1].position if len(tail) > 1 and tail[1].position.index == tail[0].position.index else None

    def lost(row: Row) -> bool:
        if row.index == 0:
            return True
        at = tail[0].position
        return row.index == at.index and at.offset <= row.offset and (behind is None or row.offset < behind.offset)

    left = [row for row in replica.rows if not lost(row)]
    assert 0 < len(left) < 800
    for key in bad:
        _flip(tmp_path, key)
    with pytest.raises(Exception, match=f"{bad[0]}|{bad[1]}"):
        read(spark, str(tmp_path), engine=engine)
    dropped = read(spark, str(tmp_path), engine=engine, mode="DROPMALFORMED", numPartitions="3")
    assert facts(dropped) == expected(left)
    frame = (
        spark.read.format("litelog")
        .option("engine", engine)
        .options(mode="PERMISSIVE", columnNameOfCorruptRecord="bad", numPartitions="3")
    )
    rows = frame.load(str(tmp_path)).collect()
    told = sorted(row.bad for row in rows if row.bad is not None)
    assert facts(sorted((row for row in rows if row.bad is None), key=lambda row: row.sequence)) == expected(left)
    assert [any(key in text for text in told) for key in bad] == [True, True]
    assert all(row.value is None and row.sequence is None for row in rows if row.bad is not None)


def test_a_gap_is_an_error_with_a_position(spark: Any, engine: Engine, replica: Replica, tmp_path: Path) -> None:
    client = ObjectReplicaClient(_copy(replica, tmp_path))
    positions = [info.position for info in client.wal_segments(replica.generation)]  # type: ignore[arg-type]
    covered = max(info.index for info in client.snapshots(replica.generation))  # type: ignore[arg-type]
    gone = next(at for at in positions[:-1] if at.index >= covered)
    client.delete_wal_segments([gone])
    with pytest.raises(Exception, match=str(gone)):
        read(spark, str(tmp_path), engine=engine, numPartitions="2")
    assert len(read(spark, str(tmp_path), engine=engine, failOnDataLoss="false")) < 800


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingSequnce": "1"}, "did you mean startingSequence"),
        ({"mode": "lenient"}, "FAILFAST, DROPMALFORMED, PERMISSIVE"),
        ({"generation": "00000009000000a1"}, "no generation 00000009000000a1"),
    ],
)
def test_errors_name_the_remedy(
    spark: Any, engine: Engine, replica: Replica, options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        read(spark, replica.url, engine=engine, **options)


def test_a_schema_that_does_not_fit_is_reported(spark: Any, engine: Engine, replica: Replica) -> None:
    from pyspark.sql.types import StructType

    with pytest.raises(Exception, match="has no column 'values'"):
        read(spark, replica.url, "values binary", engine)
    with pytest.raises(Exception, match="value is BINARY, not STRING"):
        read(spark, replica.url, "value string", engine)
    with pytest.raises(Exception, match="without NOT NULL"):
        read(spark, replica.url, "key binary not null", engine)
    with pytest.raises(Exception, match="the schema has no column"):
        spark.read.format("litelog").option("engine", engine).schema(StructType()).load(replica.url).count()


def test_spark_finds_other_sources_where_our_extra_is_missing(tmp_path: Path) -> None:
    """Spark imports a module of each package. If one import failed, no data source could be found."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['pyarrow'] = None\nsys.modules['pyspark'] = None\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import pyspark_litelog; print(hasattr(pyspark_litelog, 'DefaultSource'))"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "False"), done.stderr


@pytest.mark.timeout(600)
def test_while_a_daemon_ships_seals_and_is_succeeded_every_read_is_a_prefix(spark: Any, tmp_path: Path) -> None:
    """A writer appends, and real daemons ship one after the other, each with its own state folder."""
    log, place = str(tmp_path / "log"), str(tmp_path / "replica")
    generations = set()
    with LogWriter(log, segment_bytes=64 << 10) as writer:
        seen = 0
        for owner in range(2):
            with shipping(log, place, tmp_path / f"state{owner}"):
                for _ in range(2):
                    for _ in range(3):
                        first = writer.next_sequence
                        writer.append([value_of(number) for number in range(first, first + 700)])
                    rows = _read_beyond(spark, place, seen)
                    seen = len(rows)
                    generations |= {row.generation for row in rows}
        written = writer.next_sequence
    assert len(read(spark, place)) == written
    assert len(generations) == 2


def _read_beyond(spark: Any, place: str, seen: int) -> list[Any]:
    """The rows, once there are more than ``seen``. Each read must give a prefix that is not shorter than the last."""
    deadline = time.monotonic() + 90
    while True:
        try:
            rows = read(spark, place, **METADATA, numPartitions="3")
        except Exception as error:
            begun = ("no replica there", "nothing of the log", "no such folder", "NothingToRestore")
            if seen or time.monotonic() > deadline or not any(text in str(error) for text in begun):
                raise
            continue
        assert [row.sequence for row in rows] == list(range(len(rows)))
        assert all(bytes(row.value) == value_of(row.sequence) for row in rows)
        assert len(rows) >= seen
        if len(rows) > seen:
            return rows
        assert time.monotonic() < deadline, "nothing more was shipped"
