"""A daemon is ready after it has synced all existing logs. It waits for a log that does not exist, and reports that."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest

import litelog
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def state(tmp_path: Path) -> str:
    return str(tmp_path / "state")


def append(folder: Path) -> None:
    with litelog.LogWriter(folder, fsync="never") as writer:
        writer.append(b"x")


@pytest.mark.slow
def test_a_folder_that_does_not_exist_yet_does_not_keep_a_daemon_from_being_ready(
    tmp_path: Path, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "later"
    with caplog.at_level(logging.INFO), litelog.replicate(folder, tmp_path / "backup", state_dir=state) as replication:
        replicator = replication.replicator
        wait_until(replicator.is_ready)
        assert replicator.awaited_logs() == [str(folder)]
        assert not replicator.is_syncing_first()
        append(folder)
        assert replication.wait_synced()
        assert replicator.awaited_logs() == []
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    assert [line for line in lines if "waiting for" in line] == [f"waiting for {folder} to appear: no such folder"]
    assert not [line for line in lines if "in a row" in line]


@pytest.mark.slow
def test_the_other_logs_are_synced_before_it_is_ready(tmp_path: Path, state: str) -> None:
    append(tmp_path / "here")
    (tmp_path / "down").write_text("a file where a folder has to be")
    config = litelog.Config(
        logs=tuple(
            litelog.LogConfig(path=str(tmp_path / log), replicas=(litelog.ReplicaConfig(url=str(tmp_path / replica)),))
            for log, replica in (("here", "down/here"), ("later", "b"))
        )
    )
    with litelog.replicate(config, state_dir=state) as replication:
        wait_until(lambda: all(status.failures for status in replication.status))
        assert not replication.replicator.is_ready()
        os.unlink(tmp_path / "down")
        wait_until(replication.replicator.is_ready)
        assert replication.replicator.awaited_logs() == [str(tmp_path / "later")]


def test_a_daemon_that_ends_while_it_waits_for_a_folder_ends_well(tmp_path: Path, state: str) -> None:
    append(tmp_path / "here")
    config = litelog.Config(
        logs=tuple(
            litelog.LogConfig(
                path=str(tmp_path / log), replicas=(litelog.ReplicaConfig(url=str(tmp_path / "b" / log)),)
            )
            for log in ("here", "later")
        )
    )
    with litelog.replicate(config, state_dir=state) as replication:
        wait_until(replication.replicator.is_ready)
        append(tmp_path / "here")
    assert [status.phase for status in replication.status] == ["done", "done"]
    assert [status.sequence for status in replication.status] == [2, None]


@pytest.mark.slow
def test_a_folder_that_an_earlier_run_shipped_and_that_is_gone_is_no_good_end(tmp_path: Path, state: str) -> None:
    append(tmp_path / "log")
    with litelog.replicate(tmp_path / "log", tmp_path / "backup", state_dir=state) as replication:
        assert replication.wait_synced()
    os.rename(tmp_path / "log", tmp_path / "away")
    second = litelog.replicate(tmp_path / "log", tmp_path / "backup", state_dir=state)
    with pytest.raises(litelog.FinalSyncError, match="No such file"), second as replication:
        wait_until(replication.replicator.is_ready)
