"""A RetryReader opens its reader again after a failure that passes; all other errors are those of the reader."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import litelog
from litelog.errors import (
    CorruptObjectError,
    DivergedError,
    NotFoundError,
    NothingToRestoreError,
    NotYetAvailableError,
    OffsetJumpError,
    PrunedError,
    SourceMissingError,
    StoreError,
    TruncatedError,
)
from litelog.formats.columns import Columns
from litelog.formats.record_stream import RecordStream
from litelog.reading.read_retries import BACK_OFF_SECONDS, ReadRetries, back_off
from litelog.reading.retry_reader import RetryReader
from tests.sampling import examples
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from litelog.log.read_bounds import Start

END = 12


class Scripted(RecordStream):
    """A reader of a log of END records, three at a time. Its next reads raise ``failures``."""

    def __init__(self, start: int | Start, failures: list[Exception]) -> None:
        super().__init__()
        self._next = 0 if start == "earliest" else int(start)
        self._failures = failures
        self.closed = False

    def read(self) -> Columns | None:
        if self._failures:
            raise self._failures.pop(0)
        stop = min(self._next + 3, END)
        if self.closed or stop <= self._next:
            return None
        first, self._next = self._next, stop
        return columns_of(range(first, stop))

    def close(self) -> None:
        self.closed = True


def columns_of(sequences: range) -> Columns:
    """Records without content."""
    none = np.zeros(len(sequences), np.int64)
    return Columns(memoryview(b""), np.array(sequences, np.int64), none, None, None, none, none)


class Opened:
    """Opens scripted readers, and remembers where."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.starts: list[int | Start] = []
        self.readers: list[Scripted] = []

    def __call__(self, start: int | Start) -> Scripted:
        self.starts.append(start)
        self.readers.append(Scripted(start, self.failures))
        return self.readers[-1]


def down() -> StoreError:
    return StoreError("get", "key", "it is down")


def sequences(reader: RetryReader) -> list[int]:
    return [record.sequence for record in reader]


def test_after_a_failure_it_opens_the_reader_at_the_record_that_comes_next() -> None:
    opened = Opened()
    reader = RetryReader(opened)
    assert next(reader).sequence == 0
    opened.failures += [down(), PrunedError("position"), down()]
    assert sequences(reader) == list(range(1, END))
    assert opened.starts == ["earliest", 3, 3, 3]
    assert [each.closed for each in opened.readers] == [True, True, True, False]
    reader.close()
    assert opened.readers[-1].closed


def test_a_reader_that_cannot_be_opened_is_tried_again() -> None:
    opened, failures = Opened(), [down(), down()]

    def open_later(start: int | Start) -> Scripted:
        if failures:
            raise failures.pop()
        return opened(start)

    assert sequences(RetryReader(open_later, start=4)) == list(range(4, END))


FINAL = [
    NotYetAvailableError("nothing yet"),
    OffsetJumpError(0, 6),
    NotFoundError("key"),
    NothingToRestoreError("no replica"),
    SourceMissingError("folder", "no such folder"),
    TruncatedError(0, 6),
    CorruptObjectError("key", "is damaged"),
    DivergedError("log", "was rewritten"),
    StoreError("get", "key", "no permission", retryable=False),
    ValueError("a flaw"),
]


@pytest.mark.parametrize("error", FINAL, ids=lambda error: type(error).__name__)
def test_other_errors_are_raised_as_they_are_and_the_reader_stays(error: Exception) -> None:
    opened = Opened(error)
    reader = RetryReader(opened)
    with pytest.raises(type(error)) as raised:
        reader.read()
    assert raised.value is error
    assert sequences(reader) == list(range(END))
    assert len(opened.readers) == 1


def test_attempts_limit_failures_in_a_row_and_not_all_failures() -> None:
    opened = Opened(down())
    reader = RetryReader(opened, attempts=2)
    for _ in range(END // 3):
        assert reader.read() is not None
        opened.failures.append(down())
    assert reader.read() is None
    opened.failures += [down(), down()]
    with pytest.raises(StoreError, match="it is down"):
        reader.read()


def test_the_waits_are_those_of_the_specification() -> None:
    waits: list[float] = []

    class Clock(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(-1.0 if timeout is None else timeout)
            return False

    retries = ReadRetries(Clock(), None)
    for _ in range(7):
        assert not retries.is_last(down())
        retries.wait()
    assert waits == [0.0, 0.05, 0.1, 1.0, 5.0, 5.0, 5.0]
    retries.succeed()
    retries.is_last(down())
    retries.wait()
    assert (waits[-1], back_off(99)) == (0.0, BACK_OFF_SECONDS[-1])


def test_another_thread_ends_a_wait() -> None:
    failed = threading.Event()

    def open_never(_start: int | Start) -> Scripted:
        failed.set()
        raise down()

    reader, done = RetryReader(open_never), []
    thread = threading.Thread(target=lambda: done.append(reader.read()))
    thread.start()
    assert failed.wait(WAIT_SECONDS)
    reader.close()
    thread.join(WAIT_SECONDS)
    assert (done, reader.read()) == ([None], None)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(0, 1), max_size=12))
def test_each_record_is_returned_once_in_order(script: list[int]) -> None:
    """Between two reads the reader fails once, or not."""
    opened = Opened()
    reader, read = RetryReader(opened), list[int]()
    for fails in [*script, *([0] * 12)]:
        opened.failures += [down()] * fails
        columns = reader.read()
        read += [] if columns is None else columns.sequences.tolist()
    assert read == list(range(END))


def test_sequences_that_count_bytes_continue_after_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "0").write_bytes(b"some bytes")
    failures = [down()]

    class Failing(litelog.LogReader):
        def read(self) -> Columns | None:
            columns = super().read()
            if columns is None and failures:
                raise failures.pop()
            return columns

    def open_log(start: int | Start) -> Failing:
        return Failing(tmp_path / "log", "raw", start=start, state_dir=tmp_path / "state")

    with litelog.RetryReader(open_log) as reader:
        assert b"".join(record.value for record in reader) == b"some bytes"
        assert (reader.next_sequence, failures) == (10, [])
