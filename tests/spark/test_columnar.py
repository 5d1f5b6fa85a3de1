"""The columnar reader returns the same rows as Python, for random logs, queries and damage."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from shutil import copytree
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import ConfigError
from litelog.log.writer import LogWriter
from litelog.shipping.context import Settings
from litelog.spark import read
from litelog.spark.jvm.jar import build_jar, find_jar
from replica_clients.file import FileStore
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import make_log
from tests.builders.spark_shipping import columnar
from tests.sampling import NIGHTLY

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.fixture(scope="module", params=range(4 if NIGHTLY else 1))
def url(request: pytest.FixtureRequest, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A replica of a random log: sealed segments in frames of several commits, and WAL segments after them."""
    columnar(spark)
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
                settings = Settings(max_segment_bytes=1 << 20, snapshot_segments=2)
                daemon = daemon or Daemon(log, store, str(folder / "state"), backlog_sealer=True, settings=settings)
                while daemon.sync():
                    pass
    assert daemon is not None
    daemon.close()
    return str(folder / "replica")


def _all(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def test_each_query_has_the_rows_of_python(spark: Any, url: str) -> None:
    held = spark.read.format("litelog").option("includeMetadata", True).load(url)
    marked = held.selectExpr("*", *(f"{query} AS q{number}" for number, query in enumerate(QUERIES))).collect()
    java = spark.read.format(columnar(spark)).option("includeMetadata", True).load(url)
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
    java = spark.read.format(columnar(spark)).load(url)
    counted = java.where("sequence < 40").selectExpr("count(*)", "max(sequence)")
    assert _plan(counted).count("LocalTableScan")
    assert counted.first() == (40, 39)
    point = java.where("sequence = 3")
    assert "sequence = 3" in _plan(point)
    assert "Filter (" not in _plan(point)
    assert point.rdd.getNumPartitions() == 1
    assert int(str(java._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())) > 10_000


def _plan(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_both_engines_give_the_same_result_after_a_flipped_bit(spark: Any, url: str, tmp_path: Path) -> None:
    """Either engine heals a damaged sealed segment from WAL segments if they exist, and names it otherwise."""
    wanted = _all(spark.read.format("litelog").load(url))
    copytree(url, damaged := tmp_path / "replica")
    random, found = Random(5), []
    paths = _sealed(damaged)
    for path in paths if NIGHTLY else (paths[0], paths[-1], paths[-1]):
        whole = path.read_bytes()
        body = bytearray(whole)
        body[random.randrange(len(body))] ^= 1 << random.randrange(8)
        path.write_bytes(body)
        both = [_outcome(spark.read.format(source).load(str(damaged)), path) for source in ("litelog", columnar(spark))]
        path.write_bytes(whole)
        assert both[0] == both[1]
        found.append(both[0])
    assert found[0] is True
    assert found[-1] == wanted


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
