"""The watermark of a log: what its writer may still take back is not shipped."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from litelog.errors import SourceError
from litelog.formats import Expectation
from litelog.formats.capabilities import watermark_file
from litelog.log.watermark import MAX_BYTES, find_watermark
from litelog.shipping.context import LogSource, Settings
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, newest_snapshot, restored
from tests.builders.foreign_format import ForeignFormat, WatermarkedFormat, make_foreign, write_watermark
from tests.builders.log_builder import LOG_ID
from tests.builders.manual_clock import ManualClock
from tests.builders.verify_helper import found, verified

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.log_builder import LogBuilder

COMMITS = 4


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    """Three log segments of four commits with a record each."""
    made = make_foreign(tmp_path / "log", WatermarkedFormat())
    for _ in range(3):
        made.roll(COMMITS)
    return made


def ship(log: LogBuilder, tmp_path: Path, *, backlog_sealer: bool = False, limit: int = 1 << 20) -> Daemon:
    source = LogSource(log.folder, log.format, watermark=find_watermark(log.folder, log.format))
    settings = Settings(max_segment_bytes=limit, snapshot_segments=1)
    daemon = Daemon(
        log,
        MemoryStore("test"),
        str(tmp_path / "state"),
        clock=ManualClock(),
        source=source,
        settings=settings,
        backlog_sealer=backlog_sealer,
    )
    daemon.sync()
    return daemon


def records_in(daemon: Daemon, tmp_path: Path) -> int:
    """How many records the replica holds. They are the log's first ones."""
    files = restored(daemon.store, tmp_path / "out", daemon.log.format)
    for name, data in files.items():
        assert daemon.log.texts[name].startswith(data)
    return daemon.acknowledged[-1].header.next if daemon.acknowledged else len(files) * COMMITS


@pytest.mark.parametrize("backlog_sealer", [False, True])
@pytest.mark.parametrize("mark", [1, 3, 4, 5, 8, 11, 12, 13, "all"])
def test_only_records_before_the_watermark_are_shipped(
    log: LogBuilder, tmp_path: Path, mark: int | str, backlog_sealer: bool
) -> None:
    write_watermark(log, mark)
    daemon = ship(log, tmp_path, backlog_sealer=backlog_sealer)
    expected = 12 if mark == "all" else min(int(mark), 12)
    assert records_in(daemon, tmp_path) == expected
    assert (daemon.replica.withheld_by is not None) is (expected < 12)
    assert found(verified(daemon.store, log.format, against=log.folder)) == []


@pytest.mark.parametrize("backlog_sealer", [False, True])
def test_nothing_is_shipped_before_the_writer_states_a_watermark(
    log: LogBuilder, tmp_path: Path, backlog_sealer: bool
) -> None:
    daemon = ship(log, tmp_path, backlog_sealer=backlog_sealer)
    assert (daemon.acknowledged, daemon.sealed_events) == ([], [])
    assert daemon.replica.withheld_by == watermark_file(log.format, log.folder)
    assert newest_snapshot(daemon).segments == ()


def test_a_watermark_that_moves_is_a_change_of_the_log(log: LogBuilder, tmp_path: Path) -> None:
    write_watermark(log, 2)
    daemon = ship(log, tmp_path)
    for mark in (3, 9, 12):
        daemon.sync()  # the look after the last change
        assert not daemon.replica.changed()
        write_watermark(log, mark)
        assert daemon.replica.changed()
        daemon.sync()
        assert records_in(daemon, tmp_path) == mark
    assert restored(daemon.store, tmp_path / "out", log.format) == log.texts


def test_a_watermark_is_not_looked_at_while_nothing_is_after_it(log: LogBuilder, tmp_path: Path) -> None:
    write_watermark(log, 12)
    daemon = ship(log, tmp_path)
    daemon.sync()  # the look after the last change
    assert daemon.replica.withheld_by is None
    write_watermark(log, 13)
    assert not daemon.replica.changed()
    log.append(2)
    daemon.sync()
    assert (records_in(daemon, tmp_path), daemon.replica.withheld_by is None) == (13, False)


def test_records_that_are_taken_back_before_they_were_shipped_begin_no_generation(
    log: LogBuilder, tmp_path: Path
) -> None:
    write_watermark(log, 9)
    daemon = ship(log, tmp_path)
    generation = daemon.generation
    commits = log.format.commits(log.name, memoryview(log.texts[log.name]), 0, Expectation(8))
    log.truncate(commits[0].end)
    log.next = 9
    log.append(3, size=20)
    write_watermark(log, 12)
    daemon.sync()
    assert daemon.generation == generation
    assert restored(daemon.store, tmp_path / "out", log.format) == log.texts


def test_without_its_watermark_all_of_a_log_is_shipped(log: LogBuilder, tmp_path: Path) -> None:
    write_watermark(log, 2)
    daemon = Daemon(log, MemoryStore("test"), str(tmp_path / "state"))
    daemon.sync()
    assert restored(daemon.store, tmp_path / "out", log.format) == log.texts
    assert log.format.log_id(log.name, memoryview(log.texts[log.name])) == LOG_ID


def test_writers_of_other_formats_state_no_watermark(tmp_path: Path) -> None:
    assert find_watermark(str(tmp_path), ForeignFormat()) is None


@pytest.mark.parametrize("case", ["text", "large", "pipe", "folder"])
def test_a_file_that_states_no_watermark_is_named(log: LogBuilder, case: str) -> None:
    watermark = find_watermark(log.folder, log.format)
    assert watermark is not None
    if case == "pipe":
        os.mkfifo(watermark.path)
    elif case == "folder":
        os.mkdir(watermark.path)
    else:
        write_watermark(log, "twelve" if case == "text" else "1" * (MAX_BYTES + 1))
    with pytest.raises(SourceError, match=r"log\.watermark: cannot be read as a watermark"):
        watermark.read()
