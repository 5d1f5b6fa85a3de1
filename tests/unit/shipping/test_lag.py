"""Lag: the bytes in the folder after the acknowledged place, and their age, independent of the threads that ship."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from litelog.log.source_position import SourcePosition
from litelog.objects.position import Generation
from litelog.shipping.lag import IDLE_LOOK_SECONDS, MAX_MARKS, SAMPLES, Lag, LagHistory, LagMeter, SourceEnd
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock

if TYPE_CHECKING:
    from pathlib import Path


class Measured:
    """A log, and the lag of a replica whose place a test sets."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.log: LogBuilder = make_log(folder, "raw")
        self.source = SourceEnd(self.log.folder, self.log.format, self.clock)
        self.place: SourcePosition | None = None
        self.caught_up = float("-inf")
        self.meter = LagMeter(self.source, lambda: None if self.place is None else (Generation("1"), self.place))

    def acknowledge(self) -> None:
        """Set the place to the log's end."""
        self.place = SourcePosition(0, self.log.name, offset=os.path.getsize(self.log.path()))

    def catch_up(self) -> None:
        """Record that a look that begins now finds nothing to ship."""
        self.caught_up = self.clock.monotonic()

    def look(self) -> Lag:
        self.clock.advance(1)
        self.source.look()
        return self.meter.read(self.clock.monotonic(), self.caught_up)


@pytest.fixture
def measured(tmp_path: Path) -> Measured:
    made = Measured(tmp_path / "log")
    made.log.roll(1, size=100)
    return made


def test_before_the_first_sync_all_of_the_log_is_lag(measured: Measured) -> None:
    measured.log.roll(1, size=50)
    assert measured.look() == Lag(150, 0)
    assert measured.look() == Lag(150, 1)


def test_acknowledged_bytes_do_not_lag_and_the_age_is_that_of_the_oldest_bytes(measured: Measured) -> None:
    measured.acknowledge()
    assert measured.look() == Lag(0, 0)
    measured.log.append(1, size=7)
    assert measured.look() == Lag(7, 0)
    measured.log.append(1, size=8)
    assert measured.look() == Lag(15, 1)
    measured.place = SourcePosition(0, measured.log.name, offset=107)
    assert measured.look() == Lag(8, 1)  # these were seen a second later
    measured.acknowledge()
    assert measured.look() == Lag(0, 0)


def test_newer_log_segments_count_and_older_ones_do_not(measured: Measured) -> None:
    measured.acknowledge()
    first = measured.log.name
    measured.log.roll(1, size=20)
    measured.log.roll(1, size=30)
    assert measured.look() == Lag(50, 0)
    measured.place = SourcePosition(1, "", finished=first, finished_end=100)  # finished, and the next one is not begun
    assert measured.look() == Lag(50, 1)
    measured.acknowledge()
    assert measured.look() == Lag(0, 0)
    os.unlink(measured.log.path(first))
    measured.log.append(1, size=3)
    assert measured.look() == Lag(3, 0)


def test_a_tail_that_is_not_a_whole_commit_is_lag_until_somebody_looked_at_it(measured: Measured) -> None:
    measured.acknowledge()
    measured.log.write(b"half")
    assert measured.look() == Lag(4, 0)
    measured.catch_up()
    assert measured.look() == Lag(0, 0)
    measured.clock.advance(3600)
    measured.log.write(b" and more")
    assert measured.look() == Lag(13, 0)  # the torn half is not an hour of lag


def test_a_file_that_is_written_in_place_is_lag_until_somebody_looked(measured: Measured) -> None:
    measured.log.write(bytes(1000))
    measured.place = SourcePosition(0, measured.log.name, offset=100)
    measured.look()
    measured.catch_up()
    assert measured.look() == Lag(0, 0)
    measured.log.overwrite(100, b"x" * 10)
    os.utime(measured.log.path(), ns=(0, os.stat(measured.log.path()).st_mtime_ns + 1))
    assert measured.look().bytes == 1000
    measured.catch_up()
    assert measured.look() == Lag(0, 0)


def test_a_look_that_began_before_the_bytes_came_proves_nothing(measured: Measured) -> None:
    measured.acknowledge()
    measured.catch_up()
    measured.log.append(1, size=9)
    measured.look()
    assert measured.look() == Lag(9, 1)


def test_a_folder_that_is_gone_is_reported_and_the_lag_stays(measured: Measured) -> None:
    measured.acknowledge()
    measured.log.append(1, size=9)
    measured.look()
    shutil.rmtree(measured.log.folder)
    assert measured.look() == Lag(9, 1)
    assert measured.source.error is not None
    assert "no such folder" in measured.source.error


def test_a_folder_that_is_back_is_soon_seen_to_be_so(measured: Measured) -> None:
    """Also for an idle log: an error that has passed does not stay in reports for another half minute."""
    measured.acknowledge()
    measured.catch_up()

    def seen() -> str | None:
        measured.clock.advance(1)
        measured.meter.measure_if_due(measured.clock.monotonic(), measured.clock.monotonic(), busy=False)
        return measured.source.error

    assert [seen() for _ in range(3)] == [None] * 3
    os.rename(measured.log.folder, f"{measured.log.folder}-moved")
    while seen() is None:
        pass
    os.rename(f"{measured.log.folder}-moved", measured.log.folder)
    assert seen() is None


@pytest.mark.slow
def test_memory_is_bounded_and_the_reported_age_is_never_too_low(measured: Measured) -> None:
    measured.acknowledge()
    start, count, ends = measured.clock.monotonic(), 10 * MAX_MARKS, []
    for _ in range(count):
        ends.append(os.path.getsize(measured.log.path()))
        measured.log.append(1, size=2)
        measured.look()
    assert measured.look().seconds == measured.clock.monotonic() - start - 1
    assert len(measured.meter._marks) <= MAX_MARKS
    measured.place = SourcePosition(0, measured.log.name, offset=ends[count // 2])
    true_age = count // 2 + 1
    assert true_age <= measured.look().seconds < 1.1 * true_age
    newest = measured.source.view.seen
    measured.caught_up = newest - 0.5  # before the newest bytes came
    assert measured.look().bytes > 0
    measured.caught_up = newest
    assert measured.look() == Lag(0, 0)


def test_an_idle_log_is_looked_at_now_and_then_and_a_busy_one_each_second(measured: Measured) -> None:
    measured.acknowledge()

    def seen(seconds: float, *, busy: bool) -> int:
        measured.clock.advance(seconds)
        measured.meter.measure_if_due(measured.clock.monotonic(), measured.caught_up, busy=busy)
        return measured.meter.read(measured.clock.monotonic(), measured.caught_up).bytes

    for _ in range(3):
        seen(IDLE_LOOK_SECONDS, busy=False)
    measured.log.append(1, size=5)
    assert seen(1, busy=False) == 0
    assert seen(1, busy=True) == 5
    measured.log.append(1, size=5)
    assert seen(1, busy=False) == 10  # it changed a moment ago


def test_the_history_keeps_the_last_hour_and_no_more() -> None:
    history = LagHistory()
    for second in range(2 * 3600):
        history.add_if_due(float(second), Lag(second, second / 2))
    samples = history.read()
    assert len(samples) == SAMPLES
    assert [time for time, _, _ in samples] == [float(10 * n) for n in range(360, 720)]
    assert all((seconds, size) == (time / 2, time) for time, seconds, size in samples)


@pytest.mark.slow
def test_the_history_of_an_idle_log_is_no_longer_than_an_hour() -> None:
    history = LagHistory()
    for time in range(0, 7200, 30):
        history.add_if_due(float(time), Lag(0, 0))
    assert [time for time, _, _ in history.read()] == [float(time) for time in range(3600, 7200, 30)]
