"""LogReader reads from any place to any other, follows the log, and gives only what was appended."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import (
    ConfigError,
    CorruptCommitError,
    CorruptionError,
    DivergedError,
    NotYetAvailableError,
    SequenceGapError,
    SourceMissingError,
    TruncatedError,
)
from litelog.formats import Expectation, Tail
from litelog.formats.lines import LinesFormat
from litelog.formats.litelog import LitelogFormat
from litelog.formats.raw import RawFormat
from litelog.log.cursor import LARGE_PIECE_BYTES, LogCursor
from litelog.log.reader import LogReader
from litelog.log.recovery import list_segments
from litelog.log.source import SegmentFolder
from litelog.log.writer import LogWriter
from litelog.native.library import without_library
from litelog.system.clock import SystemClock
from litelog.system.inotify import Watcher
from tests.builders.child import runs_in_child
from tests.sampling import examples, sampled, times
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from litelog.formats import LogFormat
    from litelog.log.read_bounds import Start
    from litelog.log.source import OpenSegment


def fill(folder: Path, count: int = 60, per_commit: int = 3, **settings: object) -> None:
    """``count`` records, numbered, their timestamps ten times their number, in small log segments."""
    with LogWriter(str(folder), fsync="never", **{"segment_bytes": 400, **settings}) as writer:  # type: ignore[arg-type]
        for start in range(0, count, per_commit):
            numbers = range(start, min(count, start + per_commit))
            writer.append([b"%d" % number for number in numbers], timestamps=[10 * number for number in numbers])


def sequences(folder: Path, **settings: object) -> list[int]:
    with LogReader(str(folder), **settings) as reader:  # type: ignore[arg-type]
        got = [(record.sequence, record.value) for record in reader]
    assert all(value == b"%d" % sequence for sequence, value in got)
    return [sequence for sequence, _ in got]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    fill(folder)
    assert len(list_segments(str(folder))) > 5
    return folder


def test_continuous_reads_use_larger_pieces(tmp_path: Path) -> None:
    mebibyte, count = 1 << 20, 16
    with LogWriter(str(tmp_path), fsync="never") as writer:
        for _ in range(count):
            writer.append(bytes(mebibyte - 4096))
    with LogReader(str(tmp_path)) as reader:
        pieces = [len(columns) for columns in reader.batches()]
    assert sum(pieces) == count
    assert pieces[:4] == [1, 2, 2, 2]  # commits are taken without a look behind them; 4 MiB otherwise


@pytest.mark.slow
@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(30))
def test_a_damaged_log_reads_and_fails_the_same_with_the_library_and_without(seed: int) -> None:
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        with LogWriter(folder, fsync="never") as writer:
            while writer.next_sequence < 4000:
                writer.append([draw.randbytes(draw.randrange(200)) for _ in range(draw.choice((1, 50, 300)))])
        (name,) = list_segments(folder)
        path = os.path.join(folder, name)
        data = bytearray(Path(path).read_bytes())
        for _ in range(draw.randrange(3)):
            data[draw.randrange(len(data) // 4, len(data))] ^= 1 << draw.randrange(8)
        del data[draw.choice([len(data), draw.randrange(len(data) // 4, len(data))]) :]
        Path(path).write_bytes(data + bytes(draw.choice([0, 100_000])))
        found = read_all(folder)
        with without_library():
            assert read_all(folder) == found
        assert found[0]


def read_all(folder: str) -> tuple[list[tuple[int, bytes]], str]:
    """All records up to the end, or to the error, and the error."""
    records: list[tuple[int, bytes]] = []
    with LogReader(folder) as reader:
        try:
            records.extend((record.sequence, record.value) for record in reader)
        except CorruptionError as error:
            return records, f"{type(error).__name__}: {error}"
    return records, ""


@pytest.mark.slow
def test_every_start_and_end_gives_exactly_the_records_between(log: Path) -> None:
    for start in range(62):
        assert sequences(log, start=start) == list(range(start, 60)), start
        for end in (start, start + 1, start + 7, 100):
            assert sequences(log, start=start, end=end) == list(range(start, min(end, 60))), (start, end)


@pytest.mark.slow
def test_every_time_starts_and_ends_at_exactly_its_record(log: Path) -> None:
    for time in range(-5, 620, 5):
        first = max(0, -(-time // 10))
        assert sequences(log, start_time=time) == list(range(first, 60)), time
        assert sequences(log, end_time=time) == list(range(min(first, 60))), time


def test_earliest_latest_and_end(log: Path) -> None:
    assert sequences(log, start="earliest") == list(range(60))
    assert sequences(log, start="latest") == [59]
    assert sequences(log, start="end") == []


def test_the_three_ways_of_reading_agree(log: Path) -> None:
    with LogReader(str(log), start=4) as reader:
        records = list(reader)
    with LogReader(str(log), start=4) as reader:
        parts = [record for columns in reader.batches() for record in columns.records()]
    with LogReader(str(log), start=4) as reader:
        rows = [row for batch in reader.arrow() for row in batch.to_pylist()]
    assert parts == records
    assert [(row["sequence"], row["key"], row["value"]) for row in rows] == [
        (r.sequence, r.key, r.value) for r in records
    ]


@pytest.mark.slow
@runs_in_child
def test_pieces_are_bounded_and_large_commits_come_whole(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path), fsync="never") as writer:
        for size in (10, 1 << 20, 20 << 20, 10):
            writer.append([b"x" * size, b"y"])
        for _ in range(100):
            writer.append([b"z" * 1000] * 100)
    with LogReader(str(tmp_path)) as reader:
        sizes = [(len(columns.data), len(columns)) for columns in reader.batches()]
    assert sum(records for _, records in sizes) == 10_008
    assert max(size for size, _ in sizes) <= 36 << 20
    assert all(size <= LARGE_PIECE_BYTES for size, _ in sizes[4:])


def test_a_reader_continues_where_it_stopped(log: Path) -> None:
    with LogReader(str(log)) as reader:
        first = reader.read()
        assert first is not None
        assert reader.next_sequence == len(first)
        rest = [int(part.sequences[0]) for part in reader.batches()]
        assert rest[0] == len(first)
        assert reader.read() is None


def test_a_log_without_records_gives_none(tmp_path: Path) -> None:
    LogWriter(str(tmp_path / "new")).close()
    (tmp_path / "bare").mkdir()
    for folder in (tmp_path / "new", tmp_path / "bare"):
        for start in ("earliest", "latest", "end", 0, 7):
            assert sequences(folder, start=start) == []
        assert sequences(folder, start_time=5) == []
    with LogReader(str(tmp_path / "none")) as reader, pytest.raises(SourceMissingError):
        reader.read()


def test_a_read_below_the_first_available_sequence_raises_truncated_error(log: Path, tmp_path: Path) -> None:
    names = list_segments(str(log))
    for name in names[3:]:
        (tmp_path / name).write_bytes((log / name).read_bytes())
    available = int(names[3].removesuffix(".log"))
    with LogReader(str(tmp_path), start=2) as reader, pytest.raises(TruncatedError) as caught:
        reader.read()
    assert (caught.value.requested, caught.value.first_available) == (2, available)
    assert sequences(tmp_path) == list(range(available, 60))
    assert sequences(tmp_path, start=available) == list(range(available, 60))


class VanishingNames(SegmentFolder):
    """Removes log segments just before the first of them would be opened again after ``opens`` times."""

    opens = 0
    gone: Sequence[str] = ()
    arrives: Path | None = None
    """A log segment that replaces them."""

    def open(self, name: str) -> OpenSegment:
        if self.gone and name == self.gone[0]:
            self.opens -= 1
            if self.opens < 0:
                for each in self.gone:
                    os.unlink(os.path.join(self._folder, each))
                if self.arrives is not None:
                    self.arrives.rename(os.path.join(self._folder, self.arrives.name))
                self.gone = ()
        return super().open(name)


def vanishing(reader: LogReader, count: int, opens: int) -> VanishingNames:
    """Have ``reader`` lose the first ``count`` log segments while it looks for its start."""
    names = VanishingNames(reader.folder, reader._format, SystemClock())
    names.gone, names.opens = names.all()[:count], opens
    reader._names = reader._cursor._names = reader._seeker._names = reader._numbering._names = names
    return names


@pytest.mark.parametrize("opens", [0, 1])
@pytest.mark.parametrize("count", [1, 3])
def test_the_rest_of_a_log_that_is_truncated_meanwhile_is_read(
    log: Path, tmp_path: Path, opens: int, count: int
) -> None:
    shutil.copytree(log, tmp_path, dirs_exist_ok=True)
    first = int(list_segments(str(tmp_path))[count].removesuffix(".log"))
    with LogReader(str(tmp_path)) as reader:
        vanishing(reader, count, opens)
        assert [record.sequence for record in reader] == list(range(first, 60))


@pytest.mark.parametrize("opens", [0, 1, 2])
def test_a_start_that_is_truncated_meanwhile_is_reported(log: Path, tmp_path: Path, opens: int) -> None:
    shutil.copytree(log, tmp_path, dirs_exist_ok=True)
    first = int(list_segments(str(tmp_path))[1].removesuffix(".log"))
    with LogReader(str(tmp_path), start=2) as reader:
        vanishing(reader, 1, opens)
        with pytest.raises(TruncatedError) as caught:
            reader.read()
    assert (caught.value.requested, caught.value.first_available) == (2, first)


def test_numpys_integers_are_sequences(log: Path) -> None:
    assert sequences(log, start=np.int64(3), end=np.uint16(5)) == [3, 4]


@pytest.mark.parametrize("bounds", [{"start": True}, {"start": 1.0}, {"end": False}, {"end": 3.0}])
def test_only_an_integer_is_a_sequence(log: Path, bounds: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is a sequence"):
        LogReader(str(log), **bounds)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_log_whose_listing_is_gone_altogether_is_listed_again(log: Path, tmp_path: Path, start: str) -> None:
    folder = tmp_path / "log"
    shutil.copytree(log, folder)
    newest = list_segments(str(folder))[-1]
    (folder / newest).rename(tmp_path / newest)
    with LogReader(str(folder), start=start) as reader:  # type: ignore[arg-type]
        names = vanishing(reader, 100, 0)
        names.gone = names.all() if start == "earliest" else names.all()[::-1]
        names.arrives = tmp_path / newest
        expected = list(range(int(newest.removesuffix(".log")), 60))
        assert [record.sequence for record in reader] == (expected if start == "earliest" else expected[-1:])


@pytest.mark.parametrize(
    ("start", "opens", "expected"),
    [
        ("earliest", 0, [b"1", b"2"]),
        ("earliest", 1, [b"1", b"2"]),
        ("latest", 0, [b"2"]),
        (0, 0, [b"1", b"2"]),
        (0, 1, [b"1", b"2"]),
        (1, 0, [b"2"]),
    ],
)
def test_files_that_vanish_while_they_are_counted_are_counted_again(
    tmp_path: Path, start: int | Start, opens: int, expected: list[bytes]
) -> None:
    for number in range(3):
        (tmp_path / f"a.{number}").write_bytes(b"%d\n" % number)
    with LogReader(str(tmp_path), LinesFormat("a.*"), start=start) as reader:
        vanishing(reader, 1, opens)
        assert [record.value for record in reader] == expected


def test_wrong_questions_are_refused(log: Path) -> None:
    wrong_ones: tuple[dict[str, Any], ...] = (
        {"start": -1},
        {"start": 3, "start_time": 4},
        {"log_format": LinesFormat("*.txt"), "start_time": 4},
        {"start": "bogus"},
        {"start": None},
    )
    for wrong in wrong_ones:
        with pytest.raises(ConfigError):
            LogReader(str(log), **wrong)


@pytest.mark.slow
def test_every_flipped_byte_is_an_error_or_stops_and_never_other_data(tmp_path: Path) -> None:
    fill(tmp_path / "log", count=18, segment_bytes=250)
    names = list_segments(str(tmp_path / "log"))
    assert len(names) > 2
    whole = sequences(tmp_path / "log")
    errors = 0
    for name in names:
        path = tmp_path / "log" / name
        body = path.read_bytes()
        for place in sampled(range(len(body)), 4, f"log reader {name}"):
            path.write_bytes(body[:place] + bytes([body[place] ^ 0x10]) + body[place + 1 :])
            try:
                got = sequences(tmp_path / "log")
            except CorruptionError:
                errors += 1
            else:
                assert name == names[-1], place
                assert got == whole[: len(got)], (name, place)
        path.write_bytes(body)
    assert errors > times(25, at_night=100)


def test_records_before_a_bad_commit_are_read_and_the_bad_one_is_never_skipped(tmp_path: Path) -> None:
    fill(tmp_path, count=9, segment_bytes=1 << 20)  # three commits of three records
    path = tmp_path / list_segments(str(tmp_path))[-1]
    body = path.read_bytes()
    second = body.index(b"345")
    path.write_bytes(body[:second] + b"x" + body[second + 1 :])
    with LogReader(str(tmp_path)) as reader:
        assert [next(reader).sequence for _ in range(3)] == [0, 1, 2]
        with pytest.raises(CorruptCommitError) as caught:
            next(reader)
        assert 64 < caught.value.offset < second
        with pytest.raises(CorruptCommitError):
            next(reader)


def test_a_torn_tail_is_not_read_and_is_reported(tmp_path: Path) -> None:
    fill(tmp_path, count=9, segment_bytes=1 << 20)
    path = tmp_path / list_segments(str(tmp_path))[-1]
    body = path.read_bytes()
    for cut in (1, 10, 50):
        path.write_bytes(body[:-cut])
        with LogReader(str(tmp_path)) as reader:
            assert [record.sequence for record in reader] == list(range(6))
            assert reader.tail is Tail.INCOMPLETE
    path.write_bytes(body + bytes(5000))
    with LogReader(str(tmp_path)) as reader:
        assert [record.sequence for record in reader] == list(range(9))
        assert reader.tail is Tail.ZEROS


def test_a_torn_tail_with_a_log_segment_after_it_is_corruption(log: Path, tmp_path: Path) -> None:
    names = list_segments(str(log))
    for name in names:
        (tmp_path / name).write_bytes((log / name).read_bytes())
    os.truncate(tmp_path / names[2], (log / names[2]).stat().st_size - 5)
    with LogReader(str(tmp_path)) as reader, pytest.raises(CorruptCommitError) as caught:
        list(reader)
    assert caught.value.path == str(tmp_path / names[2])


def test_a_missing_log_segment_is_a_gap(log: Path, tmp_path: Path) -> None:
    names = list_segments(str(log))
    for name in names[:2] + names[3:]:
        (tmp_path / name).write_bytes((log / name).read_bytes())
    with LogReader(str(tmp_path)) as reader, pytest.raises(SequenceGapError) as caught:
        list(reader)
    assert (caught.value.expected, caught.value.actual) == (int(names[2][:20]), int(names[3][:20]))


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    files=st.lists(st.lists(st.binary(max_size=6).filter(lambda line: b"\n" not in line), max_size=6), max_size=4),
    start=st.integers(0, 30),
    end=st.integers(0, 30),
)
def test_lines_are_numbered_through_all_files(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[bytes]], start: int, end: int
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    for number, lines in enumerate(files):
        (folder / f"app-{number}.txt").write_bytes(b"".join(line + b"\n" for line in lines))
    everything = list(enumerate(line for lines in files for line in lines))
    with LogReader(str(folder), LinesFormat("*.txt"), start=start, end=end) as reader:
        assert [(record.sequence, record.value) for record in reader] == everything[start:end]
    with LogReader(str(folder), LinesFormat("*.txt"), start="latest") as reader:
        assert [(record.sequence, record.value) for record in reader] == everything[-1:]


@settings(max_examples=examples(60))
@given(files=st.lists(st.binary(max_size=9), max_size=4), start=st.integers(0, 30), end=st.integers(0, 30))
def test_raw_bytes_are_numbered_by_their_place(
    tmp_path_factory: pytest.TempPathFactory, files: list[bytes], start: int, end: int
) -> None:
    folder = tmp_path_factory.mktemp("raw")
    for number, body in enumerate(files):
        (folder / f"part.{number}").write_bytes(body)
    with LogReader(str(folder), RawFormat("part.*"), start=start, end=end) as reader:
        records = list(reader)
    assert b"".join(record.value for record in records) == b"".join(files)[start:end]
    if records:
        assert records[0].sequence == start


@pytest.fixture(params=["events", "polling"])
def watcher(request: pytest.FixtureRequest) -> Iterator[Watcher]:
    watcher = Watcher()
    if request.param == "polling":
        watcher.close()
    elif not watcher.available:
        pytest.skip("no inotify here")
    yield watcher
    watcher.close()


def in_thread(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_follower_that_was_there_first_sees_everything_in_order(tmp_path: Path, watcher: Watcher) -> None:
    folder = tmp_path / "log"

    def write() -> None:
        with LogWriter(str(folder), fsync="never", segment_bytes=500) as writer:
            for number in range(1500):
                writer.append(b"%d" % number)

    with LogReader(str(folder), follow=True, end=1500, timeout=WAIT_SECONDS, watcher=watcher) as reader:
        thread = in_thread(write)
        got = [(record.sequence, record.value) for record in reader]
        thread.join()
    assert got == [(number, b"%d" % number) for number in range(1500)]


@pytest.mark.slow
def test_every_append_wakes_a_waiting_follower(tmp_path: Path, watcher: Watcher) -> None:
    with (
        LogWriter(str(tmp_path), fsync="never", segment_bytes=200) as writer,
        LogReader(str(tmp_path), follow=True, timeout=WAIT_SECONDS, watcher=watcher, poll_interval=0.002) as reader,
    ):
        turn = threading.Semaphore(0)

        def write() -> None:
            for number in range(200):
                turn.acquire(timeout=WAIT_SECONDS)
                writer.append(b"%d" % number)

        thread = in_thread(write)
        for number in range(200):
            turn.release()
            assert next(reader).sequence == number
        thread.join()


def test_a_follower_from_the_end_or_a_later_sequence_sees_only_new_records(tmp_path: Path) -> None:
    fill(tmp_path, count=10)
    with (
        LogReader(str(tmp_path), start="end", follow=True, block=False) as ending,
        LogReader(str(tmp_path), start=12, follow=True, block=False) as later,
        LogReader(str(tmp_path), start_time=120, follow=True, block=False) as timed,
    ):
        for reader in (ending, later, timed):
            with pytest.raises(NotYetAvailableError):
                reader.read()
        with LogWriter(str(tmp_path), fsync="never") as writer:
            writer.append([b"10", b"11", b"12", b"13"], timestamps=[100, 110, 120, 130])
        assert next(ending).sequence == 10
        assert next(later).sequence == 12
        assert next(timed).sequence == 12


def test_the_head_without_waiting_is_not_yet_and_reading_continues_after_it(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with LogReader(str(folder), follow=True, block=False) as reader:
        for count in range(5):
            with pytest.raises(NotYetAvailableError):
                next(reader)
            with LogWriter(str(folder)) as writer:
                writer.append(b"x")
                writer.roll()
            assert next(reader).sequence == count


@pytest.mark.slow
def test_a_commit_that_arrives_byte_by_byte_is_seen_once_it_is_whole(tmp_path: Path) -> None:
    fill(tmp_path / "whole", count=6, segment_bytes=1 << 20)
    name = list_segments(str(tmp_path / "whole"))[0]
    body = (tmp_path / "whole" / name).read_bytes()
    folder = tmp_path / "slow"
    folder.mkdir()
    got = []
    with LogReader(str(folder), follow=True, block=False) as reader, (folder / name).open("wb", 0) as stream:
        for place in range(len(body)):
            with pytest.raises(NotYetAvailableError):
                reader.read()
            stream.write(body[place : place + 1])
            if place + 1 in (64 + (len(body) - 64) // 2, len(body)):
                columns = reader.read()
                assert columns is not None
                got += columns.sequences.tolist()
    assert got == list(range(6))


def test_closing_wakes_a_blocked_reader(tmp_path: Path, watcher: Watcher) -> None:
    LogWriter(str(tmp_path)).close()
    ended: list[list[int]] = []
    for poll in (0.001, 60.0):
        reader = LogReader(str(tmp_path), follow=True, watcher=watcher, poll_interval=poll)
        thread = threading.Thread(target=lambda blocked: ended.append([r.sequence for r in blocked]), args=(reader,))
        thread.start()
        reader.close()
        reader.close()
        thread.join(WAIT_SECONDS)
        assert reader.read() is None
    assert ended == [[], []]


class LateNames(SegmentFolder):
    """Just before a listing, the log grows and continues in a new log segment."""

    writer: LogWriter | None = None

    def all(self) -> list[str]:
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.append(b"1")
            writer.roll()
            writer.append(b"2")
        return super().all()


def test_records_appended_between_the_end_of_file_and_the_listing_are_not_skipped(tmp_path: Path) -> None:
    log_format = LitelogFormat()
    names = LateNames(str(tmp_path), log_format, SystemClock())
    cursor = LogCursor(str(tmp_path), log_format, names)
    with LogWriter(str(tmp_path), fsync="never") as writer:
        writer.append(b"0")
        cursor.place(names.open(names.all()[0]), 0, Expectation())
        got = []
        names.writer = writer
        while (columns := cursor.next_records()) is not None:
            got += columns.sequences.tolist()
    cursor.close()
    assert got == [0, 1, 2]


class LateFiles(SegmentFolder):
    """The same for lines, which do not show their predecessors."""

    late: Path | None = None

    def all(self) -> list[str]:
        folder, self.late = self.late, None
        if folder is not None:
            with (folder / "a.1").open("ab") as stream:
                stream.write(b"one\n")
            (folder / "a.2").write_bytes(b"two\n")
        return super().all()


def test_lines_that_come_before_the_next_file_are_not_skipped(tmp_path: Path) -> None:
    log_format = LinesFormat("a.*")
    names = LateFiles(str(tmp_path), log_format, SystemClock())
    cursor = LogCursor(str(tmp_path), log_format, names)
    (tmp_path / "a.1").write_bytes(b"zero\n")
    cursor.place(names.open("a.1"), 0, Expectation(0))
    names.late = tmp_path
    got = []
    while (columns := cursor.next_records()) is not None:
        got += [record.value for record in columns.records()]
    cursor.close()
    assert got == [b"zero", b"one", b"two"]


class SilentWatcher(Watcher):
    """A watcher that wakes no reader. The log grows just before it is armed."""

    def __init__(self, writer: LogWriter) -> None:
        super().__init__()
        self.writer = writer

    def arm(self, folder: str, wake: Callable[[], None]) -> bool:
        self.writer.append(b"x")
        return True


def test_records_appended_before_the_watch_is_set_are_seen_without_a_wake_up(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path), fsync="never") as writer:
        watcher = SilentWatcher(writer)
        with LogReader(
            str(tmp_path), follow=True, timeout=WAIT_SECONDS, poll_interval=2 * WAIT_SECONDS, watcher=watcher
        ) as reader:
            assert [next(reader).sequence for _ in range(3)] == [0, 1, 2]
        watcher.close()


def test_a_deleted_log_segment_is_read_to_its_end_and_left_for_the_next(tmp_path: Path) -> None:
    with (
        LogWriter(str(tmp_path), fsync="never") as writer,
        LogReader(str(tmp_path), follow=True, block=False) as reader,
    ):
        writer.append(b"0")
        assert next(reader).sequence == 0
        writer.append(b"1")
        (tmp_path / list_segments(str(tmp_path))[0]).unlink()
        writer.append(b"2")
        assert [next(reader).value, next(reader).value] == [b"1", b"2"]
        with pytest.raises(NotYetAvailableError):
            next(reader)
        writer.roll()
        writer.append(b"3")
        assert next(reader).value == b"3"


@pytest.mark.parametrize("values", [[b"a"], [b"x", b"y"], [b"x", b"y", b"z"]], ids=["shorter", "same size", "longer"])
def test_a_follower_of_a_log_that_was_replaced_by_another_gets_an_error(tmp_path: Path, values: list[bytes]) -> None:
    log = tmp_path / "log"
    with LogWriter(str(log)) as writer:
        writer.append([b"a", b"b"])
        log_id = writer.log_id
    with LogReader(str(log), follow=True, block=False) as reader:
        assert [next(reader).value, next(reader).value] == [b"a", b"b"]
        log.rename(tmp_path / "gone")
        with pytest.raises(NotYetAvailableError):
            next(reader)
        with LogWriter(str(log), log_id=log_id) as writer:
            writer.append(values)
        with pytest.raises(DivergedError, match="replaced by a file with other bytes"):
            next(reader)


@pytest.mark.parametrize("log_format", [LinesFormat("app-*.log"), RawFormat("app-*.log")], ids=["lines", "raw"])
def test_a_follower_of_a_text_that_was_cut_and_written_again_gets_an_error(
    tmp_path: Path, log_format: LogFormat
) -> None:
    """Otherwise it would continue in the middle of a line of the new text."""
    path = tmp_path / "app-1.log"
    path.write_text("one\ntwo\n")
    with LogReader(str(tmp_path), log_format, follow=True, block=False) as reader:
        while True:
            try:
                next(reader)
            except NotYetAvailableError:
                break
        path.write_text("another text\nthat is longer\n")
        with pytest.raises(DivergedError, match="was rewritten before offset 8"):
            next(reader)


def put_copy_in_place(log: Path) -> None:
    """Replace the files in the folder: a reader that has them open has other files from now on."""
    copy = log.with_name("copy")
    shutil.copytree(log, copy)
    log.rename(log.with_name("gone"))
    copy.rename(log)


def test_a_follower_continues_in_a_copy_that_took_its_logs_place(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with LogWriter(str(log)) as writer:
        writer.append([b"a", b"b"])
    with LogReader(str(log), follow=True, block=False) as reader:
        assert [next(reader).value, next(reader).value] == [b"a", b"b"]
        put_copy_in_place(log)
        with pytest.raises(NotYetAvailableError):
            next(reader)
        with LogWriter(str(log)) as writer:
            writer.append(b"c")
        assert next(reader).value == b"c"


def test_a_follower_continues_in_a_copy_that_has_begun_another_log_segment(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with LogWriter(str(log)) as writer:
        writer.append([b"a", b"b"])
    with LogReader(str(log), follow=True, block=False) as reader:
        assert [next(reader).value, next(reader).value] == [b"a", b"b"]
        put_copy_in_place(log)
        with LogWriter(str(log)) as writer:
            writer.append(b"c")
            writer.roll()
            writer.append(b"d")
        assert [next(reader).value, next(reader).value] == [b"c", b"d"]


@pytest.mark.parametrize("log_format", [LinesFormat("app-*.log"), RawFormat("app-*.log")], ids=["lines", "raw"])
def test_nothing_of_a_copied_text_is_skipped_if_another_file_follows(tmp_path: Path, log_format: LogFormat) -> None:
    """No number shows that the next file does not continue what was read."""
    log = tmp_path / "log"
    log.mkdir()
    (log / "app-1.log").write_text("one\n")
    with LogReader(str(log), log_format, follow=True, block=False) as reader:
        assert next(reader).value.strip() == b"one"
        put_copy_in_place(log)
        with (log / "app-1.log").open("a") as file:
            file.write("two\n")
        (log / "app-2.log").write_text("three\n")
        assert [next(reader).value.strip(), next(reader).value.strip()] == [b"two", b"three"]


def test_a_follower_of_a_log_that_was_rewound_to_an_older_log_segment_gets_an_error(tmp_path: Path) -> None:
    fill(tmp_path, segment_bytes=500)
    newest = tmp_path / list_segments(str(tmp_path))[-1]
    with LogReader(str(tmp_path), follow=True, block=False) as reader:
        with pytest.raises(NotYetAvailableError):
            list(reader)
        newest.unlink()
        with pytest.raises(DivergedError, match="vanished, while"):
            next(reader)


def test_an_overtaken_follower_gets_an_error_with_the_first_remaining_record(tmp_path: Path) -> None:
    fill(tmp_path, count=30)
    names = list_segments(str(tmp_path))
    with LogReader(str(tmp_path), follow=True, block=False) as reader:
        first = reader.read()
        assert first is not None
        for name in names[:3]:
            (tmp_path / name).unlink()
        with pytest.raises(TruncatedError) as caught:
            list(reader.batches())
    assert (caught.value.requested, caught.value.first_available) == (len(first), int(names[3][:20]))


@pytest.mark.slow
def test_lines_are_followed_from_file_to_file(tmp_path: Path, watcher: Watcher) -> None:
    def write() -> None:
        for number in range(20):
            with (tmp_path / f"app-{number}.txt").open("ab", 0) as stream:
                for part in range(20):
                    stream.write(b"%d" % number)
                    stream.write(b".%d\n" % part)

    with LogReader(
        str(tmp_path), LinesFormat("*.txt"), follow=True, end=400, timeout=WAIT_SECONDS, watcher=watcher
    ) as reader:
        thread = in_thread(write)
        got = [record.value for record in reader]
        thread.join()
    assert got == [b"%d.%d" % (number, part) for number in range(20) for part in range(20)]


@pytest.mark.slow
def test_many_followers_share_one_watcher_and_miss_nothing(tmp_path: Path) -> None:
    watcher = Watcher()
    results: list[list[int]] = []

    def follow() -> None:
        with LogReader(str(tmp_path), follow=True, end=400, timeout=WAIT_SECONDS, watcher=watcher) as reader:
            results.append([record.sequence for record in reader])

    threads = [in_thread(follow) for _ in range(5)]
    with LogWriter(str(tmp_path), fsync="never", segment_bytes=2000) as writer:
        for number in range(400):
            writer.append_async(b"%d" % number)
    for thread in threads:
        thread.join(WAIT_SECONDS)
    watcher.close()
    assert results == [list(range(400))] * 5
