"""Which replicas a fleet has, and how they are divided among tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from litelog.errors import ConfigError, NothingToRestoreError
from litelog.spark.fleet.replicas import REPLICA_BYTES, FleetReplica, balance, find_fleet
from litelog.stores.registry import open_store
from tests.builders.growing_replica import GrowingReplica

if TYPE_CHECKING:
    from collections.abc import Sequence


def make(folder: Path, *names: str) -> None:
    for name in names:
        GrowingReplica(folder / name).grow(3)


def names(found: Sequence[FleetReplica]) -> list[str]:
    return [replica.name for replica in found]


def test_a_pattern_finds_replicas_with_their_sizes(tmp_path: Path) -> None:
    make(tmp_path, "eu/orders", "eu/users", "us/orders", "other/deep/orders")
    (tmp_path / "eu" / "notes").mkdir()
    (tmp_path / "eu" / "notes" / "a.txt").write_text("x")
    found = find_fleet(f"{tmp_path}/*/orders", {})
    assert names(found) == ["eu/orders", "us/orders"]
    files = [path for path in (tmp_path / "eu" / "orders").rglob("*") if path.is_file()]
    assert (found[0].objects, found[0].bytes) == (len(files), sum(path.stat().st_size for path in files))
    assert [Path(replica.url) for replica in found] == [tmp_path / "eu/orders", tmp_path / "us/orders"]
    assert names(find_fleet([f"{tmp_path}/eu/*", f"{tmp_path}/eu/users"], {})) == ["orders", "users"]


def test_a_pattern_in_a_store_keeps_the_query_of_the_url() -> None:
    store = open_store("memory://fleet")
    store.put("a/epochs/00000001.json", [b"x"])
    store.put("b/c/epochs/00000001.json", [b"x"])
    found = find_fleet("memory://fleet/*", {})
    assert [(replica.url, replica.name) for replica in found] == [("memory://fleet/a", "a")]


def test_a_replica_that_is_named_is_one_even_if_nothing_is_there(tmp_path: Path) -> None:
    assert [(it.name, it.objects) for it in find_fleet([str(tmp_path / "none")], {})] == [("none", 0)]


def test_two_replicas_of_one_name_and_no_replica_are_refused(tmp_path: Path) -> None:
    make(tmp_path, "eu/orders", "us/orders")
    with pytest.raises(ConfigError, match="both have the name orders; do them in two jobs"):
        find_fleet([str(tmp_path / "eu/orders"), str(tmp_path / "us/orders")], {})
    with pytest.raises(NothingToRestoreError, match="no replica matches"):
        find_fleet(f"{tmp_path}/eu/x*", {})
    with pytest.raises(ConfigError, match="at least one"):
        find_fleet([], {})


def test_tasks_get_about_equal_bytes_and_the_largest_first() -> None:
    sizes = [10 * REPLICA_BYTES, 3 * REPLICA_BYTES, *[REPLICA_BYTES] * 9]
    fleet = [FleetReplica("", str(number), 1, size) for number, size in enumerate(sizes)]
    parts = balance(fleet, 3)
    loads = [sum(replica.bytes + REPLICA_BYTES for replica in part) for part in parts]
    assert loads == sorted(loads, reverse=True)
    assert max(loads) <= 12 * REPLICA_BYTES  # 11 would be equal
    assert any(part[0].bytes == 10 * REPLICA_BYTES for part in parts)
    assert sorted(replica.name for part in parts for replica in part) == sorted(replica.name for replica in fleet)
    assert [len(part) for part in balance(fleet[:2], 100)] == [1, 1]
