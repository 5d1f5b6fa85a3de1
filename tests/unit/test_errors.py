"""Each error has the right class, and ends a command with the right exit code."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import pytest

from litelog.errors import (
    CorruptionError,
    ExitCode,
    FencedError,
    LockedError,
    ReplicaLockedError,
    UnknownVersionError,
)
from litelog.log.writer import LogWriter
from litelog.restore.output import OutputFolder
from litelog.shipping.state import StateFolder

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_in_use_is_not_a_fence_and_a_service_may_start_again(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path / "log")), pytest.raises(LockedError) as caught:
        LogWriter(str(tmp_path / "log"))
    assert not isinstance(caught.value, FencedError)
    assert caught.value.exit_code is ExitCode.FAILURE


def test_a_second_restore_into_one_folder_is_not_fenced(tmp_path: Path) -> None:
    left = tmp_path / ".out.litelog-restoring"
    left.mkdir()
    held = os.open(left, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(LockedError) as caught, OutputFolder(str(tmp_path / "out")):
            pass
    finally:
        os.close(held)
    assert caught.value.exit_code is ExitCode.FAILURE


def test_a_replica_that_a_daemon_on_this_host_has_is_fenced(tmp_path: Path) -> None:
    with StateFolder(str(tmp_path), "one"), pytest.raises(ReplicaLockedError) as caught:
        StateFolder(str(tmp_path), "two")
    assert isinstance(caught.value, FencedError)
    assert caught.value.exit_code is ExitCode.FENCED


@pytest.mark.slow
def test_data_of_a_newer_litelog_is_not_corrupt() -> None:
    error = UnknownVersionError("key", "footer", 1, 2)
    assert not isinstance(error, CorruptionError)
    assert error.exit_code is ExitCode.FAILURE
    assert str(error) == "key: version of its footer is 2, expected 1: read it with the litelog that wrote it"
