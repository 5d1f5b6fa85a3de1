"""A copy replaces a log's folder while its daemon runs: the daemon ships log segments that the copy brings back."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from litelog.errors import SourceMissingError
from litelog.objects.claim import Relation
from litelog.shipping.context import Settings, SnapshotPolicy
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, restored
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import CountingStore
from tests.builders.verify_helper import found, verified

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = Settings(max_segment_bytes=1 << 20, snapshot_segments=1, snapshot_policy=SnapshotPolicy.MIRROR)

BOTH_FORMATS = pytest.mark.parametrize("log", ["litelog", "lines"], indirect=True)


@pytest.fixture
def log(request: pytest.FixtureRequest, tmp_path: Path) -> LogBuilder:
    made = make_log(tmp_path / "log", getattr(request, "param", "litelog"))
    for _ in range(4):
        made.roll(3)
    return made


@pytest.fixture
def daemon(log: LogBuilder, tmp_path: Path) -> Daemon:
    """A daemon that mirrors a log, whose oldest log segments were truncated after a copy was made of it."""
    made = Daemon(log, MemoryStore("test"), str(tmp_path / "state"), clock=ManualClock(), settings=SETTINGS)
    made.sync()
    shutil.copytree(log.folder, tmp_path / "copy")
    for name in list(log.files())[:2]:
        log.delete(name)
    for _ in range(2):
        log.roll(1)
        made.sync()
    for name in list(log.files())[2:]:
        shutil.copy2(log.path(name), tmp_path / "copy" / name)
    assert list(restored(made.store, tmp_path / "before", log.format)) == list(log.files()), (
        "the mirror has dropped what the log has"
    )
    made.clock.advance(10)
    made.sync()
    return made


def replace_folder(log: LogBuilder, copy: Path) -> None:
    """Put the copy in the log's place, with the same time of change."""
    status = os.stat(log.folder)
    os.rename(log.folder, f"{log.folder}.old")
    os.rename(copy, log.folder)
    os.utime(log.folder, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.slow
@BOTH_FORMATS
def test_a_replaced_folder_begins_a_generation_that_holds_all_of_its_files(
    daemon: Daemon, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = daemon.generation
    assert not daemon.replica.changed()
    replace_folder(daemon.log, tmp_path / "copy")
    assert daemon.replica.changed()
    daemon.sync()
    assert daemon.generation != before
    assert daemon.claims[-1].relation is Relation.CONTINUES
    assert "the log's folder was restored or replaced; a new generation begins" in caplog.text
    assert restored(daemon.store, tmp_path / "out", daemon.log.format) == daemon.log.files()
    assert len(daemon.log.files()) == 6
    assert found(verified(daemon.store, daemon.log.format, against=daemon.log.folder)) == []


@pytest.mark.slow
@BOTH_FORMATS
@pytest.mark.parametrize("takeover", [False, True])
def test_log_segments_before_the_first_that_a_replica_had_are_shipped(
    log: LogBuilder, tmp_path: Path, takeover: bool
) -> None:
    """The replica began without them. If the log has no sequences, the replica numbered the later records from 0."""
    store = MemoryStore("test")
    shutil.copytree(log.folder, tmp_path / "copy")
    log.delete(next(iter(log.files())))
    daemon = Daemon(log, store, str(tmp_path / "state"), backlog_sealer=True, settings=SETTINGS)
    daemon.sync()
    replace_folder(log, tmp_path / "copy")
    if takeover:
        daemon.close()
        daemon = Daemon(
            log, store, str(tmp_path / "other"), takeover=True, backlog_sealer=True, settings=SETTINGS, seed=1
        )
    daemon.sync()
    assert len(log.files()) == 4
    assert restored(store, tmp_path / "out", log.format) == log.files()
    numbered = log.format.self_numbered
    assert daemon.claims[-1].relation is (Relation.CONTINUES if numbered else Relation.DIVERGED)
    assert ("have new numbers" in (daemon.claims[-1].reason or "")) is not numbered
    assert found(verified(store, log.format, against=log.folder)) == []


@pytest.mark.slow
def test_a_sealed_segment_whose_records_have_other_numbers_now_is_sealed_again(tmp_path: Path) -> None:
    """Its bytes are the same, and the log segment before it was replaced by one with more records."""
    log = make_log(tmp_path / "log", "lines")
    for _ in range(4):
        log.roll(3)
    store = MemoryStore("test")
    daemon = Daemon(log, store, str(tmp_path / "state"), backlog_sealer=True, settings=SETTINGS)
    daemon.sync()
    first = next(iter(log.files()))
    log.replace(log.files()[first] + b"more\n", first)
    replace_folder(log, shutil.copytree(log.folder, tmp_path / "copy"))
    daemon.sync()
    assert restored(store, tmp_path / "out", log.format) == log.files()
    assert found(verified(store, log.format, against=log.folder)) == []


@pytest.mark.slow
@pytest.mark.parametrize("while_down", [False, True])
def test_log_segments_that_come_back_into_the_same_folder_are_shipped_again(
    daemon: Daemon, tmp_path: Path, while_down: bool
) -> None:
    before = daemon.generation
    if while_down:
        daemon.replica.close()
    for name in os.listdir(tmp_path / "copy"):
        if not os.path.exists(daemon.log.path(name)):
            shutil.copy2(tmp_path / "copy" / name, daemon.log.path(name))
    if while_down:
        daemon.start()
    assert daemon.replica.changed()
    daemon.sync()
    assert daemon.generation != before
    assert daemon.claims[-1].relation is Relation.CONTINUES
    assert restored(daemon.store, tmp_path / "out", daemon.log.format) == daemon.log.files()
    assert len(daemon.log.files()) == 6


def test_an_empty_folder_in_the_place_of_the_log_is_waited_for(daemon: Daemon) -> None:
    """As if a disk were not mounted: when the log is back, it is in the same folder."""
    before = daemon.generation
    os.rename(daemon.log.folder, f"{daemon.log.folder}.away")
    os.mkdir(daemon.log.folder)
    with pytest.raises(SourceMissingError):
        daemon.sync()
    os.rmdir(daemon.log.folder)
    os.rename(f"{daemon.log.folder}.away", daemon.log.folder)
    daemon.log.append(1)
    daemon.sync()
    assert daemon.generation == before


@pytest.mark.slow
def test_a_replaced_folder_that_holds_another_history_diverges(daemon: Daemon, tmp_path: Path) -> None:
    replace_folder(daemon.log, tmp_path / "copy")
    newest = list(daemon.log.files())[-1]
    daemon.log.overwrite(len(daemon.log.files()[newest]) - 3, b"XXX", newest)
    os.unlink(daemon.log.path(newest))
    daemon.sync()
    assert daemon.claims[-1].relation is Relation.DIVERGED
    assert restored(daemon.store, tmp_path / "out", daemon.log.format) == daemon.log.files()


@pytest.mark.slow
def test_a_look_at_an_idle_log_costs_no_request(daemon: Daemon) -> None:
    daemon.store = CountingStore(daemon.store)
    daemon.restart()
    daemon.sync()
    before = daemon.store.total()
    for _ in range(100):
        daemon.clock.advance(1)
        assert not daemon.replica.changed()
    assert daemon.store.total() == before
