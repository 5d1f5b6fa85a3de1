"""Compactions of exported tables, without Spark: what they replace, concurrent readers, and killed processes."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import ConfigError, CorruptObjectError, NothingToRestoreError
from litelog.spark.jobs import compact, export
from litelog.spark.jobs.compact_task import MARK
from litelog.spark.jobs.export_task import ExportTarget
from litelog.spark.jobs.hybrid_job import read_table
from litelog.spark.jobs.local_tasks import LocalTasks
from litelog.stores.registry import open_store
from tests.builders.growing_replica import GrowingReplica
from tests.builders.iceberg_catalog import configure
from tests.builders.installed import needs
from tests.builders.keyed_replica import KeyedReplica, export_latest, latest, rows_of
from tests.builders.spark_reading import table_sequences
from tests.builders.stores import CountingStore, KilledError
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore

TABLE = "compacted.logs.events"

REQUESTS = 36
"""At least as many as a process makes that compacts two groups of files."""


class MortalStore(CountingStore):
    """Ends the process before the n-th request. A reader looks at the table before each of the others."""

    def __init__(self, inner: ObjectStore, numbers: itertools.count[int], at: int, look: Callable[[], None]) -> None:
        super().__init__(inner)
        self._numbers, self._at, self._look = numbers, at, look

    def _count(self, operation: str) -> None:
        if next(self._numbers) == self._at:
            raise KilledError
        self._look()
        super()._count(operation)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Any]:
    """The catalog of a new Iceberg table."""
    pytest.importorskip("pyiceberg")
    pytest.importorskip("sqlalchemy")
    from pyiceberg.catalog import load_catalog

    (tmp_path / "house").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        configure(patch, "compacted", tmp_path / "house")
        yield load_catalog("compacted")


def export_runs(folder: Path, runs: int, **shape: Any) -> tuple[GrowingReplica, Path]:
    """Export a replica to a table in runs of ten records."""
    replica, target = GrowingReplica(folder / "replica"), folder / "table"
    for _ in range(runs):
        export(LocalTasks(), replica.grow(10).url, str(target), **shape)
    return replica, target


def files_of(target: Path) -> list[str]:
    return sorted(str(path.relative_to(target)) for path in target.rglob("*.parquet"))


def live_sequences(target: Path) -> list[int]:
    """The sequences in the files that readers of manifests read."""
    from pyarrow import parquet

    _, files = read_table(str(target), {})
    return sorted(n for file in files for n in parquet.ParquetFile(target / file.path).read()["sequence"].to_pylist())


def die_at(monkeypatch: pytest.MonkeyPatch, target: Path, at: int, look: Callable[[], None] = lambda: None) -> None:
    """Compact a table in a process that ends at its n-th request."""
    numbers = itertools.count()

    def open_mortal(_self: ExportTarget, _stop: object) -> ObjectStore:
        return MortalStore(open_store(str(target)), numbers, at, look)

    with monkeypatch.context() as patch:
        patch.setattr(ExportTarget, "open", open_mortal)
        try:
            compact(str(target))
        except KilledError:
            return
    assert next(numbers) <= at, "the walk has too few requests"


@pytest.mark.slow
@pytest.mark.parametrize("partition_by", [None, "date", "hour"])
def test_small_files_become_one_with_the_same_rows(tmp_path: Path, partition_by: str | None) -> None:
    """Except for those of the newest run. Later runs and compactions continue."""
    replica, target = export_runs(tmp_path, 4, partition_by=partition_by)
    before = files_of(target)
    planned = compact(str(target), dry_run=True)
    assert files_of(target) == before
    done = compact(str(target))
    assert (done.table, done.groups, done.files) == ("parquet", 1, 3)
    assert planned == done
    assert table_sequences(target) == live_sequences(target) == list(range(40))
    assert len(files_of(target)) == 2
    assert files_of(target) != before[-2:]
    assert compact(str(target)).groups == 0

    for _ in range(2):
        export(LocalTasks(), replica.grow(10).url, str(target), partition_by=partition_by)
    assert compact(str(target)).files == 3
    assert table_sequences(target) == live_sequences(target) == list(range(60))


def test_files_of_a_good_size_and_of_other_partitions_stay(tmp_path: Path) -> None:
    _, target = export_runs(tmp_path, 5)
    sizes = sorted(path.stat().st_size for path in target.glob("*.parquet"))
    assert compact(str(target), file_bytes=sizes[0]).groups == 0
    shown: list[tuple[int, int]] = []
    done = compact(str(target), file_bytes=sizes[-1] * 2, progress=lambda *amounts: shown.append(amounts))
    assert done.groups == len(shown) == 2
    assert shown[-1] == (done.bytes, done.bytes)
    assert table_sequences(target) == list(range(50))
    assert len(files_of(target)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("at", sampled(range(REQUESTS), 4, "requests of a compaction"))
def test_a_killed_compaction_is_completed_and_shows_no_wrong_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Before each request a reader of the folder has all rows once, or meets a file that is not Parquet."""
    replica, target = export_runs(tmp_path, 5)
    seen: Counter[bool] = Counter()

    def look() -> None:
        marked = any(name.endswith(MARK) for name in files_of(target))
        seen[marked] += 1
        assert marked or table_sequences(target) == list(range(50))

    die_at(monkeypatch, target, at, look)
    look()
    assert live_sequences(target) == list(range(50))
    compact(str(target))
    assert table_sequences(target) == live_sequences(target) == list(range(50))
    assert len(files_of(target)) == 2
    assert seen[False] > 0
    export(LocalTasks(), replica.grow(10).url, str(target))
    assert table_sequences(target) == list(range(60))


def test_a_reader_that_listed_before_a_swap_meets_a_missing_file(tmp_path: Path) -> None:
    """The new file sorts after those that it replaces, and their names are not used again."""
    _, target = export_runs(tmp_path, 4)
    before = files_of(target)
    compact(str(target))
    (made,) = set(files_of(target)) - set(before)
    assert all(name < made for name in before[:-1])
    assert before[-1] in files_of(target)


def test_what_a_slow_task_wrote_again_is_deleted_by_the_next_one(tmp_path: Path) -> None:
    _, target = export_runs(tmp_path, 4)
    name = files_of(target)[0]
    body = (target / name).read_bytes()
    compact(str(target))
    (target / name).write_bytes(body)
    assert live_sequences(target) == list(range(40))
    compact(str(target))
    assert table_sequences(target) == list(range(40))


def test_two_compactions_at_once_are_one(tmp_path: Path) -> None:
    _, target = export_runs(tmp_path, 5)

    class Overtaken(LocalTasks):
        def run(self, count: int, work: Callable[[Any], Any]) -> list[Any]:
            compact(str(target))
            return super().run(count, work)

    compact(str(target), spark=Overtaken())
    assert table_sequences(target) == live_sequences(target) == list(range(50))
    assert len(files_of(target)) == 2


def test_a_file_with_other_rows_than_its_manifest_says_is_left_alone(tmp_path: Path) -> None:
    _, target = export_runs(tmp_path, 4)
    first, second, *_ = files_of(target)
    whole = (target / first).read_bytes()
    (target / first).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptObjectError, match=f"{first}: Parquet"):
        compact(str(target))
    export(LocalTasks(), GrowingReplica(tmp_path / "other").grow(3).url, str(tmp_path / "small"))
    (target / first).write_bytes((tmp_path / "small" / first).read_bytes())
    with pytest.raises(CorruptObjectError, match=f"{first}: number of rows is 3, expected 10"):
        compact(str(target))
    (target / first).write_bytes(whole)
    assert (target / second).exists()
    compact(str(target))
    assert table_sequences(target) == list(range(40))


def test_what_is_not_an_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NothingToRestoreError, match="has no export"):
        compact(str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="file_bytes=0 must be positive"):
        compact(str(tmp_path / "nothing"), file_bytes=0)


@pytest.mark.slow
def test_an_iceberg_table_changes_by_one_commit(tmp_path: Path, catalog: Any) -> None:
    """Its older versions keep their files, so a reader that began before ends as well."""
    replica, target = export_runs(tmp_path, 3, table="iceberg", iceberg_table=TABLE, partition_by="hour")
    table = catalog.load_table("logs.events")
    assert compact(str(target), dry_run=True).files == 3
    assert catalog.load_table("logs.events").current_snapshot() == table.current_snapshot()
    done = compact(str(target))
    assert (done.table, done.groups, done.files) == ("iceberg", 1, 3)
    for held in (table, catalog.load_table("logs.events")):
        assert sorted(held.scan().to_arrow()["sequence"].to_pylist()) == list(range(30))
    assert len(list(catalog.load_table("logs.events").scan().plan_files())) == 1
    assert live_sequences(target) == list(range(30))
    export(LocalTasks(), replica.grow(5).url, str(target), table="iceberg", iceberg_table=TABLE, partition_by="hour")
    assert compact(str(target)).files == 2
    held = catalog.load_table("logs.events")
    assert sorted(held.scan().to_arrow()["sequence"].to_pylist()) == list(range(35))
    assert len(list(held.scan().plan_files())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("at", sampled(range(REQUESTS), 4, "requests of a compaction of an Iceberg table"))
def test_a_killed_compaction_of_an_iceberg_table_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalog: Any, at: int
) -> None:
    _, target = export_runs(tmp_path, 3, table="iceberg", iceberg_table=TABLE)

    def rows() -> list[int]:
        return sorted(catalog.load_table("logs.events").scan().to_arrow()["sequence"].to_pylist())

    die_at(monkeypatch, target, at)
    assert rows() == live_sequences(target) == list(range(30))
    compact(str(target))
    assert rows() == live_sequences(target) == list(range(30))
    assert len(list(catalog.load_table("logs.events").scan().plan_files())) == 1


@pytest.mark.slow
def test_files_that_others_removed_from_an_iceberg_table_are_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalog: Any
) -> None:
    """The compaction that planned them is given up, and its files are deleted."""
    _, target = export_runs(tmp_path, 3, table="iceberg", iceberg_table=TABLE)

    class Meanwhile(LocalTasks):
        def run(self, count: int, work: Callable[[Any], Any]) -> list[Any]:
            rows = super().run(count, work)
            catalog.load_table("logs.events").delete("sequence < 10")
            return rows

    before = files_of(target)
    compact(str(target), spark=Meanwhile())
    held = catalog.load_table("logs.events")
    assert sorted(held.scan().to_arrow()["sequence"].to_pylist()) == list(range(10, 30))
    assert files_of(target) == before
    assert compact(str(target)).files == 2
    assert sorted(catalog.load_table("logs.events").scan().to_arrow()["sequence"].to_pylist()) == list(range(10, 30))


@needs("deltalake")
@pytest.mark.slow
def test_a_delta_table_is_compacted_by_delta(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    replica, target = export_runs(tmp_path, 3, table="delta")
    assert compact(str(target), dry_run=True).files == 3
    assert DeltaTable(str(target)).version() == 2
    done = compact(str(target))
    assert (done.table, done.groups, done.files) == ("delta", 1, 3)
    held = DeltaTable(str(target))
    assert len(held.file_uris()) == 1
    assert sorted(held.to_pyarrow_table()["sequence"].to_pylist()) == list(range(30))
    assert live_sequences(target) == list(range(30))
    export(LocalTasks(), replica.grow(5).url, str(target), table="delta")
    assert sorted(DeltaTable(str(target)).to_pyarrow_table()["sequence"].to_pylist()) == list(range(35))


@needs("deltalake")
@pytest.mark.slow
def test_a_latest_by_key_table_is_compacted_by_delta(tmp_path: Path) -> None:
    replica, target = KeyedReplica(tmp_path / "replica"), tmp_path / "table"
    for _ in range(3):
        export_latest(replica.add(2).url, str(target))
    compact(str(target))
    assert rows_of(target) == latest(replica.next)
    export_latest(replica.add(2).url, str(target))
    assert rows_of(target) == latest(replica.next)
