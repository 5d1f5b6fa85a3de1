"""After a failed sync, nothing reads the log until reads return what the disk holds."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from litelog.errors import SourceSyncError
from litelog.log.failed_syncs import FILE, FailedSyncs
from litelog.log.follower import Follower
from litelog.log.source_position import SourcePosition
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.log_following import LIMIT, collect, drain

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.manual_clock import ManualClock

BOOT, NEXT_BOOT = "boot 1", "boot 2"
FAILURE = OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    """A log of one log segment."""
    made = make_log(tmp_path / "log")
    made.roll(3)
    return made


@pytest.fixture
def state(tmp_path: Path) -> str:
    """The log's state folder."""
    folder = tmp_path / "state"
    folder.mkdir()
    return str(folder)


def fail(log: LogBuilder, state: str, path: str | None = None) -> FailedSyncs:
    """Have a sync of the newest log segment fail, or of ``path``."""
    path = path or log.path()
    failed = FailedSyncs(state, BOOT)
    error = failed.keep(path, os.stat(path).st_ino, FAILURE)
    assert str(error) == f"{path}: cannot be synced, so its bytes may not be durable: {FAILURE}"
    return failed


def follow(log: LogBuilder, clock: ManualClock, failed_syncs: FailedSyncs) -> Follower:
    return Follower(log.folder, log.format, SourcePosition(0, ""), clock, failed_syncs=failed_syncs)


def test_a_log_is_not_read_after_a_failed_sync_not_even_by_the_next_daemon(
    log: LogBuilder, state: str, clock: ManualClock
) -> None:
    """The new descriptors of the next run and of other replicas see success."""
    follower = follow(log, clock, FailedSyncs(state, BOOT))
    drain(follower)
    log.append(1)
    assert follower._current is not None
    good, follower._current._descriptor = follower._current._descriptor, os.open(log.folder, os.O_PATH)
    with pytest.raises(SourceSyncError, match="cannot be synced"):
        follower._current.sync(log.path())
    os.close(follower._current._descriptor)
    follower._current._descriptor = good
    with pytest.raises(SourceSyncError, match="could not be synced"):
        follower.next_run(LIMIT)
    follower.close()
    for _ in range(2):
        again = follow(log, clock, FailedSyncs(state, BOOT))
        with pytest.raises(SourceSyncError, match="until the machine is restarted") as caught:
            again.next_run(LIMIT)
        assert caught.value.path == log.path()
        assert os.path.join(state, FILE) in str(caught.value)
        again.close()


def test_a_restart_of_the_machine_shows_the_content_of_the_disk(
    log: LogBuilder, state: str, clock: ManualClock
) -> None:
    fail(log, state)
    follower = follow(log, clock, FailedSyncs(state, NEXT_BOOT))
    assert collect(drain(follower)) == log.files()
    follower.close()


@pytest.mark.parametrize("what", ["a log segment", "the folder"])
def test_a_file_that_was_replaced_by_a_copy_is_on_the_disk(
    log: LogBuilder, state: str, clock: ManualClock, what: str
) -> None:
    path = log.path() if what == "a log segment" else log.folder
    failed = fail(log, state, path)
    copy = shutil.copy if what == "a log segment" else shutil.copytree
    copy(path, path + "~")
    os.rename(path, path + ".gone")
    os.rename(path + "~", path)
    for each in (failed, FailedSyncs(state, BOOT)):
        follower = follow(log, clock, each)
        assert collect(drain(follower)) == log.files()
        follower.close()


def test_a_missing_file_delays_nothing_until_it_is_back(log: LogBuilder, state: str) -> None:
    failed = fail(log, state)
    os.rename(log.path(), log.path("away"))
    failed.require_none()
    os.rename(log.path("away"), log.path())
    with pytest.raises(SourceSyncError):
        failed.require_none()


def test_a_person_may_delete_the_record_of_a_failed_sync(log: LogBuilder, state: str) -> None:
    fail(log, state)
    os.unlink(os.path.join(state, FILE))
    FailedSyncs(state, BOOT).require_none()


def test_each_of_several_files_is_waited_for(log: LogBuilder, state: str) -> None:
    first = log.path()
    fail(log, state)
    log.roll(1)
    fail(log, state)
    os.unlink(first)
    with pytest.raises(SourceSyncError, match=log.name):
        FailedSyncs(state, BOOT).require_none()
    os.unlink(log.path())
    FailedSyncs(state, BOOT).require_none()


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 1, "checksum": 0, "failures": []}', b"[[[["])
def test_a_note_that_cannot_be_read_is_lost(
    log: LogBuilder, state: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    fail(log, state)
    with open(os.path.join(state, FILE), "wb") as file:
        file.write(content)
    FailedSyncs(state, BOOT).require_none()
    assert [record.event for record in caplog.records] == ["state-lost"]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_note_that_cannot_be_saved_is_reported_and_holds_in_this_process(
    log: LogBuilder, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(state)
    failed = fail(log, state)
    with pytest.raises(SourceSyncError):
        failed.require_none()
    (reported,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert reported.event == "state-not-kept"  # type: ignore[attr-defined]
    assert "restart the machine" in reported.getMessage()
