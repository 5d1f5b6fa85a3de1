"""A program restores a log in one call, from one replica or several."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import litelog

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


def sequences(folder: Path) -> list[int]:
    with litelog.LogReader(folder) as reader:
        return [record.sequence for record in reader]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "count"),
    [
        ({}, 10),
        ({"sequence": 3}, 4),
        ({"timestamp": NOON + timedelta(minutes=6)}, 7),
        ({"timestamp": 1_795_435_200_000_000}, 1),
    ],
)
def test_it_restores_up_to_a_point(backup: Path, tmp_path: Path, target: dict[str, Any], count: int) -> None:
    result = litelog.restore_log(backup, tmp_path / "restored", **target)
    assert (result.records, result.output) == (count, str(tmp_path / "restored"))
    assert sequences(tmp_path / "restored") == list(range(count))


@pytest.mark.slow
def test_a_dry_run_returns_the_plan_and_changes_nothing(backup: Path, tmp_path: Path) -> None:
    plan = litelog.restore_log(str(backup), tmp_path / "restored", dry_run=True)
    assert plan.size > 0
    assert not (tmp_path / "restored").exists()


@pytest.mark.slow
def test_an_existing_folder_stays_as_it_is(backup: Path, orders: Path) -> None:
    before = sorted((path.name, path.read_bytes()) for path in orders.iterdir())
    with pytest.raises(litelog.OutputExistsError, match="exists already; choose another output"):
        litelog.restore_log(backup, orders)
    assert sorted((path.name, path.read_bytes()) for path in orders.iterdir()) == before
    result = litelog.restore_log(backup, orders, delta=True)
    assert result.files == 1


@pytest.mark.slow
def test_of_several_replicas_those_that_cannot_be_read_are_skipped(
    backup: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        result = litelog.restore_log(["gopher://x", tmp_path / "nope", backup], tmp_path / "restored")
    assert result.replica == f"file://{backup}"
    assert "skipped gopher://x: no replica client for gopher://" in caplog.text
    assert f"skipped file://{tmp_path}/nope" in caplog.text


@pytest.mark.slow
def test_a_replica_config_names_a_replica(backup: Path, tmp_path: Path) -> None:
    replica = litelog.ReplicaConfig(url=str(backup))
    assert litelog.restore_log(replica, tmp_path / "one").records == 10
    assert litelog.restore_log([replica], tmp_path / "two").records == 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        {"sequence": 1, "timestamp": NOON},
        {"timestamp": NOON.replace(tzinfo=None)},
        {"generation": "latest"},
    ],
)
def test_wrong_arguments_are_refused(backup: Path, tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(litelog.ConfigError):
        litelog.restore_log(backup, tmp_path / "restored", **wrong)


@pytest.mark.slow
def test_nothing_to_restore_is_an_error(backup: Path, tmp_path: Path) -> None:
    with pytest.raises(litelog.ConfigError, match="at least one replica"):
        litelog.restore_log([], tmp_path / "restored")
    with pytest.raises(litelog.NothingToRestoreError):
        litelog.restore_log(tmp_path / "nope", tmp_path / "restored")
    with pytest.raises(litelog.ConfigError, match=r"nothing to restore from the others .* skipped gopher://x"):
        litelog.restore_log(["gopher://x", tmp_path / "nope"], tmp_path / "restored")
    with pytest.raises(litelog.UnknownSchemeError):
        litelog.restore_log("gopher://x", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


@pytest.mark.slow
def test_a_time_in_the_future_is_refused_as_by_the_command(backup: Path, tmp_path: Path) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    with pytest.raises(litelog.NothingToRestoreError, match="is in the future; the last records were shipped at"):
        litelog.restore_log(backup, tmp_path / "restored", timestamp=later)
    assert not (tmp_path / "restored").exists()


@pytest.mark.slow
def test_the_first_digits_of_a_generation_are_enough(backup: Path, tmp_path: Path) -> None:
    (name,) = (path.name for path in (backup / "generations").iterdir())
    assert litelog.restore_log(backup, tmp_path / "restored", generation=name[:9]).end.generation == name
    with pytest.raises(litelog.NothingToRestoreError, match="no generation begins with f"):
        litelog.restore_log(backup, tmp_path / "other", generation="f")
