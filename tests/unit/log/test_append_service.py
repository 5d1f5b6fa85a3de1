"""Appends to several logs: in order, grouped, after others, and taken back as a whole."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

import litelog
from litelog.errors import ClosedError, ConfigError, DependencyError, SequenceConflictError
from litelog.formats.litelog.encoding import MAX_RECORDS
from litelog.log import group_commit
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litelog.log.append_service import Transaction


class Logs:
    """Two logs, ``a`` and ``b``, with one service."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writers = {name: litelog.LogWriter(folder / name, fsync="never") for name in ("a", "b")}
        self.service = litelog.AppendService(self.writers)

    def held(self, name: str) -> list[bytes]:
        """The values in a log."""
        with litelog.LogReader(self.folder / name) as reader:
            return [record.value for record in reader]

    def close(self) -> None:
        self.service.close()
        for writer in self.writers.values():
            writer.close()


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    made = Logs(tmp_path)
    yield made
    made.close()


def result(future: Future[Any]) -> Any:
    return future.result(WAIT_SECONDS)


def test_appends_of_a_log_are_in_the_order_of_the_calls(logs: Logs) -> None:
    futures = [logs.service.append("ab"[number % 2], b"%d" % number) for number in range(200)]
    assert [result(future).first for future in futures] == [number // 2 for number in range(200)]
    assert logs.held("a") == [b"%d" % number for number in range(0, 200, 2)]
    assert logs.held("b") == [b"%d" % number for number in range(1, 200, 2)]


def test_many_threads_get_distinct_sequences(logs: Logs) -> None:
    firsts: list[int] = []

    def append(thread: int) -> None:
        found = [logs.service.append("a", b"%d-%d" % (thread, number)) for number in range(50)]
        firsts.extend(result(future).first for future in found)

    threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(firsts) == list(range(200))
    held = logs.held("a")
    for thread in range(4):
        mine = [value for value in held if value.startswith(b"%d-" % thread)]
        assert mine == [b"%d-%d" % (thread, number) for number in range(50)]


def test_an_append_waits_for_what_it_depends_on_and_later_ones_wait_with_it(logs: Logs) -> None:
    gate: Future[None] = Future()
    waiting = logs.service.append("a", b"waits", after=[gate])
    later = logs.service.append("a", b"later")
    chained = logs.service.append("b", b"chained", after=[waiting])
    other = logs.service.append("b", b"other")
    assert result(logs.writers["b"].append_async(b"direct")).first == 0, "the writer itself is not held up"
    assert [each.done() for each in (waiting, later, chained, other)] == [False] * 4
    assert logs.held("a") == []
    assert not logs.service.barrier(timeout=0)
    gate.set_result(None)
    assert [result(each).first for each in (waiting, later, chained, other)] == [0, 1, 1, 2]
    assert (logs.held("a"), logs.held("b")) == ([b"waits", b"later"], [b"direct", b"chained", b"other"])


def test_if_a_dependency_fails_nothing_is_written_and_the_log_continues(logs: Logs) -> None:
    failed, cancelled = Future[None](), Future[None]()
    failed.set_exception(ValueError("out of stock"))
    cancelled.cancel()
    first = logs.service.append("a", b"never", after=[failed])
    second = logs.service.append("b", b"never", after=[first])
    third = logs.service.append("b", b"never", after=[cancelled])
    kept = logs.service.append("b", b"kept")
    with pytest.raises(DependencyError, match="a: nothing was appended, as what the append waited for failed: out of"):
        result(first)
    with pytest.raises(DependencyError, match="b: nothing was appended"):
        result(second)
    with pytest.raises(DependencyError, match="was cancelled"):
        result(third)
    assert result(kept).first == 0
    assert (logs.held("a"), logs.held("b")) == ([], [b"kept"])


def test_a_wrong_expected_sequence_is_refused_and_nothing_is_written(logs: Logs) -> None:
    futures = [logs.service.append("a", b"x", expected_sequence=sequence) for sequence in (0, 7, 1)]
    assert [result(futures[0]).first, result(futures[2]).first] == [0, 1]
    with pytest.raises(SequenceConflictError):
        result(futures[1])
    with pytest.raises(TypeError):
        result(logs.service.append("a", 5))  # type: ignore[arg-type]
    assert logs.held("a") == [b"x", b"x"]


def test_a_transaction_is_visible_as_a_whole_at_its_end(logs: Logs) -> None:
    with logs.service.transaction("a") as transaction:
        transaction.write(b"order", key=b"7")
        transaction.write(b"line")
        logs.service.append("a", b"before")
        wait_until(lambda: logs.held("a") == [b"before"])
        with pytest.raises(ClosedError, match="was not appended"):
            transaction.result()
    appended = transaction.result(WAIT_SECONDS)
    assert (appended.first, appended.next) == (1, 3)
    with litelog.LogReader(logs.folder / "a", start=1) as reader:
        assert [(record.key, record.value) for record in reader] == [(b"7", b"order"), (None, b"line")]
    with pytest.raises(ClosedError, match="has ended"):
        transaction.write(b"late")


def test_an_error_takes_a_transaction_back(logs: Logs) -> None:
    transactions: list[Transaction] = []

    def break_off() -> None:
        with logs.service.transaction("a") as transaction:
            transactions.append(transaction)
            transaction.write(b"never")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    (transaction,) = transactions
    with pytest.raises(ClosedError, match="was not appended"):
        transaction.result()
    gate: Future[None] = Future()
    with logs.service.transaction("a", after=[gate]) as second:
        second.write(b"never")
    gate.set_exception(ValueError("no"))
    with pytest.raises(DependencyError):
        second.result(WAIT_SECONDS)
    assert result(logs.service.append("a", b"kept")).first == 0
    assert logs.held("a") == [b"kept"]


def test_a_transaction_is_one_commit_at_most(logs: Logs) -> None:
    def write(values: list[bytes]) -> None:
        with logs.service.transaction("a") as transaction:
            for value in values:
                transaction.write(value)

    with pytest.raises(ValueError, match="a transaction is one commit"):
        write([bytes(20 << 20)] * 2)
    with pytest.raises(ValueError, match="at most 65535 records"):
        write([b""] * (MAX_RECORDS + 1))
    assert logs.held("a") == []


def test_the_pending_appends_of_other_logs_may_be_waited_for(logs: Logs) -> None:
    """A checkpoint in one log states what was written to the others."""
    gate: Future[None] = Future()
    first = logs.service.append("a", b"data", after=[gate])
    assert logs.service.pending_except("a") == []
    assert logs.service.pending_except("b") == logs.service.pending_except() == [first]
    checkpoint = logs.service.append("b", b"checkpoint", after=logs.service.pending_except("b"))
    assert not checkpoint.done()
    gate.set_result(None)
    assert result(checkpoint).first == 0
    assert logs.service.barrier(WAIT_SECONDS)
    assert logs.service.pending_except() == []


def test_a_callback_may_append_again(logs: Logs) -> None:
    again: list[Future[Any]] = []
    first = logs.service.append("a", b"first")
    first.add_done_callback(lambda _: again.append(logs.service.append("a", b"second", after=[first])))
    wait_until(lambda: bool(again))
    assert result(again[0]).first == 1


def test_closing_waits_for_all_appends_and_refuses_more(logs: Logs) -> None:
    gate: Future[None] = Future()
    waiting = logs.service.append("a", b"waits", after=[gate])
    threading.Timer(0.05, lambda: gate.set_result(None)).start()
    logs.service.close()
    assert result(waiting).first == 0
    with pytest.raises(ClosedError):
        logs.service.append("a", b"late")
    with pytest.raises(ConfigError, match="c: no such log; known: a, b"):
        logs.service.append("c", b"x")
    logs.service.close()


def test_a_log_without_room_holds_up_no_other(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "QUEUE_BYTES", 1)
    with logs.writers["a"]._group.write_lock:
        waiting = [logs.service.append("a", b"%d" % number) for number in range(3)]
        chained = logs.service.append("b", b"chained", after=[logs.service.append("b", b"first")])
        assert result(chained).first == 1
        assert logs.held("b") == [b"first", b"chained"]
        assert [each.done() for each in waiting] == [False] * 3
    assert [result(each).first for each in waiting] == [0, 1, 2]


@pytest.mark.parametrize("log", ["a", "b"])
def test_a_callback_may_close_the_service(logs: Logs, log: str) -> None:
    """It does not wait for appends that are done only after the callback. What was accepted is written."""
    gate, closed, done = Future[None](), threading.Event(), list[bool]()

    def close(_: Future[Any]) -> None:
        done.append(logs.service.barrier())
        logs.service.close()
        closed.set()

    first = logs.service.append(log, b"first", after=[gate])
    first.add_done_callback(close)
    later = logs.service.append("a", b"later", after=[first])
    gate.set_result(None)
    assert closed.wait(WAIT_SECONDS)
    assert result(later).next == len(logs.held("a"))
    assert done in ([False], [True])
    with pytest.raises(ClosedError):
        logs.service.append("a", b"refused")
    logs.service.close()
    assert logs.service.barrier(timeout=0)


def test_a_callback_of_an_append_that_fails_may_close_the_service(logs: Logs) -> None:
    closed = threading.Event()
    failing = logs.service.append("a", b"x", expected_sequence=7)
    failing.add_done_callback(lambda _: (logs.service.close(), closed.set()))
    assert closed.wait(WAIT_SECONDS)
    with pytest.raises(SequenceConflictError):
        result(failing)


def test_an_append_is_refused_while_no_thread_can_start(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse_to_start)
        with pytest.raises(RuntimeError, match="can't start"):
            logs.service.append("a", b"refused")
    assert logs.service.pending_except() == []
    assert result(logs.service.append("a", b"next")).first == 0
    assert logs.held("a") == [b"next"]


def refuse_to_start(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
