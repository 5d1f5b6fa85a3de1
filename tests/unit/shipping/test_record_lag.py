"""Lag in records: the sequences of whole commits after a position, in logs of all formats, as they grow."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from litelog.formats import Expectation
from litelog.formats.registry import open_format
from litelog.log.failed_syncs import FailedSyncs
from litelog.log.source import open_segment
from litelog.log.source_position import SourcePosition
from litelog.objects.position import Generation
from litelog.shipping.lag import LagMeter, SourceEnd
from litelog.shipping.record_lag import PendingRecords
from litelog.system.clock import SystemClock
from tests.builders.log_builder import make_log
from tests.builders.manual_clock import ManualClock
from tests.builders.recorded_logs import unpack
from tests.builders.redis_log import make_redis_log

if TYPE_CHECKING:
    from pathlib import Path

GENERATION = Generation("1")

RECORDED = {
    "kafka": ("kafka", "rolled"),
    "spacetimedb": ("spacetimedb", "compressed"),
    "netlog": ("netlog", "sets"),
    "influxdb": ("influxdb", "topic_1"),
    "redis-aof": ("redis_aof", "commands"),
}


def places(folder: str, name: str) -> list[SourcePosition]:
    """The position after each commit of a log."""
    log_format, found, sequence = open_format(name), [], None
    order = log_format.segment_order
    for file in sorted((each for each in os.listdir(folder) if order(each)), key=lambda each: order(each) or ()):
        with open_segment(folder, file, log_format, FailedSyncs()) as segment:
            data = memoryview(segment.read(0, 1 << 20))
        for commit in log_format.commits(file, data, 0, Expectation(sequence)):
            sequence = commit.next
            found.append(SourcePosition(0, file, offset=commit.end, sequence=sequence))
    return found


@pytest.mark.parametrize("name", list(RECORDED))
def test_it_counts_what_follows_each_commit(tmp_path: Path, name: str) -> None:
    folder = str(unpack(*RECORDED[name], tmp_path))
    log_format, found = open_format(name), places(folder, name)
    last = found[-1].sequence or 0
    at_once = PendingRecords(folder, log_format, SystemClock())
    for place in found:
        for pending in (PendingRecords(folder, log_format, SystemClock()), at_once):
            assert pending.count(place) == last - (place.sequence or 0)
    assert at_once.count(replace(found[-1], file="", finished=found[-1].file, finished_end=found[-1].offset)) == 0


@pytest.mark.parametrize("name", list(RECORDED))
def test_a_long_rest_is_counted_in_several_looks(tmp_path: Path, name: str) -> None:
    folder = str(unpack(*RECORDED[name], tmp_path))
    found = places(folder, name)
    pending, answers = PendingRecords(folder, open_format(name), SystemClock()), []
    while not answers or answers[-1] is None:
        answers.append(pending.count(found[0], most_bytes=1))
        assert len(answers) < 100
    assert answers[-1] == (found[-1].sequence or 0) - (found[0].sequence or 0)
    assert answers[:-1] == [None] * (len(answers) - 1)
    assert len(answers) > 1


def test_it_follows_the_log_and_reads_nothing_twice(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    log.roll(3)
    pending = PendingRecords(log.folder, log.format, SystemClock())
    start = places(log.folder, "litelog")[0]
    assert pending.count(start) == 2
    log.append(2)
    log.roll(4)
    assert pending.count(start) == 8
    read = os.path.getsize(log.path())
    log.write(log.commit()[:-3])  # not whole
    assert pending.count(start) == 8
    assert pending.read_bytes < read
    log.replace(b"damaged" * 100)
    assert pending.count(start) in (None, 8)


def test_a_log_whose_sequences_count_bytes_has_no_lag_in_records(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log", "raw")
    log.roll(3)
    assert PendingRecords(log.folder, log.format, SystemClock()).count(SourcePosition(0, log.name, sequence=0)) is None


def test_the_meter_has_it_while_the_replica_lacks_something(tmp_path: Path) -> None:
    log, clock = make_log(tmp_path / "log"), ManualClock()
    log.roll(3)
    place = places(log.folder, "litelog")[0]
    meter = LagMeter(SourceEnd(log.folder, log.format, clock), lambda: (GENERATION, place))
    read = meter.measure_if_due(clock.monotonic(), float("-inf"), busy=True)
    assert (meter.records, read > 0) == (2, True)
    log.append(1)
    clock.advance(1)
    assert meter.measure_if_due(clock.monotonic(), float("-inf"), busy=True, most_bytes=0) == 0
    assert meter.records is None
    clock.advance(1)
    meter.measure_if_due(clock.monotonic(), float("-inf"), busy=True)
    assert meter.records == 3


def test_the_zeros_of_a_preallocated_file_are_not_bytes_that_lag(tmp_path: Path) -> None:
    folder, clock = unpack("kafka", "rolled", tmp_path), ManualClock()
    found = places(str(folder), "kafka")
    newest = folder / found[-1].file
    with newest.open("ab") as file:
        file.truncate(found[-1].offset + (1 << 20))
    lacked = [place for place in found if place.file == newest.name]
    source = SourceEnd(str(folder), open_format("kafka"), clock)
    for place in (*lacked, found[0]):
        shipped = GENERATION, place
        meter = LagMeter(source, lambda shipped=shipped: shipped)
        clock.advance(1)
        meter.measure_if_due(clock.monotonic(), float("-inf"), busy=True)
        later = [each for each in found if each.file > place.file]
        sizes = {each.file: each.offset for each in later}
        first = max(each.offset for each in found if each.file == place.file) - place.offset
        assert meter.read(clock.monotonic(), float("-inf")).bytes == first + sum(sizes.values())
        assert meter.history.read()[-1][2] == first + sum(sizes.values())


def test_the_meter_counts_again_in_another_generation(tmp_path: Path) -> None:
    """Redis begins its log again with a base file, from which sequences count, and keeps its newest file."""
    log, clock = make_redis_log(tmp_path / "log"), ManualClock()
    log.increment(2)
    for _ in range(9):
        log.write(log.commit())
    shipped = GENERATION, SourcePosition(2, log.name, sequence=1)
    meter = LagMeter(SourceEnd(log.folder, log.format, clock), lambda: shipped)
    meter.measure_if_due(clock.monotonic(), float("-inf"), busy=True)
    assert meter.records == 9
    log.increment(3)
    log.write(log.commit())
    clock.advance(1)
    meter.measure_if_due(clock.monotonic(), float("-inf"), busy=True)
    assert meter.records == 10
    shipped = Generation("2"), SourcePosition(1, log.name, sequence=1)
    clock.advance(1)
    meter.measure_if_due(clock.monotonic(), float("-inf"), busy=True)
    assert meter.records == 1
