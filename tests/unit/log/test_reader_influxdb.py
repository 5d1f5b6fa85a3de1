"""Readers of the topics of InfluxDB's broker: they begin where the broker's own reader does."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from litelog.errors import NotYetAvailableError, TruncatedError
from litelog.log.reader import LogReader
from tests.builders.old_logs import influx_message
from tests.builders.recorded_logs import unpack, what_was_read

if TYPE_CHECKING:
    from pathlib import Path

TABLE = what_was_read("influxdb", "table")["reads"]


def sequences(folder: Path, start: int) -> list[int]:
    with LogReader(folder, "influxdb", start=start) as reader:
        return [record.sequence for record in reader]


def read_now(reader: LogReader) -> list[int]:
    """The sequences that are there; none if none are yet."""
    try:
        columns = reader.read()
    except NotYetAvailableError:
        return []
    assert columns is not None
    return columns.sequences.tolist()


@pytest.mark.parametrize("start", sorted(map(int, TABLE)))
def test_a_reader_begins_where_the_brokers_own_does(tmp_path: Path, start: int) -> None:
    topic = unpack("influxdb", "table", tmp_path)
    assert sequences(topic, start) == TABLE[str(start)]


def test_a_reader_that_follows_an_empty_topic_reads_files_as_they_appear(tmp_path: Path) -> None:
    source, topic = unpack("influxdb", "table", tmp_path), tmp_path / "topic"
    topic.mkdir()
    found: list[list[int]] = []
    with LogReader(topic, "influxdb", follow=True, block=False) as reader:
        found.append(read_now(reader))
        for name in ("6", "12", "13"):
            shutil.copy(source / name, topic / name)
            found.append(read_now(reader))
        found.append(read_now(reader))
    assert found == [[], [6, 7, 10], [12], [13, 14], []]


def test_bytes_that_are_appended_before_the_next_file_appears_are_not_skipped(tmp_path: Path) -> None:
    topic = unpack("influxdb", "table", tmp_path)
    shutil.move(topic / "12", tmp_path / "12")
    (topic / "13").unlink()
    with LogReader(topic, "influxdb", follow=True, block=False) as reader:
        assert read_now(reader) == [6, 7, 10]
        with (topic / "6").open("ab") as file:
            file.write(influx_message(11, b"late", topic=1))
        shutil.move(tmp_path / "12", topic / "12")
        assert read_now(reader) == [11]
        assert read_now(reader) == [12]


def test_a_torn_message_may_be_written_again(tmp_path: Path) -> None:
    messages = [influx_message(index, b"data") for index in (1, 2, 3)]
    (tmp_path / "1").write_bytes(b"".join(messages)[:-5])
    with LogReader(tmp_path, "influxdb", follow=True, block=False) as reader:
        assert read_now(reader) == [1, 2]
        assert read_now(reader) == []
        (tmp_path / "1").write_bytes(b"".join(messages[:2]))
        assert read_now(reader) == []
        with (tmp_path / "1").open("ab") as file:
            file.write(messages[2])
        assert read_now(reader) == [3]


def test_a_start_before_what_the_broker_has_left_is_refused(tmp_path: Path) -> None:
    topic = unpack("influxdb", "truncated", tmp_path)
    first = what_was_read("influxdb", "truncated")["messages"][0][0]
    for start in (0, 7, first - 1):
        with pytest.raises(TruncatedError) as raised:
            sequences(topic, start)
        assert raised.value.first_available == first
    assert sequences(topic, first)[0] == first
    (topic / "tombstone").unlink()
    assert sequences(topic, 0)[0] == first


def test_messages_of_the_broker_itself_hide_no_records(tmp_path: Path) -> None:
    internal = [influx_message(index, bytes(900), kind=0x8001) for index in range(1, 200)]
    (tmp_path / "1").write_bytes(b"".join(internal) + influx_message(300, b"first"))
    (tmp_path / "301").write_bytes(influx_message(301, b"", kind=0x8001))
    assert sequences(tmp_path, 0) == sequences(tmp_path, 150) == [300]
    with LogReader(tmp_path, "influxdb") as reader:
        assert [record.value for record in reader] == [b"first"]
    for start in ("latest", "end"):
        with LogReader(tmp_path, "influxdb", start=start, follow=True, block=False) as reader:
            assert read_now(reader) == []
            with (tmp_path / "301").open("ab") as file:
                file.write(influx_message(302 + (start == "end"), b"new"))
            assert read_now(reader) == [302 + (start == "end")]
