"""The columnar reader returns the same rows as Python, for random logs, queries and damage."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from shutil import copytree
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from litelog.codec.frame_codecs import Compression, FrameCodec
from litelog.errors import ConfigError
from litelog.log.writer import LogWriter
from litelog.reading.sealed_reader import read_listed_footer
from litelog.shipping.context import Settings
from litelog.spark import read, write
from litelog.spark.jvm.handover import hand_over
from litelog.spark.jvm.jar import build_jar, find_jar
from litelog.spark.options import Engine, parse_options
from litelog.spark.scan import planning
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store
from replica_clients.file import FileStore
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import make_log
from tests.builders.spark_shipping import require_columnar, run_and_count
from tests.sampling import NIGHTLY

if TYPE_CHECKING:
    from tests.builders.servers import S3Server

START = 1_700_000_000_000_000
QUERIES = (
    "true",
    "sequence = 77",
    "sequence >= 100 AND sequence < 260",
    "sequence < 0 OR sequence > 9223372036854775806",
    "sequence > 9223372036854775806",
    f"timestamp >= timestamp_micros({START + 90_000_000})",
    f"timestamp < timestamp_micros({START + 90_000_000}) AND key IS NOT NULL",
    "key = X'6b31' AND length(value) > 20",
    "key IN (X'6b31', X'', X'6b32')",
    "key IS NULL",
)
ASKED = "count(*)", "count(key)", "min(sequence)", "max(sequence)", "min(timestamp)", "max(timestamp)", "count(value)"
BY_KEY = ", ".join(asked for asked in ASKED if asked != "count(key)")


@pytest.fixture(scope="module", params=range(4 if NIGHTLY else 1))
def url(request: pytest.FixtureRequest, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A replica of a random log: sealed segments of both codecs, in frames of several commits, and WAL segments after
    them."""
    require_columnar(spark)
    random = Random(request.param)
    folder = tmp_path_factory.mktemp("columnar")
    log = make_log(folder / "log")
    store = FileStore(str(folder / "replica"))
    with LogWriter(log.folder, segment_bytes=6 << 10) as writer:
        daemon: Daemon | None = None
        for number in range(24):
            count = random.randrange(1, 30)
            stamps = [START + number * 10_000_000 + random.randrange(-9, 9) * 1_000_000 for _ in range(count)]
            keys = [random.choice([None, b"", b"k1", b"k2"]) for _ in range(count)] if random.random() < 0.7 else None
            values = [random.randbytes(random.randrange(60)) for _ in range(count)]
            writer.append(values, keys=keys, timestamps=stamps if random.random() < 0.5 else stamps[0])
            if number > 8:
                settings = Settings(max_segment_bytes=1 << 20, snapshot_segments=2, compression=Compression.ZSTD)
                daemon = daemon or Daemon(log, store, str(folder / "state"), backlog_sealer=True, settings=settings)
                if number == 16:
                    daemon.settings = replace(settings, compression=Compression.LZ4)
                    daemon.restart()
                while daemon.sync():
                    pass
    assert daemon is not None
    daemon.close()
    client = ObjectReplicaClient(store)
    listed = client.sealed_segments(daemon.generation)
    assert {read_listed_footer(client, info).codec for info in listed} == {FrameCodec.LZ4, FrameCodec.ZSTD}
    return str(folder / "replica")


def _all(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def test_each_query_has_the_rows_of_python(spark: Any, url: str) -> None:
    held = spark.read.format("litelog").option("engine", "python").option("includeMetadata", True).load(url)
    marked = held.selectExpr("*", *(f"{query} AS q{number}" for number, query in enumerate(QUERIES))).collect()
    java = spark.read.format("litelog").option("includeMetadata", True).load(url)
    assert java.schema == held.schema
    for number, query in enumerate(QUERIES):
        wanted = [row[: len(held.columns)] for row in marked if row[f"q{number}"]]
        assert _all(java.where(query)) == sorted(map(tuple, wanted), key=repr), query
        if number % 4 == 0:
            assert tuple(java.where(query).selectExpr(*ASKED).first()) == _aggregated(wanted), query
    assert [row[0] for row in java.select("sequence").limit(5).collect()] == list(range(5))
    assert _all(java.select("value", "index")) == sorted(((row.value, row["index"]) for row in marked), key=repr)


def _aggregated(rows: list[Any]) -> tuple[Any, ...]:
    """The values of the expressions in ASKED."""
    keys = [row[2] for row in rows if row[2] is not None]
    bounds = [pick((row[column] for row in rows), default=None) for column in (0, 1) for pick in (min, max)]
    return len(rows), len(keys), *bounds, len(rows)


def test_metadata_answers_and_objects_are_pruned(spark: Any, url: str) -> None:
    java = spark.read.format("litelog").load(url)
    counted = java.where("sequence < 40").selectExpr("count(*)", "max(sequence)")
    assert _plan(counted).count("LocalTableScan")
    assert counted.first() == (40, 39)
    point = java.where("sequence = 3")
    assert "sequence = 3" in _plan(point)
    assert "Filter (" not in _plan(point)
    assert point.rdd.getNumPartitions() == 1
    assert int(str(java._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())) > 10_000


def test_what_pruning_leaves_is_dealt_to_all_slots_again(spark: Any, url: str) -> None:
    """A plan of two tasks says that its parts are large. A query needs the second one only, and gets tasks for it."""
    partitions = planning.plan(parse_options({"path": url, "numPartitions": "2"})).partitions
    columns = planning.stated_columns(parse_options({"path": url}))
    made = hand_over(partitions, columns)
    rows = np.concatenate([*made.rows.arrays()])
    rows["bytes"] += 32 << 20
    whole = next(made.chunks()) + rows.tobytes() + b"".join(made.rows.extras)
    packed = base64.b64encode(zlib.compress(whole)).decode()
    log = spark.read.format("litelog").option("plan", packed).load()
    assert log.rdd.getNumPartitions() == 2
    first = int(rows["first"][rows["task"] == 1][0])
    left = rows[rows["last"] >= first]
    late = log.where(f"sequence >= {first}").select("sequence")
    assert late.rdd.getNumPartitions() == min(spark.sparkContext.defaultParallelism, len(left)) > 1
    wanted = log.count() - first
    assert sorted(row.sequence for row in late.collect()) == list(range(first, first + wanted))


def _plan(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize("seed", range(40 if NIGHTLY else 3))
def test_both_engines_give_the_same_rows_for_random_options(spark: Any, url: str, seed: int) -> None:
    random = Random(seed)
    options: dict[str, Any] = {"numPartitions": random.randrange(1, 5), "includeMetadata": random.random() < 0.5}
    first = random.randrange(300)
    options |= random.choice([{}, {"startingSequence": first, "endingSequence": first + random.randrange(200)}])
    since = START // 1000 + random.randrange(200_000)
    options |= random.choice([{}, {"startingTimestamp": since, "endingTimestamp": since + random.randrange(90_000)}])
    columns = random.sample(["sequence", "timestamp", "key", "value"], random.randrange(1, 5))
    query = f"({random.choice(QUERIES)}) {random.choice(['AND', 'OR'])} ({random.choice(QUERIES)})"
    source = spark.read.format("litelog").options(**options)
    frames = [source.option("engine", engine).load(url).where(query) for engine in Engine]
    found = [_all(frame.select(columns)) for frame in frames]
    assert found[0] == found[1], (options, query, columns)
    totals = [_all(_by_key(frame)) for frame in frames]
    assert totals[0] == totals[1], (options, query)


def _by_key(frame: Any) -> Any:
    frame.createOrReplaceTempView("records")
    return frame.sparkSession.sql(f"SELECT key, {BY_KEY} FROM records GROUP BY key")


def test_tasks_total_the_records_of_each_key(spark: Any, url: str) -> None:
    java = spark.read.format("litelog").load(url)
    for frame in (java, java.where("sequence < 260 AND key IS NOT NULL"), java.where("key IN (X'6b31', X'')")):
        totals = _by_key(frame)
        assert ", by key" in _plan(totals)
        assert _all(totals) == _all(_by_key(spark.createDataFrame(frame.collect(), frame.schema)))
        assert _all(frame.select("key").distinct()) == [(row[0],) for row in _all(totals)]
    for other in (java.where("length(value) > 20"), java.selectExpr("value AS key", "sequence", "timestamp", "value")):
        assert ", by key" not in _plan(_by_key(other))
    assert ", by key" not in _plan(java.groupBy("key").agg({"value": "max"}))


def test_nulls_are_in_no_total(spark: Any, url: str, tmp_path: Path) -> None:
    """Logs of lines have no timestamps, and rows that show damage have no values."""
    (tmp_path / "log-1").write_bytes(b"first\nsecond\nthird\n")
    lines = spark.read.format("litelog").option("format", "lines")
    totals = lines.load(str(tmp_path)).groupBy("key").agg({"timestamp": "min", "sequence": "count"})
    assert totals.selectExpr("key", "`min(timestamp)`", "`count(sequence)`").collect() == [(None, None, 3)]
    assert lines.load(str(tmp_path)).groupBy("key").agg({"timestamp": "count"}).collect() == [(None, 0)]
    lenient = spark.read.format("litelog").option("mode", "PERMISSIVE").load(url)
    assert ", by key" not in _plan(lenient.groupBy("key").agg({"value": "count"}))


@pytest.mark.parametrize("together", [1, 2], ids=["different", "in pairs"])
def test_a_task_with_many_keys_returns_some_of_them_several_times(spark: Any, tmp_path: Path, together: int) -> None:
    """If most keys are different, it returns each record. Otherwise it empties its table of keys when the table is
    full."""
    require_columnar(spark)
    log, keys = make_log(tmp_path / "log"), [number.to_bytes(3, "big") for number in range(70_000)]
    with LogWriter(log.folder, segment_bytes=1 << 20) as writer:
        for _ in range(2):
            for start in range(0, len(keys), 10_000):
                some = [key for key in keys[start : start + 10_000] for _ in range(together)]
                writer.append([b""] * len(some), keys=some, timestamps=START)
        daemon = Daemon(log, FileStore(str(tmp_path / "replica")), str(tmp_path / "state"), backlog_sealer=True)
        while daemon.sync():
            pass
        daemon.close()
    frame = spark.read.format("litelog").option("numPartitions", 1).load(str(tmp_path / "replica"))
    held = frame.groupBy("key").agg({"*": "count", "sequence": "max", "timestamp": "min"})
    assert ", by key" in _plan(held)
    found = held.groupBy("count(1)", "min(timestamp)").count().drop("min(timestamp)").collect()
    assert [tuple(row) for row in found] == [(2 * together, len(keys))]
    assert held.selectExpr("max(`max(sequence)`)").collect()[0][0] == 2 * together * len(keys) - 1


def test_both_engines_give_the_same_result_after_damage(spark: Any, url: str, tmp_path: Path) -> None:
    """Either engine heals a damaged sealed segment from WAL segments if they exist, and names it otherwise."""
    wanted = _all(spark.read.format("litelog").option("engine", "python").load(url))
    copytree(url, damaged := tmp_path / "replica")
    random, found = Random(5), []
    paths = _sealed(damaged)
    for path in 8 * paths if NIGHTLY else (paths[0], paths[0], paths[-1]):
        whole = path.read_bytes()
        body = bytearray(whole)
        body[random.randrange(len(body))] ^= 1 << random.randrange(8)
        path.write_bytes(body if len(found) % 2 == 0 else whole[: random.randrange(len(whole))])
        source = spark.read.format("litelog")
        both = [_outcome(source.option("engine", engine).load(str(damaged)), path) for engine in Engine]
        path.write_bytes(whole)
        assert both[0] == both[1]
        assert both[0] in (True, wanted)
        found.append(both[0])
    assert found[-1] == wanted
    assert NIGHTLY or found[0] is True  # some of a night's replicas have all WAL segments


def _outcome(frame: Any, path: Path) -> Any:
    """The rows, or whether the error names the object."""
    try:
        return _all(frame)
    except Exception as error:  # noqa: BLE001 - Spark has many
        return path.name in str(error)


def _sealed(place: Path) -> list[Path]:
    return sorted(place.glob("generations/*/segments/*"))


def test_the_fast_path_takes_either_engine(spark: Any, url: str) -> None:
    late = datetime.fromtimestamp(START // 1_000_000 + 90, UTC)
    wheres: list[list[tuple[str, str, Any]]] = [  # a null meets none of these
        [("timestamp", ">=", late), ("sequence", "not in", [100, 101])],
        [("key", "not in", []), ("sequence", "<", 300)],
        [("key", "!=", b"k1")],
        [("key", "in", [b"k1", b""])],
    ]
    for where in wheres:
        for columns in (["value"], {"n": "sequence", "key": "key"}):
            found = [read(spark, url, columns=columns, where=where, engine=engine) for engine in ("python", "java")]
            assert [frame.dtypes for frame in found] == [found[0].dtypes] * 2
            assert _all(found[0]) == _all(found[1]), (where, columns)
    assert "BatchScan" in _plan(read(spark, url))
    assert "BatchScan" not in _plan(read(spark, url, engine="python"))
    with pytest.raises(ConfigError, match="engine='scala' must be python or java"):
        read(spark, url, engine="scala")
    with pytest.raises(ConfigError, match="no aggregate"):
        read(spark, url, aggregate={"n": ("*", "count")}, engine="java")


def test_spark_finds_java_by_itself_and_python_on_request(spark: Any, url: str) -> None:
    source = spark.read.format("litelog")
    assert "pushed: [sequence = 3]" in _plan(source.load(url).where("sequence = 3"))
    assert "pushed" not in _plan(source.option("engine", "python").load(url).where("sequence = 3"))
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW columnar USING litelog OPTIONS (path '{url}', engine 'java')")
    assert "pushed: [sequence = 3]" in _plan(spark.sql("SELECT * FROM columnar WHERE sequence = 3"))
    with pytest.raises(Exception, match="engine='scala' must be python or java"):
        source.option("engine", "scala").load(url)


def test_a_view_and_a_dataframe_plan_each_query(spark: Any, tmp_path: Path) -> None:
    """With Python they keep the plan of their first query, as the documentation says. Spark keeps one plan for the
    actions of a DataFrame, so each query here makes a new DataFrame."""
    require_columnar(spark)
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value").coalesce(1)
    for engine, seen in ((Engine.JAVA, 20), (Engine.PYTHON, 10)):
        place = str(tmp_path / engine)
        write(rows, place)
        frame = spark.read.format("litelog").option("engine", engine).load(place)
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW planned USING litelog OPTIONS (path '{place}', engine '{engine}')")
        counted = "SELECT count(value) FROM planned"
        assert (len(frame.select("value").collect()), spark.sql(counted).first()[0]) == (10, 10)
        write(rows, place)
        assert (len(frame.select("value").collect()), spark.sql(counted).first()[0]) == (seen, seen)


def test_a_stream_of_either_engine_has_all_records(spark: Any, url: str, tmp_path: Path) -> None:
    wanted = spark.read.format("litelog").load(url).count()
    for engine in Engine:
        stream = spark.readStream.format("litelog").option("engine", engine).load(url)
        writer = stream.select("sequence").writeStream.format("parquet").trigger(availableNow=True)
        place = str(tmp_path / engine)
        writer.option("checkpointLocation", f"{place}-checkpoint").start(place).awaitTermination()
        assert spark.read.parquet(place).distinct().count() == wanted


@pytest.fixture(scope="module")
def large(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A replica of a sealed segment in several frames, and of WAL segments after it. Every commit is 10 s later."""
    require_columnar(spark)
    folder = tmp_path_factory.mktemp("large")
    log, store, random = make_log(folder / "log"), FileStore(str(folder / "replica")), Random(1)
    daemon = Daemon(log, store, str(folder / "state"), backlog_sealer=True, settings=Settings(snapshot_segments=1))
    with LogWriter(log.folder, segment_bytes=9 << 20) as writer:
        for number in range(10):
            values = [random.randbytes(64 << 10) for _ in range(16)]
            writer.append(values, timestamps=START + number * 10_000_000)
            while daemon.sync():
                pass
    daemon.close()
    return str(folder / "replica")


def test_tasks_count_bytes_requests_and_frames(spark: Any, large: str) -> None:
    """An object of more than a mebibyte is read in its footer, and in adjacent frames of up to 4 MiB."""
    frame = spark.read.format("litelog").option("numPartitions", 1).load(large)
    (size,) = [path.stat().st_size for path in _sealed(Path(large))]
    whole = run_and_count(frame)
    assert (whole["skipped"], whole["python"]) == (0, 1)  # Python reads the WAL segments
    assert whole["frames"] > 3
    assert size < whole["bytes"] < size + (1 << 17)
    for condition in ("sequence = 3", f"timestamp < timestamp_micros({START + 1_000_000})"):
        one = run_and_count(frame.where(condition))
        assert (one["frames"], one["skipped"], one["requests"]) == (1, whole["frames"] - 1, 2)
        assert one["bytes"] < size // 2
    assert run_and_count(frame.where("sequence >= 1000"))["requests"] == 0
    assert run_and_count(frame.where("sequence = 3"))["python"] == 0
    first = run_and_count(frame.limit(1))
    assert (first["requests"], first["python"]) == (2, 0)


def test_java_reads_s3_by_signed_urls_as_python_reads_it(
    spark: Any, url: str, module_server: S3Server, event_log: Path
) -> None:
    bucket, options = module_server.make_bucket(), module_server.options()
    store, source = open_store(f"s3://{bucket}/log", options), FileStore(url)
    for info in source.list(""):
        with source.open(info.key) as stream:
            store.put(info.key, [stream.read()])
    found = spark.read.format("litelog").options(**{f"s3.{name}": value for name, value in options.items()})
    frame = found.option("numPartitions", 2).load(f"s3://{bucket}/log")
    assert _all(frame) == _all(spark.read.format("litelog").load(url))
    told = run_and_count(frame.where("sequence < 40"))
    assert told["requests"] > 0
    assert told["python"] == 0
    path = _sealed(Path(url))[0]
    body = bytearray(path.read_bytes())
    body[100] ^= 1
    store.put(path.relative_to(url).as_posix(), [body], create_only=False)
    both = [_outcome(found.option("engine", engine).load(f"s3://{bucket}/log"), path) for engine in Engine]
    assert both == [True, True]
    secrets = {f"s3.{name}": value for name, value in options.items() if name != "endpoint"}
    address = f"s3://{bucket}/log?endpoint={options['endpoint']}"
    assert f"litelog s3://{bucket}/log, pushed: []" in _plan(
        spark.read.format("litelog").options(**secrets).load(address)
    )
    shown = frame._jdf.queryExecution().toString().encode()
    logged = b"".join(path.read_bytes() for path in event_log.rglob("*") if path.is_file())
    assert b"X-Amz-Signature" not in shown + logged


def test_without_a_compiler_python_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with caplog.at_level("INFO"):
        assert find_jar.__wrapped__() is None
    assert "no Java compiler was found" in caplog.text
    with pytest.raises(ConfigError, match="install a JDK 17 or newer"):
        build_jar(tmp_path / "litelog-spark.jar")
    assert not (tmp_path / "litelog-spark.jar").exists()


def _streamed(spark: Any, url: str, **options: str) -> int:
    """How many records a stream reads."""
    frame = spark.readStream.format("litelog").options(**options).load(url)
    query = frame.writeStream.format("memory").queryName("streamed").trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    return int(spark.table("streamed").count())


def test_a_time_without_a_zone_is_in_that_of_the_session(spark: Any, url: str) -> None:
    """For both engines, for a stream, and for ``litelog.spark.read``. Tokyo is nine hours ahead of UTC."""
    moment = datetime.fromtimestamp(START / 1_000_000 + 90, UTC)
    zoned = {"startingTimestamp": moment.isoformat()}
    plain = {"startingTimestamp": moment.astimezone(ZoneInfo("Asia/Tokyo")).replace(tzinfo=None).isoformat()}
    frame = spark.read.format("litelog")
    found, streamed = frame.options(**zoned).load(url).count(), _streamed(spark, url, **zoned)
    kept = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        for engine in ("java", "python"):
            assert frame.options(**plain, engine=engine).load(url).count() == found > 0
            assert read(spark, url, options=plain, engine=engine).count() == found
        assert _streamed(spark, url, **plain) == streamed >= found
        assert frame.options(**plain, timeZone="UTC").load(url).count() < found
    finally:
        spark.conf.set("spark.sql.session.timeZone", kept)


def test_progress_and_plans_name_the_log(spark: Any, url: str) -> None:
    frame = spark.readStream.format("litelog").option("maxFilesPerTrigger", 3).load(url)
    query = frame.writeStream.format("noop").trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    assert {source.description for source in query.lastProgress.sources} == {f"litelog {url}"}
    assert len(query.recentProgress) > 2
    both = spark.read.format("litelog").option("paths", json.dumps([url])).load().where("sequence = 3")
    assert f'litelog ["{url}"], pushed: [sequence = 3]' in _plan(both)
