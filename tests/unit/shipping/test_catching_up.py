"""A state folder was restored from a backup: the replica is ahead of it, and the log has lost its oldest files."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from litelog.errors import FencedError
from litelog.objects.layout import parse_snapshot, parse_wal
from litelog.shipping.context import Settings
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, restored
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import CountingStore
from tests.builders.verify_helper import found, verified

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.log_builder import LogBuilder

SETTINGS = Settings(max_segment_bytes=1 << 20, snapshot_segments=2)

BOTH_FORMATS = pytest.mark.parametrize("log", ["litelog", "lines"], indirect=True)


@pytest.fixture
def daemon(log: LogBuilder, tmp_path: Path) -> Daemon:
    return Daemon(log, MemoryStore("test"), str(tmp_path / "state"), clock=ManualClock(), settings=SETTINGS)


def ship(daemon: Daemon, segments: int) -> None:
    """Append a number of log segments, and ship each commit by itself."""
    for _ in range(segments):
        daemon.log.append(1)
        daemon.sync()
        daemon.log.roll(2)
        daemon.sync()


def go_back(daemon: Daemon, backup: Path) -> None:
    """Crash, and start with the state that was backed up."""
    daemon.crash()
    shutil.rmtree(daemon.state)
    shutil.copytree(backup, daemon.state)
    daemon.start()


def back_up(daemon: Daemon, tmp_path: Path) -> Path:
    daemon.replica.close()
    shutil.copytree(daemon.state, tmp_path / "backup")
    daemon.start()
    return tmp_path / "backup"


def truncate(log: LogBuilder, keep: int) -> None:
    """Remove all but the newest log segments."""
    for name in list(log.files())[:-keep]:
        os.unlink(log.path(name))


def delete_covered(daemon: Daemon, keep: int) -> None:
    """Remove WAL segments as their owner does after a snapshot covers them: all except the newest ones."""
    wal = [info.key for info in daemon.store.list("") if parse_wal(info.key) is not None]
    daemon.store.delete(wal[:-keep])


def go_on(daemon: Daemon, tmp_path: Path, generation: str) -> None:
    """Ship more, and check that the generation continues and holds everything."""
    daemon.sync()
    ship(daemon, 3)
    assert daemon.generation == generation
    whole = b"".join(restored(daemon.store, tmp_path / "out", daemon.log.format).values())
    assert whole == b"".join(daemon.log.texts.values())
    assert found(verified(daemon.store, daemon.log.format)) == []


@pytest.mark.slow
@BOTH_FORMATS
@pytest.mark.parametrize("middle", [False, True])
@pytest.mark.parametrize("segments", [1, 5])
def test_objects_after_the_position_of_an_older_state_are_adopted(
    daemon: Daemon, tmp_path: Path, middle: bool, segments: int
) -> None:
    daemon.sync()
    if middle:
        daemon.log.append(2)
        daemon.sync()
    backup, generation = back_up(daemon, tmp_path), None
    daemon.sync()
    generation = daemon.generation
    ship(daemon, segments)
    truncate(daemon.log, 1)
    go_back(daemon, backup)
    go_on(daemon, tmp_path, generation)


@pytest.mark.slow
@BOTH_FORMATS
@pytest.mark.parametrize("left", [1, 2, 4])
def test_a_snapshot_is_adopted_if_the_objects_it_covers_were_deleted(daemon: Daemon, tmp_path: Path, left: int) -> None:
    daemon.sync()
    backup = back_up(daemon, tmp_path)
    daemon.sync()
    generation = daemon.generation
    ship(daemon, 6)
    truncate(daemon.log, 1)
    delete_covered(daemon, left)
    go_back(daemon, backup)
    go_on(daemon, tmp_path, generation)


@pytest.mark.slow
def test_a_log_rewound_after_the_backup_diverges_at_the_end_of_the_replica(daemon: Daemon, tmp_path: Path) -> None:
    daemon.sync()
    backup = back_up(daemon, tmp_path)
    daemon.sync()
    generation = daemon.generation
    ship(daemon, 3)
    truncate(daemon.log, 1)
    daemon.log.truncate(len(daemon.log.texts[daemon.log.name]) - 5)
    go_back(daemon, backup)
    daemon.sync()
    assert daemon.generation != generation
    assert found(verified(daemon.store, daemon.log.format)) == []


def test_an_older_state_is_fenced_by_a_successor_though_its_log_was_truncated(daemon: Daemon, tmp_path: Path) -> None:
    daemon.sync()
    backup = back_up(daemon, tmp_path)
    daemon.sync()
    ship(daemon, 3)
    truncate(daemon.log, 1)
    daemon.crash()
    other = Daemon(daemon.log, daemon.store, str(tmp_path / "other"), clock=daemon.clock, takeover=True, seed=1)
    other.sync()
    go_back(daemon, backup)
    with pytest.raises(FencedError):
        daemon.sync()


def test_a_log_segment_that_was_never_shipped_is_still_missed(daemon: Daemon) -> None:
    """One listing shows that the replica is not ahead."""
    daemon.sync()
    generation = daemon.generation
    daemon.log.append(1)
    daemon.log.roll(1)
    truncate(daemon.log, 1)
    counting = CountingStore(daemon.store)
    daemon.store = counting
    daemon.restart()
    daemon.sync()
    assert daemon.generation != generation
    assert "vanished before all of it was shipped" in str(daemon.claims[-1].reason) or "jumps" in str(
        daemon.claims[-1].reason
    )


@BOTH_FORMATS
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_objects_lost_before_the_position_of_an_older_state_are_missed(
    daemon: Daemon, tmp_path: Path, lost: int
) -> None:
    for _ in range(3):
        daemon.log.append(1)
        daemon.sync()
    backup = back_up(daemon, tmp_path)
    daemon.sync()
    generation = daemon.generation
    for _ in range(2):
        daemon.log.append(1)
        daemon.sync()
    wal = [info.key for info in daemon.store.list("") if parse_wal(info.key) is not None]
    daemon.store.delete([wal[lost]])
    go_back(daemon, backup)
    daemon.sync()
    assert daemon.generation != generation
    daemon.log.append(1)
    daemon.sync()
    whole = b"".join(restored(daemon.store, tmp_path / "out", daemon.log.format).values())
    assert whole == b"".join(daemon.log.texts.values())


@pytest.mark.slow
@BOTH_FORMATS
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_snapshot_that_the_replica_lost_is_missed_by_an_older_state(
    daemon: Daemon, tmp_path: Path, is_kept: bool
) -> None:
    daemon.sync()
    ship(daemon, 3)  # seals, and puts a snapshot
    daemon.log.append(1)
    daemon.sync()
    backup = back_up(daemon, tmp_path)
    daemon.sync()
    generation = daemon.generation
    snapshots = [info.key for info in daemon.store.list("") if parse_snapshot(info.key) is not None]
    daemon.log.append(1)
    daemon.sync()
    daemon.store.delete(snapshots[-1:] if is_kept else snapshots)
    go_back(daemon, backup)
    daemon.sync()
    assert daemon.generation != generation
    whole = b"".join(restored(daemon.store, tmp_path / "out", daemon.log.format).values())
    assert whole == b"".join(daemon.log.texts.values())
