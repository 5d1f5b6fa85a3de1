"""One reader for a log in a folder and in replicas: it returns each record once, and says what is gone everywhere."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import (
    ConfigError,
    DivergedError,
    NoReplicaError,
    PrunedError,
    SourceMissingError,
    StoreError,
    TruncatedError,
)
from litelog.formats.columns import Columns
from litelog.formats.litelog import LitelogFormat
from litelog.formats.record_stream import RecordStream
from litelog.log.writer import LogWriter
from litelog.reading.combined_reader import (
    CombinedReader,
    OffsetJumpError,
    RecordSource,
    folder_source,
    replica_source,
)
from litelog.stores.registry import open_store
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import make_log
from tests.sampling import examples
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from litelog.log.read_bounds import Start

FORMAT = LitelogFormat()
BATCH = 3


def columns_of(sequences: range) -> Columns:
    """Records without content."""
    none = np.zeros(len(sequences), np.int64)
    return Columns(memoryview(b""), np.array(sequences, np.int64), none, None, None, none, none)


class Held(RecordStream):
    """A stream of the records ``first`` to ``last`` of a source, in batches."""

    def __init__(self, source: FakeSource, start: int | Start, end: int | None) -> None:
        super().__init__()
        self._source = source
        self._next = source.stop - 1 if start == "latest" else source.stop if start == "end" else int(start)
        self._end = end
        self.closed = False

    def read(self) -> Columns | None:
        source = self._source
        source.reads += 1
        if source.failures:
            raise source.failures.pop(0)
        if self._next < source.first:
            raise TruncatedError(self._next, source.first)
        stop = min(self._next + BATCH, source.stop, self._end if self._end is not None else source.stop)
        if self.closed or stop <= self._next:
            return None
        start, self._next = self._next, stop
        return columns_of(range(start, stop))

    def close(self) -> None:
        self.closed = True


class FakeSource:
    """A source that holds the records ``first`` to ``stop``, and whose next reads raise ``failures``."""

    def __init__(self, first: int, stop: int, failures: Sequence[Exception] = ()) -> None:
        self.first, self.stop, self.failures, self.reads = first, stop, list(failures), 0
        self.streams: list[Held] = []

    def source(self, name: str) -> RecordSource:
        def open_source(start: int | Start, end: int | None, follow: bool) -> RecordStream:
            self.streams.append(Held(self, start, end))
            return self.streams[-1]

        return RecordSource(name, open_source)


def combined(*sources: FakeSource, **options: object) -> CombinedReader:
    named = [source.source(f"source {number}") for number, source in enumerate(sources)]
    return CombinedReader(named, **options)  # type: ignore[arg-type]


def sequences(reader: CombinedReader) -> list[int]:
    return [record.sequence for record in reader]


def test_a_folder_is_read_as_long_as_it_holds_the_next_record() -> None:
    folder, replica = FakeSource(5, 20), FakeSource(0, 12)
    reader = combined(folder, replica)
    assert sequences(reader) == list(range(20))
    assert sum(stream.closed for stream in folder.streams + replica.streams) == len(folder.streams + replica.streams)
    assert replica.reads == 3, "the replica gives what the folder lacks, and nothing more"
    again = combined(folder, FakeSource(0, 0, [AssertionError("is not asked")]), start=7)
    assert sequences(again) == list(range(7, 20))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", None, range(2, 20)),
        ("latest", None, [19]),
        ("end", None, []),
        (2, 4, range(2, 4)),
        (4, 9, range(4, 9)),
        (18, 99, [18, 19]),
        (20, None, []),
        (7, 7, []),
    ],
)
def test_it_begins_and_ends_where_it_is_asked_to(start: int | Start, end: int | None, expected: Sequence[int]) -> None:
    assert sequences(combined(FakeSource(5, 20), FakeSource(2, 12), start=start, end=end)) == list(expected)


def test_records_that_are_gone_everywhere_are_reported_once_and_skipped() -> None:
    reader = combined(FakeSource(15, 20), FakeSource(8, 12), FakeSource(4, 6), start=1)
    read: list[int] = []
    jumps: list[tuple[int, int]] = []
    for _ in range(20):
        try:
            columns = reader.read()
        except OffsetJumpError as error:
            jumps.append((error.requested, error.next))
            continue
        if columns is None:
            break
        read += columns.sequences.tolist()
    assert (jumps, read) == ([(1, 4), (6, 8), (12, 15)], [4, 5, *range(8, 12), *range(15, 20)])
    assert sequences(combined(FakeSource(15, 20), FakeSource(8, 12), start=1, on_gap="jump")) == [
        *range(8, 12),
        *range(15, 20),
    ]


def test_it_continues_after_a_failure_with_the_record_that_comes_next() -> None:
    outage = [StoreError("get", "key", "it is down") for _ in range(2)]
    folder, replica = FakeSource(9, 12), FakeSource(0, 12, [*outage, PrunedError("position")])
    reader = combined(folder, replica)
    assert sequences(reader) == list(range(12))


def test_a_failure_that_lasts_is_raised() -> None:
    down = StoreError("get", "key", "no permission", retryable=False)
    with pytest.raises(StoreError, match="no permission"):
        sequences(combined(FakeSource(9, 12), FakeSource(0, 12, [down])))
    again = [StoreError("get", "key", "it is down") for _ in range(3)]
    with pytest.raises(StoreError, match="it is down"):
        sequences(combined(FakeSource(9, 12), FakeSource(0, 12, again), attempts=2))
    fork = DivergedError("folder", "was rewritten")
    with pytest.raises(DivergedError, match="was rewritten"):
        sequences(combined(FakeSource(0, 12, [fork]), FakeSource(0, 12)))


def test_a_log_that_is_replaced_while_it_is_opened_is_no_jump_back() -> None:
    """Its reader waits for record 5, and finds that the log begins with record 0 now."""
    assert combined(FakeSource(0, 12, [TruncatedError(5, 0)]), start=5).read() is None
    reader = combined(FakeSource(0, 12, [TruncatedError(5, 0)]), start=5, follow=True)
    assert sequences_of(reader.read()) == [5, 6, 7]


def down(count: int) -> list[Exception]:
    return [StoreError("get", "key", "it is down") for _ in range(count)]


def sequences_of(columns: Columns | None) -> list[int]:
    return [] if columns is None else columns.sequences.tolist()


def test_while_the_first_source_is_away_the_next_one_is_read(caplog: pytest.LogCaptureFixture) -> None:
    first, second = FakeSource(0, 20), FakeSource(0, 11)
    reader = combined(first, second)
    assert sequences_of(reader.read()) == [0, 1, 2]
    first.failures = down(2)
    assert sequences_of(reader.read()) == [3, 4, 5], "the second one"
    assert sequences(reader) == list(range(6, 20)), "the rest is at the first one again"
    assert [record.message for record in caplog.records] == [
        "source 0: cannot be read now: get key: it is down; the log's other places are read meanwhile"
    ]


def test_it_ends_where_the_readable_sources_end_if_the_first_one_stays_away() -> None:
    first, second = FakeSource(0, 20, down(99)), FakeSource(0, 11)
    assert sequences(combined(first, second, attempts=2)) == list(range(11))
    with pytest.raises(StoreError, match="it is down"):
        sequences(combined(FakeSource(0, 20, down(99)), FakeSource(0, 11, down(99)), attempts=2))


def test_nothing_is_skipped_that_a_source_which_is_away_may_hold() -> None:
    """The first source lacks records 0 to 8, and the second one, which has them, is away."""
    reader = combined(FakeSource(9, 20), FakeSource(0, 12, down(3)), FakeSource(5, 12), start=0)
    assert sequences(reader) == list(range(20))
    with pytest.raises(StoreError, match="it is down"):
        combined(FakeSource(9, 20), FakeSource(0, 12, down(99)), start=0, attempts=2).read()


def test_a_refusal_of_a_source_is_raised_though_there_are_others() -> None:
    refusal = StoreError("get", "key", "no permission", retryable=False)
    with pytest.raises(StoreError, match="no permission"):
        combined(FakeSource(0, 9, [refusal]), FakeSource(0, 9)).read()


def test_a_source_that_does_not_exist_is_left_out() -> None:
    missing = SourceMissingError("folder", "no such folder")
    assert sequences(combined(FakeSource(0, 9, [missing]), FakeSource(0, 5))) == list(range(9)), "it may come back"
    with pytest.raises(SourceMissingError, match="no such folder"):
        sequences(combined(FakeSource(0, 9, [missing]), FakeSource(0, 9, [NoReplicaError("replica")])))
    with pytest.raises(ConfigError, match="name one"):
        combined()


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_no_record_that_any_source_holds_is_skipped_or_returned_twice(data: st.DataObject) -> None:
    """The log grows and is truncated between two reads, and sources fail."""
    stop = data.draw(st.integers(1, 12))
    folder, replica = FakeSource(0, stop), FakeSource(0, data.draw(st.integers(0, stop)))
    reader = combined(folder, replica, on_gap=data.draw(st.sampled_from(["raise", "jump"])), start=0)
    read: list[int] = []
    for step in range(60):
        kind = data.draw(st.sampled_from(["read", "read", "grow", "ship", "truncate", "prune", "fail", "fail first"]))
        if kind == "grow" and step < 30:
            folder.stop += data.draw(st.integers(1, 5))
        elif kind == "ship":
            replica.stop = max(replica.stop, data.draw(st.integers(replica.stop, folder.stop)))
        elif kind == "truncate":
            folder.first = data.draw(st.integers(folder.first, min(replica.stop, folder.stop - 1)))
        elif kind == "prune":
            replica.first = data.draw(st.integers(replica.first, replica.stop))
        elif kind == "fail":
            replica.failures = down(1)
        elif kind == "fail first":
            folder.failures = down(1)
        held = min(folder.first, replica.first if replica.first < replica.stop else folder.first)
        expected = read[-1] + 1 if read else 0
        columns = None
        with suppress(OffsetJumpError):
            columns = reader.read()
        if columns is not None:
            first = int(columns.sequences[0])
            assert first >= expected
            assert first == expected or first <= max(held, folder.first), "only what is gone everywhere is skipped"
            read += columns.sequences.tolist()
    assert read == sorted(set(read))


@pytest.mark.slow
def test_a_truncated_folder_and_its_replica_are_one_log(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    for _ in range(4):
        log.roll(3)
    replica = tmp_path / "replica"
    daemon = Daemon(log, open_store(str(replica)), str(tmp_path / "state"))
    daemon.sync()
    for name in list(log.files())[:2]:
        log.delete(name)
    sources = [folder_source(log.folder, FORMAT), replica_source(str(replica), {})]
    with CombinedReader(sources) as reader:
        assert [record.value for record in reader] == [f"r{number}".ljust(10, ".").encode() for number in range(12)]
    with CombinedReader(sources[1:], start=3, end=11) as reader:
        assert [record.sequence for record in reader] == list(range(3, 11))


@pytest.mark.slow
def test_a_follower_wakes_when_the_folder_grows_and_ends_when_it_is_closed(tmp_path: Path) -> None:
    folder = str(tmp_path / "log")
    reader = CombinedReader([folder_source(folder, FORMAT)], follow=True)
    read: list[int] = []
    arrived = threading.Semaphore(0)

    def follow(enough: Callable[[], None]) -> None:
        for record in reader:
            read.append(record.sequence)
            enough()

    thread = threading.Thread(target=follow, args=(arrived.release,))
    thread.start()
    with LogWriter(folder) as writer:
        for number in range(3):
            writer.append([b"x"])
            assert arrived.acquire(timeout=WAIT_SECONDS)
            assert read == list(range(number + 1))
    reader.close()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
