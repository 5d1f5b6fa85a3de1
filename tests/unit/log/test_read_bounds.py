"""Readers begin and end at sequences, words and times, and a time without a zone is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from litelog.errors import ConfigError
from litelog.log.read_bounds import ReadBounds
from litelog.log.reader import LogReader
from litelog.log.writer import LogWriter

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
MICROSECONDS = 1_795_435_200_000_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A record a minute, from noon on."""
    with LogWriter(tmp_path / "log", fsync="never") as writer:
        for minute in range(5):
            writer.append(b"%d" % minute, timestamps=NOON + timedelta(minutes=minute))
    return tmp_path / "log"


def test_a_datetime_and_its_microseconds_are_the_same_time() -> None:
    given = (NOON, NOON.astimezone(timezone(timedelta(hours=-5))), MICROSECONDS)
    assert {ReadBounds.of("earliest", time, None, time) for time in given} == {
        ReadBounds(start_time=MICROSECONDS, end_time=MICROSECONDS)
    }
    assert ReadBounds.of(NOON, None, NOON, None) == ReadBounds(start_time=MICROSECONDS, end_time=MICROSECONDS)


@pytest.mark.parametrize(
    "bounds",
    [
        {"start": NOON + timedelta(minutes=1), "end": NOON + timedelta(minutes=3)},
        {"start_time": NOON + timedelta(minutes=1), "end_time": MICROSECONDS + 180_000_000},
        {"start_time": MICROSECONDS + 60_000_000, "end": 3},
    ],
)
def test_a_reader_begins_and_ends_at_times(log: Path, bounds: dict[str, Any]) -> None:
    with LogReader(log, **bounds) as reader:
        assert [record.time for record in reader] == [NOON + timedelta(minutes=1), NOON + timedelta(minutes=2)]


@pytest.mark.parametrize("name", ["start", "end", "start_time", "end_time"])
def test_a_datetime_without_a_zone_is_refused(log: Path, name: str) -> None:
    naive: dict[str, Any] = {name: NOON.replace(tzinfo=None)}
    with pytest.raises(ConfigError, match=r"has no time zone: write datetime.now\(UTC\)"):
        LogReader(log, **naive)


@pytest.mark.parametrize(
    "bounds", [{"start": NOON, "start_time": NOON}, {"end": NOON, "end_time": 5}, {"start": 3, "start_time": NOON}]
)
def test_two_starts_or_two_ends_are_refused(log: Path, bounds: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"not at two|not both"):
        LogReader(log, **bounds)


@pytest.mark.slow
def test_nothing_is_read_after_the_end_and_a_follower_waits_there(log: Path) -> None:
    for start in (5, 99, NOON + timedelta(days=1)):
        with LogReader(log, start=start) as reader:
            assert list(reader) == []
    with LogReader(log, start=6, follow=True, block=False) as reader, LogWriter(log, fsync="never") as writer:
        writer.append([b"5", b"6"])
        assert next(reader).value == b"6"


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        *((word, ReadBounds("earliest")) for word in ("beginning", "first", "oldest", "start", "earliest", "Oldest")),
        *((word, ReadBounds("latest")) for word in ("last", "latest")),
        *((word, ReadBounds("end")) for word in ("end", "now")),
        ("17", ReadBounds(17)),
        ("2026-11-23T12:00:00Z", ReadBounds(start_time=MICROSECONDS)),
    ],
)
def test_a_start_may_be_written_as_people_do(text: str, bounds: ReadBounds) -> None:
    assert ReadBounds.of(text, None, None, None) == bounds


def test_a_duration_counts_back_from_now_by_the_calendar(log: Path) -> None:
    for text, days in (("10s", 0), ("1day", 1), ("2month3days", 62)):
        now = datetime.now(UTC)
        found = ReadBounds.of(text, None, None, None).start_time
        assert found is not None
        back = now - datetime.fromtimestamp(found / 1_000_000, UTC)
        assert timedelta(days=days) <= back + timedelta(days=1) <= timedelta(days=days + 5)
    with LogReader(log, start="1s", end="5") as reader:
        assert list(reader) == []


def test_an_end_may_be_written_as_people_do(log: Path) -> None:
    assert ReadBounds.of(0, None, "5", None) == ReadBounds(0, end=5)
    assert ReadBounds.of(0, None, "2026-11-23", None).end_time == MICROSECONDS - 12 * 3_600_000_000
    for text in ("latest", "end", "tomorrow"):
        with pytest.raises(ConfigError, match="end"):
            ReadBounds.of(0, None, text, None)
