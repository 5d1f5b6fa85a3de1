"""The arguments that an append takes: a key of one value, times as datetimes, and Arrow data of any library."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from litelog.log.reader import LogReader
from litelog.log.writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
MICROSECONDS = 1_795_435_200_000_000


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LogWriter]:
    with LogWriter(tmp_path / "log", fsync="never") as made:
        yield made


def records(writer: LogWriter) -> list[tuple[bytes | None, bytes]]:
    with LogReader(writer.folder) as reader:
        return [(record.key, record.value) for record in reader]


def times(writer: LogWriter) -> list[int | None]:
    with LogReader(writer.folder) as reader:
        return [record.timestamp for record in reader]


def test_one_value_has_one_key(writer: LogWriter) -> None:
    writer.append(b"v", key=b"k")
    writer.append_async(b"w", key=b"").result()
    writer.append(b"x", keys=b"old")
    assert records(writer) == [(b"k", b"v"), (b"", b"w"), (b"old", b"x")]


@pytest.mark.parametrize(
    ("values", "arguments"),
    [
        (b"v", {"key": b"k", "keys": [b"k"]}),
        ([b"v"], {"key": b"k"}),
        ([b"a", b"b"], {"key": b"k"}),
        (b"v", {"key": "text"}),
    ],
)
def test_a_key_that_does_not_fit_is_refused(writer: LogWriter, values: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="key"):
        writer.append(values, **arguments)
    assert writer.next_sequence == 0


def test_an_empty_append_writes_nothing_and_says_so(writer: LogWriter) -> None:
    writer.append(b"first")
    appended = writer.append([])
    assert (appended.first, appended.next, writer.next_sequence) == (1, 1, 1)
    assert writer.append([], expected_sequence=1).next == 1


def test_times_are_datetimes_or_microseconds(writer: LogWriter) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs litelog[arrow]")
    writer.append(b"a", timestamps=NOON)
    writer.append([b"b", b"c"], timestamps=[NOON, MICROSECONDS])
    writer.append([b"d"], timestamps=MICROSECONDS)
    writer.append(pyarrow.array([b"e"]), timestamps=[NOON])
    assert times(writer) == [MICROSECONDS] * 5


@pytest.mark.parametrize("timestamps", [NOON.replace(tzinfo=None), [NOON.replace(tzinfo=None)]])
def test_a_time_without_a_zone_is_refused(writer: LogWriter, timestamps: Any) -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        writer.append([b"v"], timestamps=timestamps)
    assert writer.next_sequence == 0


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_data_frame_is_appended(writer: LogWriter, library: str) -> None:
    made: Any = pytest.importorskip(library, reason=f"{library} is not installed")
    columns = {"key": [b"k", None], "value": [b"v", b"w"], "other": [1, 2]}
    writer.append(made.table(columns) if library == "pyarrow" else made.DataFrame(columns))
    assert records(writer) == [(b"k", b"v"), (None, b"w")]


def test_a_series_is_appended(writer: LogWriter) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    writer.append(polars.Series([b"v", b"w"]), timestamps=NOON)
    assert records(writer) == [(None, b"v"), (None, b"w")]


@pytest.mark.slow
def test_the_batches_of_a_reader_are_appended(writer: LogWriter, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs litelog[arrow]")
    writer.append([b"v", b"w"], keys=[b"k", None], timestamps=NOON)
    with LogWriter(tmp_path / "copy", fsync="never") as copy, LogReader(writer.folder) as reader:
        copy.append(reader.arrow())
        assert records(copy) == records(writer)
        assert times(copy) == times(writer)
