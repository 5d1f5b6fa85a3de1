"""A program verifies a replica in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import litelog

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_a_whole_replica_is_sound(backup: Path, orders: Path) -> None:
    report = litelog.verify_replica(backup, against=orders)
    assert report.is_sound
    assert report.against is not None
    assert report.against.files == 1


@pytest.mark.slow
def test_damage_is_in_the_report(backup: Path) -> None:
    (path,) = backup.glob("generations/*/wal/*/*.wal.lz4")
    path.write_bytes(path.read_bytes()[:-1])
    report = litelog.verify_replica(str(backup))
    assert not report.is_sound
    assert [anomaly.key for anomaly in report.anomalies] == [str(path.relative_to(backup))]


@pytest.mark.slow
def test_a_sample_states_its_seed(backup: Path) -> None:
    assert litelog.verify_replica(backup, sample=0.5, seed=7).seed == 7
    with pytest.raises(ValueError, match="a share is from 0 to 1"):
        litelog.verify_replica(backup, sample=5)


@pytest.mark.slow
def test_a_place_without_a_replica_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(litelog.NoReplicaError, match="nope"):
        litelog.verify_replica(tmp_path / "nope")
