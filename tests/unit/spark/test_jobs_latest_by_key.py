"""Exports to tables that hold the latest row of each key, without Spark, killed at each request to the store."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow

from litelog.errors import ConfigError
from litelog.spark.jobs import export, exported, hybrid
from litelog.spark.jobs.export_task import ExportTarget
from litelog.spark.jobs.latest_rows import latest_rows
from litelog.spark.jobs.local_tasks import LocalTasks
from litelog.stores.registry import open_store
from tests.builders.installed import needs
from tests.builders.keyed_replica import KeyedReplica, export_latest, latest, rows_of, versions_of
from tests.builders.stores import CountingStore, KilledError
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from litelog.stores.object_store import ObjectStore

pytestmark = needs("deltalake")

REQUESTS = 30
"""At least as many as a process makes that exports one run."""


class MortalStore(CountingStore):
    """Ends the process before the n-th request."""

    def __init__(self, inner: ObjectStore, numbers: itertools.count[int], at: int) -> None:
        super().__init__(inner)
        self._numbers = numbers
        self._at = at

    def _count(self, operation: str) -> None:
        if next(self._numbers) == self._at:
            raise KilledError
        super()._count(operation)


@pytest.mark.slow
def test_a_table_holds_the_latest_row_of_each_key(tmp_path: Path) -> None:
    replica, target = KeyedReplica(tmp_path / "replica"), tmp_path / "table"
    for segments in (4, 3, 1):
        replica.add(segments)
        assert export_latest(replica.url, str(target)) == 1
        assert rows_of(target) == latest(replica.next)
    assert export_latest(replica.url, str(target)) == 0
    assert [path for path in target.rglob("*.parquet") if "_litelog" in path.parts] == []
    assert all(rows in [latest(records) for records in range(replica.next + 1)] for rows in versions_of(target))


@pytest.mark.slow
@pytest.mark.parametrize("at", sampled(range(REQUESTS), 6, "requests of an export to a latest-by-key table"))
def test_a_killed_merge_is_repeated_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    replica, target = KeyedReplica(tmp_path / "replica").add(2), tmp_path / "table"
    export_latest(replica.url, str(target))
    replica.add(4)
    numbers = itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr(ExportTarget, "open", lambda _self, _stop: MortalStore(open_store(str(target)), numbers, at))
        try:
            export_latest(replica.url, str(target))
        except KilledError:
            held = rows_of(target)
            assert held in [latest(records) for records in range(replica.next + 1)]
        else:
            assert next(numbers) <= at, "the walk has too few requests"
    assert export_latest(replica.url, str(target)) <= 1
    assert rows_of(target) == latest(replica.next)
    assert export_latest(replica.url, str(target)) == 0
    assert all(rows in [latest(records) for records in range(replica.next + 1)] for rows in versions_of(target))
    assert [path for path in target.rglob("*.parquet") if "_litelog" in path.parts] == []


@pytest.mark.slow
def test_two_processes_that_merge_at_once_make_one_table(tmp_path: Path) -> None:
    """The second one begins when the first has written its files, and is done before the first merges them."""
    replica, target = KeyedReplica(tmp_path / "replica").add(3), tmp_path / "table"

    class Overtaken(LocalTasks):
        def run(self, count: int, work: Callable[[Any], Any]) -> list[Any]:
            rows = super().run(count, work)
            assert export_latest(replica.url, str(target)) == 1
            return rows

    export(Overtaken(), replica.url, str(target), table="delta", merge_on="key", task_bytes=1 << 10)
    assert rows_of(target) == latest(replica.next)
    assert export_latest(replica.url, str(target)) == 0


def test_the_latest_rows_are_those_of_the_highest_sequences() -> None:
    def table(*rows: tuple[int, bytes | None]) -> Any:
        columns = {"sequence": [n for n, _ in rows], "key": [key for _, key in rows]}
        return pyarrow.table(columns, pyarrow.schema([("sequence", pyarrow.int64()), ("key", pyarrow.binary())]))

    tables = [table((1, b"a"), (2, None), (3, b"b")), table((4, b"a")), table((7, b"c"), (9, b"c"))]
    (found,) = latest_rows(tables, "key")
    assert found.to_pydict() == {"sequence": [3, 4, 9], "key": [b"b", b"a", b"c"]}
    assert list(latest_rows([table((1, None))], "key")) == []
    assert list(latest_rows([], "key")) == []


def test_tables_that_cannot_hold_the_latest_rows_are_refused(tmp_path: Path) -> None:
    replica, target = KeyedReplica(tmp_path / "replica").add(1), str(tmp_path / "table")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"merge_on": "key"}, "table=delta, not with table=parquet"),
        ({"merge_on": "sequence", "table": "delta"}, "must be one of the table's columns: key, value"),
        ({"merge_on": "user", "table": "delta"}, "must be one of the table's columns: key, value"),
        ({"merge_on": "key", "table": "delta", "partition_by": "date"}, "does not work with partition_by"),
    ]
    for shape, said in refused:
        with pytest.raises(ConfigError, match=said):
            export(LocalTasks(), replica.url, target, **shape)
    export_latest(replica.url, target)
    with pytest.raises(ConfigError, match="merge_on='key', not with None"):
        export(LocalTasks(), replica.url, target, table="delta")
    for read in (lambda: exported(None, target), lambda: hybrid(None, replica.url, target)):
        with pytest.raises(ConfigError, match="read it as a Delta table"):
            read()
    other = str(tmp_path / "other")
    export(LocalTasks(), replica.url, other, table="delta")
    with pytest.raises(ConfigError, match="merge_on=None, not with 'key'"):
        export_latest(replica.url, other)
