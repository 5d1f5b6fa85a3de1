"""The fast path returns the records of the log, whichever columns and conditions the workers apply."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import ConfigError
from litelog.spark import read, write
from litelog.spark.options import parse_options
from litelog.spark.query.counting import count_records
from litelog.spark.query.dealing import deal
from tests.builders.log_builder import make_log
from tests.builders.spark_writing import START, expected, rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNT = 3000


@pytest.fixture(scope="module")
def url(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A replica with sealed segments of two generations."""
    place = str(tmp_path_factory.mktemp("fast") / "replica")
    write(rows(spark, COUNT - 1000, 3), place, options={"segmentBytes": "16KiB"})
    write(rows(spark, 1000, 1, first=COUNT - 1000), place)
    return place


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_all_rows(spark: Any, url: str, partitions: int) -> None:
    frame = read(spark, url, options={"numPartitions": partitions})
    found = sorted((row.sequence, row.key, row.value) for row in frame.collect())
    wanted = [(n, key, value) for n, (_, key, value) in enumerate(expected(COUNT))]
    assert [(n, k and bytes(k), bytes(v)) for n, k, v in found] == wanted


def test_a_large_log_is_never_broadcast(spark: Any, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Spark does not know how much a function returns, but knows that the other side of the join is small."""
    small = spark.range(3).withColumnRenamed("id", "sequence")
    for log in (
        read(spark, url, engine="python"),
        read(spark, url, columns=["sequence"], options={"numPartitions": 1}, engine="python"),
    ):
        capsys.readouterr()
        spark.range(10**9).withColumnRenamed("id", "sequence").join(log, "sequence").explain()
        assert "BroadcastExchange" not in capsys.readouterr().out
    log.join(small, "sequence").explain()
    said = capsys.readouterr().out
    assert said.count("BroadcastExchange") == 1
    assert "MapInArrow" not in said.partition("BroadcastExchange")[2]


def test_parts_that_are_dealt_as_rows_go_to_a_task_each(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def work(part: tuple[int, str]) -> Iterator[Any]:
        import pyarrow
        from pyspark import TaskContext

        number = TaskContext.get().partitionId()  # type: ignore[union-attr]
        yield pyarrow.record_batch({"task": [number], "part": [part[0]]})

    frame = deal(spark, [(number, "x" * number) for number in range(5)], work, "task bigint, part bigint", 0)
    assert [tuple(row) for row in frame.collect()] == [(number, number) for number in range(5)]
    spark.range(10**9).withColumnRenamed("id", "part").join(frame, "part").explain()
    assert "BroadcastExchange" not in capsys.readouterr().out


def test_columns_and_conditions(spark: Any, url: str) -> None:
    from pyarrow import compute

    bounded = read(spark, url, columns=["value"], where=[("sequence", ">=", 1990), ("sequence", "<", 2010)])
    assert bounded.columns == ["value"]
    assert [bytes(row.value) for row in bounded.collect()] == [b"value %d" % n for n in range(1990, 2010)]
    made = {"n": "sequence", "size": compute.binary_length(compute.field("value"))}
    computed = read(spark, url, columns=made, where=compute.equal(compute.field("key"), b"key 2"))
    assert {(row.n, row.size) for row in computed.collect()} == {
        (n, len(value)) for n, (_, key, value) in enumerate(expected(COUNT)) if key == b"key 2"
    }


def test_conditions_are_checked_intersected_and_never_a_start(spark: Any, tmp_path: Path) -> None:
    """Conditions that reach before the first record of a log are not an error."""
    from pyarrow import compute

    log = make_log(tmp_path / "log")
    for count in (5, 5, 5):
        log.roll(count)
    log.delete(next(iter(log.files())))

    def found(*where: Any) -> list[int]:
        return sorted(
            row.sequence for row in read(spark, log.folder, columns=["sequence"], where=list(where)).collect()
        )

    assert found(("sequence", ">=", 1)) == list(range(5, 15))
    assert found(("sequence", ">=", 1), ("sequence", ">", 11)) == [12, 13, 14]
    assert found(("sequence", ">=", 12), ("sequence", "<", 8)) == []
    late, early = datetime(2100, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)
    assert found(("timestamp", ">=", late), ("timestamp", "<", early)) == []
    with pytest.raises(ConfigError, match=r"where: .* is not a condition"):
        read(spark, log.folder, where=("sequence", ">=", 5))
    with pytest.raises(ConfigError, match=r"where: .*other"):
        read(spark, log.folder, where=compute.field("other") > 5)


def test_a_condition_on_time_prunes_and_filters(spark: Any, url: str) -> None:
    since = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=START + 2500)
    frame = read(spark, url, columns=["sequence"], where=[("timestamp", ">=", since)])
    assert sorted(row.sequence for row in frame.collect()) == list(range(2500, COUNT))


def test_a_condition_on_time_skips_objects_outside_it(spark: Any, url: str, tmp_path: Path) -> None:
    """The result is the same if the objects outside no longer exist."""
    import shutil

    import pyarrow
    from pyarrow import compute

    bare = tmp_path / "bare"
    shutil.copytree(url, bare)
    sealed = sorted(bare.rglob("*.segment.lz4"))
    for path in sealed[:-1]:
        path.unlink()
    since = pyarrow.scalar(START + COUNT - 10, pyarrow.timestamp("us", tz="UTC"))
    later = compute.field("timestamp") >= since
    frame = read(spark, str(bare), columns=["sequence"], where=later & (compute.field("sequence") > 0))
    assert len(sealed) > 1
    assert sorted(row.sequence for row in frame.collect()) == list(range(COUNT - 10, COUNT))


def test_aggregates_are_those_of_all_rows(spark: Any, url: str) -> None:
    aggregate = {
        "n": ("*", "count"),
        "low": ("sequence", "min"),
        "high": ("sequence", "max"),
        "sum": ("sequence", "sum"),
    }
    fewer = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "200")  # Spark's default
    try:
        frame = read(spark, url, aggregate=aggregate, group_by=["key"], options={"numPartitions": 5})
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", fewer)
    by_key: dict[bytes | None, list[int]] = {}
    for number, (_, key, _value) in enumerate(expected(COUNT)):
        by_key.setdefault(key, []).append(number)
    found = {
        None if row.key is None else bytes(row.key): (row.n, row.low, row.high, row.sum) for row in frame.collect()
    }
    assert found == {key: (len(them), min(them), max(them), sum(them)) for key, them in by_key.items()}
    assert frame.rdd.getNumPartitions() == 5, "the groups are shuffled to no more partitions than there are tasks"
    none = read(spark, url, aggregate={"n": ("value", "count")}, where=[("sequence", "<", 0)])
    assert [row.n for row in none.collect()] == [0]


def test_counts_come_from_metadata(spark: Any, url: str, tmp_path: Path) -> None:
    """Counts are right even if every byte of the log was deleted. Counts within bounds are exact, not estimated."""
    import os
    import shutil

    bare = str(tmp_path / "bare")
    shutil.copytree(url, bare)
    for folder, _, names in os.walk(bare):
        for name in names:
            if name.endswith(".segment.lz4"):
                os.unlink(os.path.join(folder, name))
    assert [row.n for row in read(spark, bare, aggregate={"n": ("*", "count")}).collect()] == [COUNT]
    for first, stop in [(0, COUNT), (5, 2500), (2999, 3000), (2000, 2000)]:
        given = {"path": bare, "startingsequence": str(first), "endingsequence": str(stop)}
        assert count_records(parse_options(given)) == stop - first
    assert count_records(parse_options({"path": bare, "startingtimestamp": "2023-11-14"})) is None


def test_the_column_for_malformed_data_can_be_selected_like_any_other(spark: Any, url: str, tmp_path: Path) -> None:
    import shutil

    from pyarrow import compute

    bad = tmp_path / "bad"
    shutil.copytree(url, bad)
    damaged = sorted(bad.rglob("*.segment.lz4"))[0]
    damaged.write_bytes(damaged.read_bytes()[:100] + b"?" + damaged.read_bytes()[101:])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "what is wrong"}
    field = compute.field("what is wrong")
    everything = read(spark, str(bad), options=options).where("`what is wrong` IS NOT NULL").collect()
    assert len(everything) == 1
    for where in (field.is_valid(), compute.field("timestamp").is_null()):
        found = read(spark, str(bad), where=where, options=options).collect()
        assert [tuple(row) for row in found] == [tuple(row) for row in everything]
        assert read(spark, str(bad), columns=["offset"], where=where, options=options).count() == 1
        counted = read(spark, str(bad), where=where, aggregate={"n": ("*", "count")}, options=options)
        assert [row.n for row in counted.collect()] == [1]
    told = read(spark, str(bad), columns={"said": field}, where=field.is_valid(), options=options).collect()
    assert [row.said for row in told] == [everything[0]["what is wrong"]]


def test_invalid_arguments_are_reported(spark: Any, url: str) -> None:
    from pyarrow import compute

    with pytest.raises(ConfigError, match="median"):
        read(spark, url, aggregate={"m": ("sequence", "median")})
    with pytest.raises(ConfigError, match="no column 'other'"):
        read(spark, url, columns=["other"])
    with pytest.raises(ConfigError, match="group_by needs aggregate"):
        read(spark, url, group_by=["key"])
    size = compute.binary_length(compute.field("value"))
    mistakes: list[tuple[str, dict[str, Any]]] = [
        (r"sum.*binary", {"aggregate": {"n": ("value", "sum")}}),
        (r"'count' is not \(column, function\)", {"aggregate": {"n": "count"}}),
        ("name a column 'key' twice", {"aggregate": {"KEY": ("*", "count")}, "group_by": ["key"]}),
        (r"FieldRef\.Name\(other\)", {"columns": {"n": "other"}}),
        (r"FieldRef\.Name\(key\)", {"columns": {"n": size}, "aggregate": {"m": ("n", "sum")}, "group_by": ["key"]}),
        ("Expression", {"columns": {"n": 5}}),
        ("uint64", {"columns": {"n": compute.field("sequence").cast("uint64")}}),
    ]
    for said, asked in mistakes:
        with pytest.raises(ConfigError, match=said):
            read(spark, url, **asked)


def test_a_name_may_hold_any_character(spark: Any, url: str) -> None:
    for column in ("*", "value"):  # counted from metadata, and in tasks
        counted = read(spark, url, aggregate={"a.b `c`": (column, "count")})
        assert [row["a.b `c`"] for row in counted.collect()] == [COUNT]
    grouped = read(spark, url, columns={"k.1": "key"}, aggregate={"n": ("*", "count")}, group_by=["k.1"])
    assert sum(row.n for row in grouped.collect()) == COUNT


def test_keys_are_as_often_as_in_the_log(spark: Any, url: str) -> None:
    """The data source counts the same keys in another way."""
    fast = Counter(row.key and bytes(row.key) for row in read(spark, url, columns=["key"]).collect())
    source = Counter(row.key and bytes(row.key) for row in spark.read.format("litelog").load(url).collect())
    assert fast == source == Counter(key for _, key, _ in expected(COUNT))
