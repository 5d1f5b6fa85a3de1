"""Logs of other programs: log segments that are packed in place, side files, and finished log segments that change."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from litelog.errors import CorruptCommitError, CorruptObjectError
from litelog.formats.litelog import LitelogFormat
from litelog.objects import snapshot as snapshots
from litelog.objects.side_files import MAX_SIDE_FILE_BYTES, SideFile
from litelog.shipping.context import Settings
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, newest_snapshot, restored
from tests.builders.foreign_format import CompactedFormat, ForeignFormat, make_foreign, pack, write_side_file
from tests.builders.manual_clock import ManualClock
from tests.builders.verify_helper import found, verified

if TYPE_CHECKING:
    from pathlib import Path

    from tests.builders.log_builder import LogBuilder

EACH_SEAL = Settings(max_segment_bytes=1 << 20, snapshot_segments=1)


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    made = make_foreign(tmp_path / "log")
    for _ in range(3):
        made.roll(4)
    return made


def ship(log: LogBuilder, tmp_path: Path, *, backlog_sealer: bool = False) -> Daemon:
    daemon = Daemon(
        log,
        MemoryStore("test"),
        str(tmp_path / "state"),
        clock=ManualClock(),
        settings=EACH_SEAL,
        backlog_sealer=backlog_sealer,
    )
    daemon.sync()
    return daemon


def keys(daemon: Daemon) -> set[str]:
    return {info.key for info in daemon.store.list("")}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("packed", [slice(1), slice(2)])
def test_a_log_segment_that_is_packed_in_place_is_not_shipped_again(
    log: LogBuilder, tmp_path: Path, restarts: bool, packed: slice
) -> None:
    daemon = ship(log, tmp_path)
    before, generation = keys(daemon), daemon.generation
    for name in list(log.texts)[packed]:
        pack(log, name)
    if restarts:
        daemon.restart()
    daemon.sync()
    assert (keys(daemon), daemon.generation) == (before, generation)
    log.append(2)
    daemon.sync()
    assert daemon.generation == generation
    assert restored(daemon.store, tmp_path / "out", log.format) == log.texts
    report = verified(daemon.store, log.format, against=log.folder)
    assert found(report) == []
    assert report.against is not None
    assert report.against.files == 3


def test_a_packed_log_segment_is_as_long_as_its_content(tmp_path: Path) -> None:
    """After a rewind the daemon checks that the log still reaches what it shares with its predecessor."""
    log = make_foreign(tmp_path / "log")
    for _ in range(3):
        log.roll(4, size=500)
    newest = log.name
    daemon = ship(log, tmp_path)
    log.truncate(len(log.texts[newest]) - len(log.commit(500)))
    log.next -= 2
    log.write(log.commit(500, tag=b"another"))
    log.roll(1)
    pack(log, newest)
    daemon.sync()
    assert len(daemon.claims) == 2
    assert restored(daemon.store, tmp_path / "out", log.format) == log.texts


def test_packed_log_segments_are_shipped_as_they_were_before(log: LogBuilder, tmp_path: Path) -> None:
    for name in list(log.texts)[:2]:
        pack(log, name)
    daemon = ship(log, tmp_path, backlog_sealer=True)
    assert len(newest_snapshot(daemon).segments) == 2
    assert restored(daemon.store, tmp_path / "out", log.format) == log.texts
    assert found(verified(daemon.store, log.format, against=log.folder)) == []


def test_a_packed_log_segment_that_is_damaged_is_named(log: LogBuilder, tmp_path: Path) -> None:
    name = next(iter(log.texts))
    log.replace(b"packed\nnothing", name)
    with pytest.raises(CorruptCommitError, match=f"{name}: corrupt commit at offset 7: packed bytes"):
        ship(log, tmp_path)


def test_each_snapshot_holds_the_side_files_of_its_time(log: LogBuilder, tmp_path: Path) -> None:
    write_side_file(log, "table", b"first")
    write_side_file(log, "other", b"not a side file")
    daemon = ship(log, tmp_path)
    assert newest_snapshot(daemon).side_files == (SideFile("table", b"first"),)
    write_side_file(log, "table", b"second")
    write_side_file(log, "leader", b"\0\xff")
    log.roll(1)
    daemon.sync()
    log.roll(1)
    daemon.sync()
    side_files = {"leader": b"\0\xff", "table": b"second"}
    assert newest_snapshot(daemon).side_files == tuple(SideFile(*item) for item in side_files.items())
    assert restored(daemon.store, tmp_path / "out", log.format) == log.texts | side_files
    assert found(verified(daemon.store, log.format, against=log.folder)) == []


@pytest.mark.parametrize("case", ["large", "pipe", "link", "many"])
def test_a_side_file_that_cannot_be_captured_is_reported_and_skipped(
    log: LogBuilder, tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    if case == "large":
        write_side_file(log, "table", bytes(MAX_SIDE_FILE_BYTES + 1))
    elif case == "pipe":
        os.mkfifo(log.path("table"))
    elif case == "link":
        os.symlink("/etc/hostname", log.path("table"))
    else:
        os.mkdir(log.path("table"))
    write_side_file(log, "leader", b"kept")
    daemon = ship(log, tmp_path)
    assert newest_snapshot(daemon).side_files == (SideFile("leader", b"kept"),)
    assert "side file table is not replicated" in caplog.text
    assert restored(daemon.store, tmp_path / "out", log.format) == log.texts | {"leader": b"kept"}


@pytest.mark.parametrize("name", ["passwd", "00000000000000000000.log", ".."])
def test_a_restore_refuses_names_that_are_not_side_files(log: LogBuilder, tmp_path: Path, name: str) -> None:
    write_side_file(log, "table", b"first")
    daemon = ship(log, tmp_path)
    newest = newest_snapshot(daemon)
    body = snapshots.encode(replace(newest, side_files=(SideFile(name, b"x"),)))
    daemon.store.delete([newest.key])
    daemon.store.put(newest.key, [body])
    with pytest.raises(CorruptObjectError, match="is not the name of a side file"):
        restored(daemon.store, tmp_path / "out", log.format)
    assert not (tmp_path / "out").exists()


def rewrite(log: LogBuilder, name: str) -> None:
    """Replace a finished log segment by one with fewer commits."""
    log.replace(log.texts[name][: len(log.texts[name]) * 2 // 3], name)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("change", [rewrite, lambda log, name: log.delete(name)], ids=["rewritten", "removed"])
def test_a_finished_log_segment_may_change_where_its_writer_compacts(
    tmp_path: Path, restarts: bool, change: object
) -> None:
    log = make_foreign(tmp_path / "log", CompactedFormat())
    for _ in range(3):
        log.roll(4)
    daemon = ship(log, tmp_path)
    shipped, generation = dict(log.texts), daemon.generation
    change(log, list(shipped)[1])  # type: ignore[operator]
    if restarts:
        daemon.restart()
    log.append(2)
    daemon.sync()
    log.roll(1)
    daemon.sync()
    assert daemon.generation == generation
    kept = list(shipped)[:2]
    assert {name: shipped[name] for name in kept} == {
        name: restored(daemon.store, tmp_path / "out", log.format)[name] for name in kept
    }
    report = verified(daemon.store, log.format, against=log.folder)
    assert found(report) == []
    assert report.against is not None
    assert [(each.file, each.reason) for each in report.against.not_compared] == [(kept[1], "rewritten")]


def test_the_oldest_log_segment_may_be_missing_while_its_writer_swaps_it(tmp_path: Path) -> None:
    log = make_foreign(tmp_path / "log", CompactedFormat())
    for _ in range(3):
        log.roll(4)
    daemon = ship(log, tmp_path)
    generation, oldest = daemon.generation, next(iter(log.texts))
    body = log.texts[oldest]
    os.rename(log.path(oldest), log.path("swapped"))
    log.append(1)
    daemon.sync()
    os.rename(log.path("swapped"), log.path(oldest))
    log.append(1)
    daemon.sync()
    assert daemon.generation == generation
    assert restored(daemon.store, tmp_path / "out", log.format) == {**log.texts, oldest: body}


@pytest.mark.parametrize("log_format", [ForeignFormat, LitelogFormat])
def test_a_finished_log_segment_that_changes_begins_a_generation_elsewhere(
    tmp_path: Path, log_format: type[LitelogFormat], caplog: pytest.LogCaptureFixture
) -> None:
    log = make_foreign(tmp_path / "log", log_format())
    for _ in range(3):
        log.roll(4)
    daemon = ship(log, tmp_path)
    rewrite(log, list(log.texts)[1])
    with pytest.raises(CorruptCommitError, match=list(log.texts)[1]):
        daemon.sync()
    assert "was changed after it was finished; a new generation begins" in caplog.text
