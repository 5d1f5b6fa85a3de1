"""LogWriter: acknowledged records are in the log, in order, also after a crash."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litelog.errors import (
    ClosedError,
    ConfigError,
    CorruptCommitError,
    LockedError,
    PoisonedError,
    SequenceConflictError,
    SequenceGapError,
    SourceError,
    StaleEpochError,
    WrongFormatError,
)
from litelog.formats.litelog.encoding import MAX_RECORDS
from litelog.log.disk import LocalDisk
from litelog.log.reader import LogReader
from litelog.log.recovery import list_segments
from litelog.log.sparse_index import IndexWriter
from litelog.log.writer import LogWriter
from tests.builders.child import in_child, runs_in_child
from tests.sampling import examples
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from typing_extensions import Buffer


class ManualClock:
    """A clock that stands until a test moves it."""

    def __init__(self, now: int = 1_000_000) -> None:
        self.time = now

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return self.time / 1e6


class FailingDisk(LocalDisk):
    """The real disk, until a test makes it fail. Counts syncs."""

    def __init__(self) -> None:
        self.syncs = 0
        self.folder_syncs = 0
        self.fail_sync = False
        self.torn_write: int | None = None
        self.gate: threading.Event | None = None
        self.unsynced = 0
        """Writes since the last sync."""

    def create(self, path: str) -> int:
        assert not self.unsynced, "a log segment begins before the previous one is durable"
        return super().create(path)

    def write(self, descriptor: int, buffers: Sequence[Buffer], offset: int) -> None:
        if self.gate is not None:
            self.gate.wait(WAIT_SECONDS)
        if self.torn_write is not None:
            body = b"".join(bytes(buffer) for buffer in buffers)[: self.torn_write]
            super().write(descriptor, [body], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.unsynced += 1
        super().write(descriptor, buffers, offset)

    def sync(self, descriptor: int) -> None:
        if self.fail_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.syncs += 1
        self.unsynced = 0
        super().sync(descriptor)

    def sync_folder(self, path: str) -> None:
        self.folder_syncs += 1
        super().sync_folder(path)


def values_in(folder: Path) -> list[bytes]:
    with LogReader(str(folder)) as reader:
        return [record.value for record in reader]


def newest(folder: Path) -> Path:
    return folder / list_segments(str(folder))[-1]


def test_appends_are_numbered_from_zero_and_read_back(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path / "a" / "log")) as writer:
        first = writer.append(b"one")
        second = writer.append([b"two", b"", b"four"], keys=[b"k", None, b""], timestamps=[3, 1, 2])
        third = writer.append([b"five"], keys=[None], timestamps=9)
    assert [(a.first, a.next) for a in (first, second, third)] == [(0, 1), (1, 4), (4, 5)]
    with LogReader(str(tmp_path / "a" / "log")) as reader:
        records = list(reader)
    assert [(r.sequence, r.key, r.value) for r in records] == [
        (0, None, b"one"),
        (1, b"k", b"two"),
        (2, None, b""),
        (3, b"", b"four"),
        (4, None, b"five"),
    ]
    assert [r.timestamp for r in records[1:]] == [3, 1, 2, 9]


def test_an_empty_batch_writes_nothing(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path)) as writer:
        writer.append(b"x")
        size = newest(tmp_path).stat().st_size
        for empty in ([], pa.array([], pa.binary())):
            appended = writer.append(empty)
            assert (appended.first, appended.next) == (1, 1)
        assert newest(tmp_path).stat().st_size == size


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.binary_view()])
def test_arrow_columns_are_taken_whole_sliced_and_chunked(tmp_path: Path, kind: pa.DataType) -> None:
    texts = [b"a", b"", b"ccc", b"dd", b"e" * 20]
    column = pa.array([t.decode() for t in texts] if kind == pa.string() else texts, kind)
    with LogWriter(str(tmp_path)) as writer:
        writer.append(column)
        writer.append(column.slice(1, 3))
        writer.append(pa.chunked_array([column, column.slice(4)]))
    assert values_in(tmp_path) == [*texts, *texts[1:4], *texts, texts[4]]


def test_record_batches_keep_keys_and_timestamps(tmp_path: Path) -> None:
    keys = pa.array([None, b"k", b"", None], pa.binary())
    stamps = pa.array([5, 6, 7, 8], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"value": pa.array([b"a", b"b", b"c", b"d"]), "key": keys, "timestamp": stamps})
    with LogWriter(str(tmp_path / "a")) as writer:
        writer.append(batch.slice(1))
        writer.append(pa.Table.from_batches([batch]))
    with LogReader(str(tmp_path / "a")) as reader:
        columns = list(reader.batches())
    with LogWriter(str(tmp_path / "b")) as writer:  # what a reader gives, a writer takes
        for part in columns:
            writer.append(part)
    for name in ("a", "b"):
        with LogReader(str(tmp_path / name)) as reader:
            got = [(r.timestamp, r.key, r.value) for r in reader]
        rows = [(5, None, b"a"), (6, b"k", b"b"), (7, b"", b"c"), (8, None, b"d")]
        assert got == rows[1:] + rows


def test_null_values_and_uneven_columns_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path)) as writer:
        wrong = (
            lambda: writer.append(pa.array([b"a", None])),
            lambda: writer.append([b"a"], keys=[b"k", b"l"]),
            lambda: writer.append([b"a", b"b"], timestamps=[1]),
            lambda: writer.append(b"a", keys=[b"k", b"l"]),
            lambda: writer.append([bytes(33 << 20)]),
            lambda: writer.append(b"a", timestamps=1 << 63),
            lambda: writer.append([b"a", b"b"], timestamps=[0, -(1 << 63) - 1]),
            lambda: writer.append([b"a", b"b"], timestamps=np.array([0, 1 << 63], np.uint64)),
            lambda: writer.append(pa.array([b"a"]), timestamps=1 << 63),
            lambda: writer.append(pa.array([b"a"]), timestamps=[1 << 63]),
            lambda: writer.append(pa.array([b"a"]), timestamps=pa.array([1 << 63], pa.uint64())),
            lambda: writer.append(pa.table({"record": [b"a"]})),
        )
        for append in wrong:
            with pytest.raises(ValueError, match=r"."):
                append()
        for other in ("text", ["text"], [1], {b"a"}, pa.array([1])):
            with pytest.raises(TypeError):
                writer.append(other)
        assert writer.append(b"good").first == 0
    assert values_in(tmp_path) == [b"good"]


NO_TIMESTAMPS: Sequence[Any] = (
    1 << 63,
    -(1 << 63) - 1,
    [1 << 63],
    [1.5],
    np.array([1.5]),
    np.array(["2026-11-22"], "datetime64[ns]"),
    lambda: pa.array([1.5]),  # made in the test: the first array imports pandas, if that is installed
    lambda: pa.array([(1 << 64) - 1], pa.uint64()),
    lambda: pa.array([20_000], pa.date32()),
    [1, 2],
    [],
)
"""Timestamps of one record, of which none is a number of microseconds."""


@pytest.mark.parametrize("values", [b"a", [b"a"], lambda: pa.array([b"a"])], ids=["one", "list", "arrow"])
@pytest.mark.parametrize("timestamps", NO_TIMESTAMPS)
def test_an_invalid_timestamp_is_refused_and_nothing_is_written(tmp_path: Path, values: Any, timestamps: Any) -> None:
    values, timestamps = (made() if callable(made) else made for made in (values, timestamps))
    with LogWriter(str(tmp_path)) as writer:
        with pytest.raises((ValueError, TypeError)):
            writer.append(values, timestamps=timestamps)
        assert writer.append(b"good", timestamps=5).first == 0
    assert values_in(tmp_path) == [b"good"]


def test_a_closed_writer_does_not_roll_a_log_that_another_one_has(tmp_path: Path) -> None:
    closed = LogWriter(str(tmp_path))
    closed.append(b"a")
    closed.close()
    with LogWriter(str(tmp_path)) as writer:
        writer.append(b"b")
        before = list_segments(str(tmp_path))
        with pytest.raises(ClosedError):
            closed.roll()
        assert list_segments(str(tmp_path)) == before
    with LogWriter(str(tmp_path)) as writer:
        assert writer.append(b"c").first == 2


@pytest.mark.slow
def test_a_batch_over_the_limits_becomes_several_commits_in_order(tmp_path: Path) -> None:
    in_child(lambda: append_batches_over_the_limits(str(tmp_path)))


def append_batches_over_the_limits(folder: str) -> None:
    count = 2 * MAX_RECORDS + 7
    small = [b"%d" % number for number in range(count)]
    large = [bytes([number]) * (9 << 20) for number in range(3)]
    with LogWriter(folder) as writer:
        assert writer.append(small).next == count
        assert writer.append(pa.array(small)).next == 2 * count
        assert writer.append(large, keys=[b"k"] * 3).next == 2 * count + 3
    expected = chain(small, small, large)
    with LogReader(folder) as reader:
        for columns in reader.arrow():
            values = columns.column("value").to_pylist()
            assert values == list(islice(expected, len(values)))
    assert next(expected, None) is None


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(
    batches=st.lists(st.lists(st.tuples(st.binary(max_size=60), st.none() | st.binary(max_size=9)), max_size=5)),
    segment_bytes=st.integers(1, 400),
    reopen=st.sets(st.integers(0, 9)),
)
def test_all_appended_records_are_read_back_with_segments_of_any_size(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[bytes, bytes | None]]],
    segment_bytes: int,
    reopen: set[int],
) -> None:
    folder = tmp_path_factory.mktemp("log")
    writer = LogWriter(str(folder), segment_bytes=segment_bytes, fsync="never")
    expected = []
    for number, batch in enumerate(batches):
        if number in reopen:
            writer.close()
            writer = LogWriter(str(folder), segment_bytes=segment_bytes, fsync="never")
        appended = writer.append([value for value, _ in batch], keys=[key for _, key in batch])
        assert (appended.first, appended.next) == (len(expected), len(expected) + len(batch))
        expected += batch
    writer.close()
    with LogReader(str(folder)) as reader:
        got = list(reader)
    assert [(r.value, r.key) for r in got] == expected
    assert [r.sequence for r in got] == list(range(len(expected)))


def test_the_clock_gives_timestamps_that_never_go_back(tmp_path: Path) -> None:
    clock = ManualClock(500)
    with LogWriter(str(tmp_path), clock=clock) as writer:
        writer.append([b"a", b"b"])
        clock.time = 100
        writer.append(b"c")
        writer.append(b"d", timestamps=900)
        writer.append(b"e", timestamps=7)
        writer.append(b"f")
    with LogWriter(str(tmp_path), clock=clock) as writer:
        writer.append(b"g")
        writer.roll()
    with LogWriter(str(tmp_path), clock=clock) as writer:
        writer.append(b"h")
    with LogReader(str(tmp_path)) as reader:
        assert [r.timestamp for r in reader] == [500, 500, 500, 900, 7, 900, 900, 900]


def test_a_wrong_expected_sequence_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path)) as writer:
        writer.append([b"a", b"b"], expected_sequence=0)
        for wrong in (0, 1, 3):
            for append in (writer.append, writer.append_async):
                with pytest.raises(SequenceConflictError) as caught:
                    append(b"x", expected_sequence=wrong)
                assert (caught.value.expected, caught.value.actual) == (wrong, 2)
        writer.append(b"c", expected_sequence=2)
    assert values_in(tmp_path) == [b"a", b"b", b"c"]


def test_of_many_threads_that_expect_one_sequence_exactly_one_wins(tmp_path: Path) -> None:
    won: list[int] = []
    with LogWriter(str(tmp_path), fsync="never") as writer:
        barrier = threading.Barrier(4)

        def compete(name: int) -> None:
            for sequence in range(100):
                barrier.wait(WAIT_SECONDS)
                try:
                    writer.append(b"%d" % name, expected_sequence=sequence)
                    won.append(sequence)
                except SequenceConflictError:
                    pass

        threads = [threading.Thread(target=compete, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(won) == list(range(100))
    assert len(values_in(tmp_path)) == 100


def test_numpys_integers_are_sequences_and_epochs(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path), epoch=np.uint64(3)) as writer:
        assert (
            repr(writer.append(b"a", expected_sequence=np.int64(0)))
            == "Appended(first=0, next=1, epoch=3, mirrored=None)"
        )
        assert repr(writer.append(b"b", epoch=np.int64(5))) == "Appended(first=1, next=2, epoch=5, mirrored=None)"


@pytest.mark.parametrize("number", ["1", 1.0])
def test_only_an_integer_is_a_sequence_or_an_epoch(tmp_path: Path, number: Any) -> None:
    with LogWriter(str(tmp_path)) as writer:
        writer.append(b"a")
        with pytest.raises(TypeError, match="integer"):
            writer.append(b"x", expected_sequence=number)
        with pytest.raises(TypeError, match="integer"):
            writer.append(b"x", epoch=number)
        assert writer.append(b"b").first == 1
    for epoch, error in ((number, TypeError), (1 << 64, ValueError)):
        with pytest.raises(error):
            LogWriter(str(tmp_path), epoch=epoch)


def test_stale_epochs_are_refused_also_after_reopening(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path), epoch=3) as writer:
        writer.append(b"a")
        assert writer.append(b"b", epoch=5).epoch == 5
        with pytest.raises(StaleEpochError):
            writer.append(b"x", epoch=4)
        assert writer.append(b"c").epoch == 5
        writer.roll()
    with pytest.raises(StaleEpochError):
        LogWriter(str(tmp_path), epoch=4)
    with LogWriter(str(tmp_path)) as writer:
        assert writer.append(b"d").epoch == 5
    assert values_in(tmp_path) == [b"a", b"b", b"c", b"d"]


def test_a_second_writer_is_locked_out_until_the_first_closes(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path)) as writer:
        with pytest.raises(LockedError):
            LogWriter(str(tmp_path))
        writer.append(b"a")
    with LogWriter(str(tmp_path)) as writer:
        assert writer.next_sequence == 1


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    for wrong in ({"fsync": "sometimes"}, {"on_trailing": "x"}, {"segment_bytes": 0}, {"fsync_interval": 0}):
        with pytest.raises(ConfigError):
            LogWriter(str(tmp_path), **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        LogWriter("")


def test_futures_resolve_in_the_order_of_the_calls(tmp_path: Path) -> None:
    resolved: list[int] = []
    with LogWriter(str(tmp_path)) as writer:
        futures = [writer.append_async(b"%d" % number) for number in range(500)]
        for future in futures:
            future.add_done_callback(lambda done: resolved.append(done.result().first))
        assert [future.result(WAIT_SECONDS).first for future in futures] == list(range(500))
    assert sorted(resolved) == list(range(500))
    assert values_in(tmp_path) == [b"%d" % number for number in range(500)]


def test_appends_that_queue_up_share_one_sync(tmp_path: Path) -> None:
    disk = FailingDisk()
    with LogWriter(str(tmp_path), disk=disk) as writer:
        disk.gate = threading.Event()
        futures = [writer.append_async(b"x") for _ in range(300)]
        before = disk.syncs
        disk.gate.set()
        assert futures[-1].result(WAIT_SECONDS).next == 300
        assert disk.syncs - before <= 2  # the first alone, if it was taken alone, and all the others


def test_a_callback_may_append_and_wait(tmp_path: Path) -> None:
    done = threading.Event()
    with LogWriter(str(tmp_path)) as writer:

        def follow_up(_: object) -> None:
            writer.append(b"second")
            writer.append_async(b"third").add_done_callback(lambda _: done.set())

        writer.append_async(b"first").add_done_callback(follow_up)
        assert done.wait(WAIT_SECONDS)
    assert values_in(tmp_path) == [b"first", b"second", b"third"]


@pytest.mark.slow
@runs_in_child
def test_a_full_queue_holds_the_caller_back(tmp_path: Path) -> None:
    disk = FailingDisk()
    queued: list[int] = []
    with LogWriter(str(tmp_path), disk=disk, fsync="never") as writer:
        disk.gate = threading.Event()

        def flood() -> None:
            for number in range(64):
                writer.append_async(bytes(1 << 20))
                queued.append(number)

        thread = threading.Thread(target=flood)
        thread.start()
        thread.join(0.5)
        held_back = thread.is_alive() and len(queued) < 64
        disk.gate.set()
        thread.join(WAIT_SECONDS)
        assert held_back
        assert not thread.is_alive()
    assert len(values_in(tmp_path)) == 64


@pytest.mark.slow
def test_threads_mix_both_ways_of_appending_and_lose_nothing(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path), segment_bytes=20_000) as writer:
        places: dict[bytes, int] = {}

        def work(name: int) -> None:
            for number in range(60):
                value = b"%d-%d" % (name, number)
                if number % 3:
                    places[value] = writer.append(value).first
                else:
                    places[value] = writer.append_async([value]).result(WAIT_SECONDS).first

        threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    got = values_in(tmp_path)
    assert len(got) == 360
    assert {value: place for place, value in enumerate(got)} == places


def test_close_writes_queued_records_and_refuses_more(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path))
    futures = [writer.append_async(b"x") for _ in range(50)]
    writer.close()
    writer.close()
    assert all(future.done() and future.exception() is None for future in futures)
    for refused in (lambda: writer.append(b"y"), lambda: writer.append_async(b"y")):
        with pytest.raises(ClosedError):
            refused()
    with pytest.raises(ClosedError):
        writer.wait_durable(51)
    assert len(values_in(tmp_path)) == 50


def test_always_syncs_every_append_and_a_new_segment_with_its_folder(tmp_path: Path) -> None:
    disk = FailingDisk()
    with LogWriter(str(tmp_path), disk=disk) as writer:
        before = disk.syncs
        for number in range(5):
            writer.append(b"x")
            assert writer.durable_sequence == number + 1
        assert disk.syncs == before + 5
        folder_syncs = disk.folder_syncs
        writer.roll()
        assert disk.folder_syncs == folder_syncs + 1


def test_a_log_segment_is_durable_before_the_next_begins_under_any_policy(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path), disk=FailingDisk(), fsync="never", segment_bytes=200) as writer:
        for _ in range(10):
            writer.append([b"x" * 50] * 2)
        writer.append([b"y"])
        writer.roll()
    assert len(list_segments(str(tmp_path))) > 5


def test_never_is_durable_at_a_roll_a_sync_and_no_sooner(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path), fsync="never") as writer:
        writer.append([b"a", b"b"])
        assert writer.durable_sequence == 0
        assert not writer.wait_durable(2, timeout=0.01)
        writer.roll()
        assert writer.durable_sequence == 2
        writer.append(b"c")
        writer.sync()
        assert writer.wait_durable(3)


def test_interval_becomes_durable_by_itself(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path), fsync="interval", fsync_interval=0.01) as writer:
        assert writer.wait_durable(writer.append([b"a"] * 10).next, WAIT_SECONDS)
        assert writer.wait_durable(writer.append_async([b"a"] * 10).result().next, WAIT_SECONDS)
        assert writer.durable_sequence == 20


def test_waiters_wake_when_their_records_are_durable(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path), fsync="never") as writer:
        woken: list[bool] = []
        thread = threading.Thread(target=lambda: woken.append(writer.wait_durable(3, WAIT_SECONDS)))
        thread.start()
        writer.append([b"a", b"b", b"c"])
        writer.sync()
        thread.join(WAIT_SECONDS)
        assert woken == [True]


class AskedDisk(FailingDisk):
    """Asks whether a record is durable while the sync runs that makes it durable."""

    def __init__(self) -> None:
        super().__init__()
        self.ask: Callable[[], Future[bool]] | None = None
        self.answer: Future[bool] | None = None

    def sync(self, descriptor: int) -> None:
        if self.ask is not None and self.answer is None:
            self.answer = self.ask()
        super().sync(descriptor)


def test_wait_durable_returns_for_records_that_close_makes_durable(tmp_path: Path) -> None:
    disk = AskedDisk()
    writer = LogWriter(str(tmp_path), fsync="never", disk=disk)
    appended = writer.append(b"a")
    with ThreadPoolExecutor(1) as pool:
        disk.ask = lambda: pool.submit(writer.wait_durable, appended.next, WAIT_SECONDS)
        writer.close()
        assert disk.answer is not None
        assert disk.answer.result(WAIT_SECONDS)
    with pytest.raises(ClosedError):
        writer.wait_durable(appended.next + 1)


def test_a_callback_may_wait_for_records_that_close_makes_durable(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), fsync="never")
    answers: list[bool] = []
    future = writer.append_async(b"a")
    future.add_done_callback(lambda done: answers.append(writer.wait_durable(done.result().next, WAIT_SECONDS)))
    writer.close()
    assert answers == [True]


@pytest.mark.parametrize("fault", ["sync", "write"])
def test_a_failed_write_or_sync_poisons_the_writer_for_all(tmp_path: Path, fault: str) -> None:
    disk = FailingDisk()
    writer = LogWriter(str(tmp_path), disk=disk)
    writer.append(b"kept")
    disk.gate = threading.Event()
    futures = [writer.append_async(b"lost") for _ in range(20)]
    disk.fail_sync, disk.torn_write = fault == "sync", 30 if fault == "write" else None
    disk.gate.set()
    with pytest.raises(PoisonedError):
        writer.append(b"lost")
    for future in futures:
        assert isinstance(future.exception(WAIT_SECONDS), PoisonedError)
    disk.fail_sync, disk.torn_write = False, None
    for refused in (lambda: writer.append(b"x"), lambda: writer.append_async(b"x"), writer.sync, writer.roll):
        with pytest.raises(PoisonedError):
            refused()
    with pytest.raises(PoisonedError):
        writer.wait_durable(2)
    assert writer.durable_sequence == 1
    writer.close()
    assert values_in(tmp_path)[:1] == [b"kept"]
    with LogWriter(str(tmp_path)) as again:
        again.append(b"more")
    got = values_in(tmp_path)
    assert (got[0], got[-1]) == (b"kept", b"more")


def test_a_failed_sync_at_close_is_reported(tmp_path: Path) -> None:
    disk = FailingDisk()
    writer = LogWriter(str(tmp_path), disk=disk, fsync="never")
    writer.append(b"x")
    disk.fail_sync = True
    with pytest.raises(PoisonedError):
        writer.close()
    LogWriter(str(tmp_path)).close()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_sync_that_failed_in_the_background_is_reported_at_close(tmp_path: Path, asynchronous: bool) -> None:
    disk = FailingDisk()
    writer = LogWriter(str(tmp_path), disk=disk, fsync="interval", fsync_interval=0.01)
    with writer._group.write_lock:  # no sync comes between
        appended = writer.append_async(b"x") if asynchronous else writer.append(b"x")
        disk.fail_sync = True
    with writer._group.changed:
        assert writer._group.changed.wait_for(lambda: writer._group.poisoned, WAIT_SECONDS)
    assert appended
    with pytest.raises(PoisonedError):
        writer.close()
    writer.close()
    LogWriter(str(tmp_path)).close()


def test_a_failure_that_only_a_future_shows_is_reported_at_close(tmp_path: Path) -> None:
    disk = FailingDisk()
    writer = LogWriter(str(tmp_path), disk=disk)
    disk.fail_sync = True
    assert isinstance(writer.append_async(b"lost").exception(WAIT_SECONDS), PoisonedError)
    with pytest.raises(PoisonedError):
        writer.close()


def test_a_failure_that_was_raised_is_not_reported_again_at_close(tmp_path: Path) -> None:
    disk = FailingDisk()
    with LogWriter(str(tmp_path), disk=disk) as writer:
        disk.fail_sync = True
        with pytest.raises(PoisonedError):
            writer.append(b"lost")


def test_a_failed_roll_poisons_and_reopening_continues(tmp_path: Path) -> None:
    disk = FailingDisk()
    writer = LogWriter(str(tmp_path), disk=disk)
    writer.append(b"a")
    disk.torn_write = 10  # of the new segment's header
    with pytest.raises(PoisonedError):
        writer.roll()
    writer.close()
    assert newest(tmp_path).stat().st_size == 10
    with LogWriter(str(tmp_path)) as again:
        assert again.append(b"b", expected_sequence=1).epoch == 0
    assert values_in(tmp_path) == [b"a", b"b"]


@pytest.mark.parametrize("exists", [False, True])
def test_a_log_that_cannot_be_opened_keeps_no_descriptor(tmp_path: Path, exists: bool) -> None:
    if exists:
        make_log(tmp_path)
    disk = FailingDisk()
    disk.fail_sync = True
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(SourceError):
            LogWriter(str(tmp_path), disk=disk)
    assert len(os.listdir("/proc/self/fd")) == before


def make_log(folder: Path, batches: int = 4, **settings: object) -> list[int]:
    """Write a log of one segment with three records a commit. Returns the ends of its commits."""
    ends = []
    with LogWriter(str(folder), fsync="never", **settings) as writer:  # type: ignore[arg-type]
        for number in range(batches):
            writer.append([b"%d-%d" % (number, part) for part in range(3)])
            ends.append(newest(folder).stat().st_size)
    return ends


@pytest.mark.slow
def test_a_log_torn_at_every_byte_keeps_all_commits_before_and_continues(tmp_path: Path) -> None:
    ends = make_log(tmp_path / "whole")
    body = newest(tmp_path / "whole").read_bytes()
    folder = tmp_path / "torn"
    folder.mkdir()
    for cut in range(len(body)):
        for path in folder.iterdir():
            path.unlink()
        (folder / "00000000000000000000.log").write_bytes(body[:cut])
        commits = sum(end <= cut for end in ends)
        with LogWriter(str(folder), fsync="never") as writer:
            assert writer.append(b"next").first == 3 * commits, cut
        assert len(values_in(folder)) == 3 * commits + 1, cut


@pytest.mark.slow
def test_a_torn_tail_is_refused_where_that_was_asked_for(tmp_path: Path) -> None:
    ends = make_log(tmp_path)
    body = newest(tmp_path).read_bytes()
    for cut in range(ends[-2] + 1, ends[-1]):
        newest(tmp_path).write_bytes(body[:cut])
        with pytest.raises(CorruptCommitError) as caught:
            LogWriter(str(tmp_path), on_trailing="error")
        assert caught.value.offset == ends[-2]
        assert newest(tmp_path).read_bytes() == body[:cut]
    newest(tmp_path).write_bytes(body)
    LogWriter(str(tmp_path), on_trailing="error").close()


@pytest.mark.parametrize("with_index", [True, False])
def test_a_bad_commit_with_good_ones_after_is_never_cut(tmp_path: Path, *, with_index: bool) -> None:
    ends = make_log(tmp_path, batches=5)
    path = newest(tmp_path)
    if not with_index:
        path.with_suffix(".index").unlink()
    body = bytearray(path.read_bytes())
    body[ends[1] + 45] ^= 1
    path.write_bytes(body)
    for mode in ("trim", "error"):
        with pytest.raises(CorruptCommitError) as caught:
            LogWriter(str(tmp_path), on_trailing=mode)  # type: ignore[arg-type]
        assert caught.value.offset == ends[1]
        assert caught.value.path == str(path)
    assert path.read_bytes() == body


def test_zeros_after_the_last_commit_are_cut_in_both_modes(tmp_path: Path) -> None:
    ends = make_log(tmp_path)
    for mode in ("trim", "error"):
        with newest(tmp_path).open("ab") as stream:
            stream.write(bytes(10_000))
        with LogWriter(str(tmp_path), on_trailing=mode) as writer:  # type: ignore[arg-type]
            assert writer.next_sequence == 12
        assert newest(tmp_path).stat().st_size == ends[-1]


@pytest.mark.parametrize("left", ["empty", "header", "torn", "zeros"])
def test_a_writer_continues_after_a_crashed_roll(tmp_path: Path, left: str) -> None:
    with LogWriter(str(tmp_path), epoch=7) as writer:
        writer.append([b"a", b"b"])
        writer.roll()
        log_id = writer.log_id
    path = newest(tmp_path)
    header = path.read_bytes()
    assert len(header) == 64
    path.write_bytes({"empty": b"", "header": header, "torn": header[:40], "zeros": bytes(64)}[left])
    with LogWriter(str(tmp_path)) as writer:
        assert writer.log_id == log_id
        assert writer.append(b"c", expected_sequence=2).epoch == 7
    assert [p.name for p in sorted(tmp_path.glob("*.log"))] == [f"{0:020d}.log", f"{2:020d}.log"]
    assert values_in(tmp_path) == [b"a", b"b", b"c"]


def test_segments_that_do_not_follow_are_refused(tmp_path: Path) -> None:
    with LogWriter(str(tmp_path)) as writer:
        writer.append(b"a")
        writer.roll()
    newest(tmp_path).rename(tmp_path / f"{5:020d}.log")
    (tmp_path / f"{5:020d}.log").write_bytes(b"")
    with pytest.raises(SequenceGapError):
        LogWriter(str(tmp_path))
    for other in (b"something else altogether", bytes(8) + b"\0\0\0\x3a\0\0\0\0\x02" + bytes(60)):
        (tmp_path / f"{5:020d}.log").write_bytes(other)
        with pytest.raises(WrongFormatError):
            LogWriter(str(tmp_path))
        assert (tmp_path / f"{5:020d}.log").read_bytes() == other


def test_a_damaged_header_with_commits_after_is_refused(tmp_path: Path) -> None:
    make_log(tmp_path)
    path = newest(tmp_path)
    body = bytearray(path.read_bytes())
    body[20] ^= 1
    path.write_bytes(body)
    with pytest.raises(CorruptCommitError):
        LogWriter(str(tmp_path))
    assert path.read_bytes() == body


def test_a_copy_without_index_and_lock_continues_under_the_same_id(tmp_path: Path) -> None:
    make_log(tmp_path / "log", segment_bytes=300)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in (tmp_path / "log").glob("*.log"):
        (copy / path.name).write_bytes(path.read_bytes())
    with LogWriter(str(tmp_path / "log")) as one, LogWriter(str(copy)) as two:
        assert one.log_id == two.log_id
        assert two.append(b"z").first == 12
    assert values_in(copy) == [*values_in(tmp_path / "log"), b"z"]


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(data=st.data())
def test_any_index_whatsoever_changes_nothing(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("log")
    with LogWriter(str(folder), fsync="never") as writer:
        ends = []
        for number in range(6):
            writer.append(b"%d" % number * 3000)
            ends.append(newest(folder).stat().st_size)
    segment = newest(folder)
    index = segment.with_suffix(".index")
    body = index.read_bytes()
    assert len(body) >= 3 * 32
    kind = data.draw(st.sampled_from(["flip", "shuffle", "noise", "cut", "gone", "lies"]))
    if kind == "flip":
        flipped = bytearray(body)
        flipped[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        index.write_bytes(flipped)
    elif kind == "shuffle":
        entries = [body[at : at + 32] for at in range(0, len(body), 32)]
        index.write_bytes(b"".join(data.draw(st.permutations(entries))))
    elif kind == "noise":
        index.write_bytes(data.draw(st.binary(max_size=200)))
    elif kind == "lies":
        with LogWriter(str(folder)) as writer:
            lying = IndexWriter(str(segment), writer.log_id)
        place = st.tuples(st.integers(0, 9), st.integers(0, 400).map(lambda word: 64 + 8 * word), st.integers(0, 9))
        for number, (sequence, offset, highest) in enumerate(data.draw(st.lists(place, min_size=1, max_size=4))):
            lying.add(sequence, offset + 4096 * number, highest)
        lying.close()
    elif kind == "cut":
        index.write_bytes(body[: data.draw(st.integers(0, len(body)))])
    else:
        index.unlink()
    cut = data.draw(st.integers(64, segment.stat().st_size))
    os.truncate(segment, cut)
    expected = [b"%d" % number * 3000 for number in range(6)][: sum(end <= cut for end in ends)]
    for sequence in range(len(expected)):
        with LogReader(str(folder), start=sequence) as reader:
            assert next(reader).value == expected[sequence]
    with LogWriter(str(folder), fsync="never") as writer:
        assert writer.append(b"end").first == len(expected)
    assert values_in(folder) == [*expected, b"end"]


WRITER = """
import sys
from litelog.log.writer import LogWriter
with LogWriter(sys.argv[1], segment_bytes=int(sys.argv[2])) as writer:
    number = writer.next_sequence
    while True:
        if number % 4:
            number = writer.append([b"%d" % n for n in range(number, number + 3)]).next
        else:
            futures = [writer.append_async(b"%d" % n) for n in range(number, number + 5)]
            number = futures[-1].result().next
        sys.stdout.write(f"{number}\\n")
        sys.stdout.flush()
"""


@pytest.mark.slow
def test_a_killed_writer_keeps_all_it_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(11)
    acknowledged = 0
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), "3000"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(chance.randrange(1, 200)):
            acknowledged = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        for line in process.stdout:
            if line.endswith("\n"):
                acknowledged = int(line)
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        got = values_in(tmp_path)
        assert len(got) >= acknowledged
        assert got == [b"%d" % number for number in range(len(got))]
    with LogWriter(str(tmp_path)) as writer:
        assert writer.next_sequence >= acknowledged > 0


FILLER = """
import resource, signal, sys
from litelog.errors import PoisonedError
from litelog.log.writer import LogWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
writer = LogWriter(sys.argv[1])
done = writer.next_sequence
try:
    while True:
        done = writer.append([b"%d" % n for n in range(done, done + 10)]).next
except PoisonedError as error:
    print(done, type(error.__cause__).__name__)
writer.close()
"""


@pytest.mark.slow
def test_a_disk_that_fills_in_the_middle_of_a_commit_leaves_earlier_commits(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    for limit in (5_000, 20_001):
        done = subprocess.run(
            [sys.executable, "-c", FILLER, str(tmp_path), str(limit)], capture_output=True, text=True, check=True
        )
        count, cause = done.stdout.split()
        assert cause == "OSError"
        assert newest(tmp_path).stat().st_size == limit
        assert values_in(tmp_path) == [b"%d" % number for number in range(int(count))]
    with LogWriter(str(tmp_path)) as writer:
        assert writer.recovered is not None
        assert writer.recovered.trimmed > 0
        assert writer.next_sequence == int(count)
        writer.append(np.arange(3).tobytes())
    assert len(values_in(tmp_path)) == int(count) + 1


@pytest.mark.parametrize("place", ["file", "fifo", "file/below"])
def test_a_log_is_not_written_where_something_else_is(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SourceError, match="is not a folder") as caught:
        LogWriter(str(tmp_path / place))
    assert "Errno" not in str(caught.value)
