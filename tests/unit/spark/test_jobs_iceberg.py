"""Exports to Iceberg tables, without Spark: partitions that change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

from litelog.errors import ConfigError
from litelog.spark.jobs import export
from litelog.spark.jobs.local_tasks import LocalTasks
from tests.builders.growing_replica import GrowingReplica
from tests.builders.iceberg_catalog import configure
from tests.builders.installed import needs
from tests.builders.stores import KilledError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = needs("pyiceberg", "sqlalchemy")

TABLE = "evolving.logs.events"


class Killed(LocalTasks):
    """A session that dies before it has the results of its tasks."""

    def run(self, count: int, work: Callable[[Any], Any]) -> list[Any]:
        super().run(count, work)
        raise KilledError


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Any]:
    """The catalog of a new table."""
    from pyiceberg.catalog import load_catalog

    (tmp_path / "house").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        configure(patch, "evolving", tmp_path / "house")
        yield load_catalog("evolving")


def run(replica: GrowingReplica, target: Path, partition_by: str | None, tasks: LocalTasks | None = None) -> int:
    shape = {"table": "iceberg", "iceberg_table": TABLE, "partition_by": partition_by}
    return export(tasks or LocalTasks(), replica.url, str(target), **shape).rows


@pytest.mark.slow
def test_later_runs_may_be_partitioned_in_another_way(tmp_path: Path, catalog: Any) -> None:
    """A run that died is repeated as it was planned. Files that are there stay as they are."""
    replica, target = GrowingReplica(tmp_path / "replica"), tmp_path / "table"
    rows = 0
    for count, partition_by in ((3, "date"), (4, "hour"), (2, None)):
        rows += count
        assert run(replica.grow(count), target, partition_by) == count
        table = catalog.load_table("logs.events")
        assert [field.name for field in table.spec().fields] == ([f"timestamp_{partition_by}"] if partition_by else [])
        assert sorted(table.scan().to_arrow()["sequence"].to_pylist()) == list(range(rows))
    replica.grow(5)
    with pytest.raises(KilledError):
        run(replica, target, "hour", Killed())
    assert run(replica.grow(1), target, "date") == 6
    table = catalog.load_table("logs.events")
    assert sorted(table.scan().to_arrow()["sequence"].to_pylist()) == list(range(rows + 6))
    folders = [path.parent.name.partition("=")[0] for path in sorted(target.rglob("*.parquet"), key=lambda it: it.name)]
    assert folders == ["date", "hour", "table", "hour", "date"]
    assert len(table.specs()) >= 3


def test_other_tables_keep_their_partitions(tmp_path: Path) -> None:
    replica, target = GrowingReplica(tmp_path / "replica").grow(3), str(tmp_path / "table")
    export(LocalTasks(), replica.url, target, partition_by="date")
    with pytest.raises(ConfigError, match="begun with partition_by='date', not with 'hour'"):
        export(LocalTasks(), replica.url, target, partition_by="hour")
