"""The jobs: exports are exact no matter how often they die; verify, stats and hybrid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import ConfigError, DivergedError
from litelog.formats.raw import RawFormat
from litelog.spark import write
from litelog.spark.jobs import export, exported, hybrid, query, stats, verify
from litelog.spark.jobs.iceberg import commit_iceberg
from litelog.spark.jobs.manifest import read_manifest
from litelog.spark.jobs.table_file import ExportSettings
from litelog.stores.registry import open_store
from tests.builders.growing_replica import GrowingReplica
from tests.builders.iceberg_catalog import configure
from tests.builders.replica_builder import make_log
from tests.builders.spark_reading import table_sequences
from tests.builders.spark_writing import expected, rows
from tests.spark.conftest import JVM
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TASK_BYTES = 16 << 10


def records(frame: Any) -> list[tuple[int, bytes | None, bytes]]:
    """(sequence, key, value) of a DataFrame, in order."""
    return sorted((row.sequence, row.key and bytes(row.key), bytes(row.value)) for row in frame.collect())


def test_export_continues_where_it_was(spark: Any, tmp_path: Path) -> None:
    url, target = str(tmp_path / "replica"), tmp_path / "table"
    write(rows(spark, 2000, 2), url, options={"segmentBytes": "8KiB"})
    first = export(spark, url, str(target), partition_by="date", task_bytes=TASK_BYTES)
    assert (first.runs, first.rows, first.next) == (1, 2000, 2000)
    assert first.files > 2
    assert export(spark, url, str(target), partition_by="date", task_bytes=TASK_BYTES).runs == 0
    write(rows(spark, 500, 1, first=2000), url)
    both = hybrid(spark, url, str(target))
    wanted = [(n, key, value) for n, (_, key, value) in enumerate(expected(2500))]
    assert records(both) == wanted
    assert export(spark, url, str(target), partition_by="date", task_bytes=TASK_BYTES).rows == 500
    table = sorted(
        (row.sequence, row.key and bytes(row.key), bytes(row.value)) for row in exported(spark, str(target)).collect()
    )
    assert table == wanted
    assert table_sequences(target) == list(range(2500))
    assert [name for name in os.listdir(target) if not name.startswith("_")] == ["date=2023-11-14"]
    with pytest.raises(ConfigError, match="partition_by"):
        export(spark, url, str(target), partition_by="hour")


def test_export_of_another_history_is_refused(spark: Any, tmp_path: Path) -> None:
    url, target = str(tmp_path / "replica"), str(tmp_path / "table")
    write(rows(spark, 20, 1), url)
    export(spark, url, target)
    write(rows(spark, 40, 1), url, overwrite=True)
    with pytest.raises(DivergedError, match="another history"):
        export(spark, url, target)


@pytest.mark.parametrize("job", [export, hybrid])
def test_a_generation_before_that_of_the_table_is_reported(spark: Any, tmp_path: Path, job: Any) -> None:
    url, target = str(tmp_path / "replica"), str(tmp_path / "table")
    write(rows(spark, 20, 1), url)
    older = spark.read.format("litelog").option("includeMetadata", True).load(url).first().generation
    write(rows(spark, 20, 1), url)
    export(spark, url, target)
    with pytest.raises(ConfigError, match=f"generation={older} ended before .*: leave it out"):
        job(spark, url, target, options={"generation": older})


def test_a_hybrid_is_of_one_history(spark: Any, tmp_path: Path) -> None:
    """Like an export, hybrid refuses another log, a rewritten log, and options that bound only one half."""
    url, other, target = (str(tmp_path / name) for name in ("replica", "other", "table"))
    write(rows(spark, 20, 1), url)
    write(rows(spark, 40, 1), other)
    export(spark, url, target)
    with pytest.raises(ConfigError, match="the table is of log"):
        hybrid(spark, other, target)
    for name, value in (("endingSequence", 6), ("startingTimestamp", "2026-01-01")):
        with pytest.raises(ConfigError, match=f"{name}: a hybrid is all of a log"):
            hybrid(spark, url, target, options={name: value})
    held = hybrid(spark, url, target, options={"Generation": "latest"})
    write(rows(spark, 40, 1), url, overwrite=True)
    with pytest.raises(DivergedError, match="another history"):
        query(spark, url, target, "SELECT * FROM log")
    assert held.count() == 20


def test_a_table_lies_anywhere(spark: Any, tmp_path: Path) -> None:
    """The path may look like a pattern to Hadoop."""
    url, target = str(tmp_path / "replica"), str(tmp_path / "a [b]" / "{c,d}*")
    write(rows(spark, 20, 1), url)
    export(spark, url, target, partition_by="date")
    assert exported(spark, target).count() == 20
    assert hybrid(spark, url, target).count() == 20


def test_json_becomes_columns(spark: Any, tmp_path: Path) -> None:
    url = str(tmp_path / "replica")
    values = ['{"user": "a", "amount": 1.5, "more": [1]}', '{"user": "b"}', "no JSON", '{"amount": 2, "user": null}']
    frame = spark.createDataFrame([(value,) for value in values], "value string").coalesce(1)
    write(frame, url)
    schema = "user STRING, amount DOUBLE"
    with pytest.raises(Exception, match="sequence 2: its value is not a JSON object"):
        export(spark, url, str(tmp_path / "strict"), schema=schema)
    assert table_sequences(tmp_path / "strict") == []
    export(spark, url, str(tmp_path / "table"), schema=schema, lenient=True)
    found = exported(spark, str(tmp_path / "table")).orderBy("sequence").select("sequence", "user", "amount").collect()
    assert [tuple(row) for row in found] == [(0, "a", 1.5), (1, "b", None), (2, None, None), (3, None, 2.0)]


def test_a_schema_with_reserved_or_unsupported_columns_is_refused(spark: Any, tmp_path: Path) -> None:
    """A column that could not be read back is refused before the job writes. A hybrid has no values to show."""
    url, target = str(tmp_path / "replica"), tmp_path / "table"
    write(spark.createDataFrame([('{"user": "a"}',)], "value string"), url)
    refused = {
        "user STRING, Key STRING": "column Key,",
        "sequence BIGINT": "column sequence,",
        "date STRING": "column date,",
        "a INT, A STRING": "column A,",
        "user STRNG": "is not valid: .*(?i:strng|type)",
        "INT": "is not valid: .+",
        "a MAP<STRING, INT>": "column a is MAP<STRING,INT>, which is not made of JSON",
        "a STRUCT<b: ARRAY<DATE>>": "column a is STRUCT<B:ARRAY<DATE>>, which is not made of JSON",
        "a VARIANT": "column a is VARIANT, which is not made of JSON",
        "a VARCHAR(3)": r"column a is VARCHAR\(3\), which is not made of JSON",
        "a INTERVAL DAY": "column a is INTERVAL DAY, which is not made of JSON",
    }
    with pytest.raises(ConfigError, match="column a NOT NULL, but lenient"):
        export(spark, url, str(target), schema="a INT NOT NULL", lenient=True)
    for schema, said in refused.items():
        with pytest.raises(ConfigError, match=said):
            export(spark, url, str(target), schema=schema, partition_by="date")
    assert not target.exists()
    export(spark, url, str(target), schema="user STRING, value INT")
    with pytest.raises(ConfigError, match="exported with a schema"):
        hybrid(spark, url, str(target))


def test_delta_holds_each_run_once(spark: Any, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    url, target = str(tmp_path / "replica"), tmp_path / "table"
    write(rows(spark, 300, 2), url)
    export(spark, url, str(target), table="delta", partition_by="hour")
    (target / "_litelog" / "00000001.json").unlink()  # as if the run had died between Delta's commit and its own
    assert export(spark, url, str(target), table="delta", partition_by="hour").runs == 1
    held = deltalake.DeltaTable(str(target))
    assert held.version() == 0
    files = [os.path.relpath(path.removeprefix("file://"), target) for path in held.file_uris()]
    assert sorted(files) == sorted(file for file in _files(target) if not file.startswith("_"))
    assert table_sequences(target) == list(range(300))


def test_iceberg_holds_each_run_once(spark: Any, tmp_path: Path, iceberg: str) -> None:
    """This holds if the run dies between Iceberg's commit and its own manifest, or if several processes do the run."""
    url, target = str(tmp_path / "replica"), tmp_path / "table"
    write(rows(spark, 300, 2), url)
    shape = {"table": "iceberg", "iceberg_table": iceberg, "partition_by": "date"}
    export(spark, url, str(target), **shape)
    (target / "_litelog" / "00000001.json").unlink()
    assert export(spark, url, str(target), **shape).runs == 1
    held = load_iceberg(iceberg)
    assert sorted(held.scan().to_arrow()["sequence"].to_pylist()) == list(range(300))
    assert len(held.snapshots()) == 1
    with pytest.raises(ConfigError, match="holds the export at"):
        export(spark, url, str(tmp_path / "other"), **shape)

    first = read_manifest(open_store(str(target)), 1)
    again = replace(first, plan=replace(first.plan, run=2))

    def commit(_: int) -> None:
        commit_iceberg(iceberg, str(target), {}, again, ExportSettings("date"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(commit, range(4)))
    held = load_iceberg(iceberg)
    assert [held.scan().count(), len(held.snapshots())] == [600, 2]


@pytest.fixture(scope="module")
def iceberg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a table in a new catalog."""
    pytest.importorskip("pyiceberg")
    pytest.importorskip("sqlalchemy")
    folder = tmp_path_factory.mktemp("iceberg")
    with pytest.MonkeyPatch.context() as patch:
        configure(patch, "tests", folder)
        yield "tests.logs.events"


def load_iceberg(name: str) -> Any:
    from pyiceberg.catalog import load_catalog

    catalog, _, table = name.partition(".")
    return load_catalog(catalog).load_table(table)


def _files(target: Path) -> list[str]:
    return [str(path.relative_to(target)) for path in target.rglob("*.parquet")]


def test_verify_names_each_anomaly(spark: Any, tmp_path: Path) -> None:
    from litelog.formats.registry import open_format
    from litelog.stores.object_store import ObjectReplicaClient
    from litelog.stores.registry import open_store
    from litelog.verify.execution import verify as verify_here

    url = str(tmp_path / "replica")
    write(rows(spark, 2000, 2), url, options={"segmentBytes": "8KiB"})
    whole = verify(spark, url)
    assert (whole.anomalies, whole.failed) == ((), 0)
    assert whole.sealed_segments > 2
    assert whole.content_bytes > 2000 * 10
    damaged = sorted((tmp_path / "replica" / "generations").rglob("*.segment.lz4"))[1]
    body = bytearray(damaged.read_bytes())
    body[len(body) // 3] ^= 1
    damaged.chmod(0o644)
    damaged.write_bytes(body)
    found = verify(spark, url)
    assert {anomaly.key for anomaly in found.anomalies} == {str(damaged.relative_to(tmp_path / "replica"))}
    store = open_store(url)
    here = verify_here(ObjectReplicaClient(store).store, formats=open_format)
    store.close()
    assert found.anomalies == here.anomalies


def test_stats_count_the_records_of_the_log(spark: Any, tmp_path: Path) -> None:
    url = str(tmp_path / "replica")
    write(rows(spark, 2000, 2), url, options={"segmentBytes": "8KiB"})
    found = stats(spark, url, options={"numPartitions": 3})
    wanted = expected(2000)
    assert (found.records, found.first, found.last) == (2000, 0, 1999)
    assert found.bytes == sum(len(value) + len(key or b"") for _, key, value in wanted)
    assert (found.gaps, found.missing, found.duplicates) == (0, 0, 0)
    assert (found.lowest, found.highest) == (wanted[0][0], wanted[-1][0])
    assert (found.keys, found.without_key) == (7, sum(key is None for _, key, _ in wanted))
    assert sum(bucket.records for bucket in found.rate) == 2000
    stored = sum(path.stat().st_size for path in (tmp_path / "replica").rglob("*.segment.lz4"))
    assert found.stored_bytes == stored
    assert found.ratio is not None
    assert found.ratio > 1


def test_stats_of_bytes_are_facts(spark: Any, tmp_path: Path) -> None:
    """The log has WAL segments that compress well, and a WAL segment that stands for a sealed segment. Sequences count
    bytes."""
    replica = GrowingReplica(tmp_path / "replica")
    log = make_log([[900, 900], [400], [30]])
    replica.generation.ship_segment(log[0], cuts=[0])
    replica.generation.stand_for_sealed(log[1])
    replica.generation.ship_segment(log[2], final=None)
    found = stats(spark, replica.url, options={"numPartitions": 2})
    assert (found.records, found.gaps, found.duplicates) == (2230, 0, 0)
    assert found.log_bytes == sum(len(segment.data) for segment in log)
    stored = [path for path in (tmp_path / "replica").rglob("*.lz4") if "snapshots" not in str(path)]
    assert found.stored_bytes == sum(path.stat().st_size for path in stored)

    raw = GrowingReplica(tmp_path / "raw", RawFormat("app.*"))
    for count in (5000, 3, 4000):
        raw.generation.ship(b"x" * count, "app.0")
    found = stats(spark, raw.url, options={"numPartitions": 2, "pattern": "app.*"})
    assert (found.records, found.bytes, found.log_bytes) == (3, 9003, 9003)
    assert (found.first, found.last) == (0, 5003)
    assert (found.gaps, found.missing, found.duplicates) == (0, 0, 0)


def test_gaps_and_duplicates_are_counted() -> None:
    """Gaps and duplicates lie within partitions and between them."""
    import pyarrow

    from litelog.spark.jobs.stats_job import _count, _sum_up

    def batch(numbers: list[int]) -> Any:
        count = len(numbers)
        columns = {
            "sequence": pyarrow.array(numbers, pyarrow.int64()),
            "timestamp": pyarrow.nulls(count, pyarrow.timestamp("us", tz="UTC")),
            "key": pyarrow.nulls(count, pyarrow.binary()),
            "value": pyarrow.array([b"abc"] * count),
        }
        return pyarrow.RecordBatch.from_pydict(columns)

    counted = [*_count(0, [batch([1, 2, 5]), batch([9, 9])]), *_count(1, [batch([9, 12])])]
    found = _sum_up(counted, 0, log_bytes=1, stored_bytes=1)
    assert (found.gaps, found.missing, found.duplicates) == (3, 2 + 3 + 2, 2)

    counted = [*_count(0, [batch([0, 3]), batch([6])], spans=True), *_count(1, [batch([14, 16])], spans=True)]
    found = _sum_up(counted, 0, log_bytes=1, stored_bytes=1)
    assert (found.gaps, found.missing, found.duplicates) == (1, 5, 1)


def test_the_commands_run_jobs(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One job runs in a process, as people run it; the others run in the existing session, which stays."""
    from litelog_cli.main import run

    url, target = str(tmp_path / "replica"), str(tmp_path / "table")
    write(rows(spark, 100, 1), url)
    command = [sys.executable, "-m", "litelog_cli", "spark", "export", url, target, "--master", "local[1]"]
    command += [word for name, value in JVM.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run([*command, "--driver-memory", "512m"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "exported 100 records in 1 files" in done.stdout

    assert run(["spark", "hybrid", url, target]) == 0
    assert json.loads(capsys.readouterr().out) == {"records": 100, "first": 0, "last": 99}
    assert run(["spark", "stats", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 100
    assert run(["spark", "verify", url]) == 0
    assert "all is well" in capsys.readouterr().out
    assert run(["spark", "stats", str(tmp_path / "nothing")]) == 3
    assert spark.range(3).count() == 3


def test_a_query_reports_the_bytes_of_the_table(spark: Any, tmp_path: Path) -> None:
    """The tasks of the query wait until it has reported progress."""
    url, target, gate, told = str(tmp_path / "replica"), str(tmp_path / "table"), tmp_path / "gate", []
    write(rows(spark, 10, 1), url)
    export(spark, url, target)

    def wait(sequence: int) -> int:
        until = time.monotonic() + WAIT_SECONDS
        while not gate.exists() and time.monotonic() < until:
            time.sleep(0.01)
        return sequence

    def progress(done: int, whole: int) -> None:
        told.append((done, whole))
        gate.touch()

    spark.udf.register("wait", wait, "bigint")
    asked = "SELECT sum(wait(sequence)) AS total FROM log"
    assert query(spark, url, target, asked, progress=progress) == ['{"total":45}']
    size = sum(path.stat().st_size for path in (tmp_path / "table").rglob("*.parquet"))
    assert told[0] == (0, size)


def test_progress_is_reported_of_bytes_by_the_tasks_that_are_over(spark: Any, tmp_path: Path) -> None:
    """Two of four tasks wait until the progress of the other two has been reported."""
    from litelog.spark.jobs.progress import watching

    gate, told = tmp_path / "gate", []

    def progress(done: int, whole: int) -> None:
        told.append((done, whole))
        if done >= 10 + 50:
            gate.touch()

    def work(batches: Any) -> Any:
        for batch in batches:
            while batch.column(0)[0].as_py() >= 2 and not gate.exists():
                time.sleep(0.01)
            yield batch

    with watching(spark, progress, 100, before=10, after=5):
        assert len(spark.range(0, 4, 1, 4).mapInArrow(work, "id bigint").collect()) == 4
    assert (10 + 50, 115) in told
    assert told == sorted(told)
