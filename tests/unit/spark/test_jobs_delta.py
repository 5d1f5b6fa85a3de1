"""Exports to Delta tables that other programs maintain, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("pyarrow")

from litelog.spark.jobs import export
from litelog.spark.jobs.local_tasks import LocalTasks
from tests.builders.growing_replica import GrowingReplica
from tests.builders.installed import needs
from tests.builders.keyed_replica import KeyedReplica, export_latest, latest, rows_of

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = needs("deltalake")


def open_table(target: Path) -> Any:
    """The Delta table of that folder."""
    from deltalake import DeltaTable

    return DeltaTable(str(target))


def maintain(target: Path) -> dict[str, Any]:
    """Compact a Delta table, and delete all files that it no longer names."""
    table = open_table(target)
    done = table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    return cast("dict[str, Any]", done)


@pytest.mark.slow
def test_a_table_that_was_compacted_and_vacuumed_is_continued(tmp_path: Path) -> None:
    replica, target = GrowingReplica(tmp_path / "replica"), tmp_path / "table"
    for counts in ([3, 4], [2], [5]):
        replica.grow(*counts)
        assert export(LocalTasks(), replica.url, str(target), table="delta").runs == 1
    assert maintain(target)["numFilesRemoved"] >= 3
    assert len(list(target.glob("*.parquet"))) == 1
    replica.grow(6)
    assert export(LocalTasks(), replica.url, str(target), table="delta").rows == 6
    assert export(LocalTasks(), replica.url, str(target), table="delta").runs == 0
    rows = open_table(target).to_pyarrow_table().column("sequence").to_pylist()
    assert sorted(rows) == list(range(20))


@pytest.mark.slow
def test_a_latest_by_key_table_that_was_vacuumed_is_continued(tmp_path: Path) -> None:
    replica, target = KeyedReplica(tmp_path / "replica"), tmp_path / "table"
    for _ in range(3):
        replica.add(2)
        assert export_latest(replica.url, str(target)) == 1
        maintain(target)
        assert rows_of(target) == latest(replica.next)
