"""A consumer continues after what it committed: nothing is left out, and only what was not committed comes again."""

from __future__ import annotations

import shutil
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import litelog
from litelog.consumers.position_file import PositionFile
from litelog.errors import SourceMissingError
from litelog.log.replica_registry import log_state_folder
from tests.builders.truncated_logs import fill_log, note_replica
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Consume = Callable[..., litelog.Consumer]

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


def append(log: str, *values: bytes) -> None:
    with litelog.LogWriter(log, fsync="never") as writer:
        writer.append(list(values))


def taken(consumer: litelog.Consumer, count: int | None = None) -> list[int]:
    """The sequences of the next records, or of all that are left."""
    found: list[int] = []
    while count is None or len(found) < count:
        record = next(consumer, None)
        if record is None:
            break
        found.append(record.sequence)
    return found


def test_it_continues_after_the_last_commit(consume: Consume) -> None:
    first = consume()
    assert taken(first, 3) == [0, 1, 2]
    first.commit()
    assert first.position == 3
    assert taken(first, 2) == [3, 4]  # not committed
    first.close()
    second = consume()
    assert taken(second) == [3, 4, 5, 6, 7, 8, 9]
    second.commit()
    assert taken(consume()) == []


def test_a_consumer_that_follows_waits_for_a_log_that_does_not_exist_yet(consume: Consume, tmp_path: Path) -> None:
    log = str(tmp_path / "later")
    with consume(log=log, follow=True) as consumer:
        assert consumer.poll(0.0) is None
        append(log, b"first")
        found = consumer.poll(WAIT_SECONDS)
        assert found is not None
        assert found.sequences.tolist() == [0]
    with consume("other", str(tmp_path / "never")) as ending, pytest.raises(SourceMissingError, match="no such folder"):
        ending.poll()


def test_without_a_commit_everything_comes_again(consume: Consume) -> None:
    with consume() as first:
        assert taken(first) == list(range(10))
    assert taken(consume()) == list(range(10))


def test_consumers_of_other_names_have_positions_of_their_own(consume: Consume) -> None:
    first = consume("billing")
    taken(first, 4)
    first.commit()
    assert taken(consume("audit")) == list(range(10))
    assert taken(consume("billing")) == [4, 5, 6, 7, 8, 9]


def test_a_poll_returns_what_iteration_has_buffered(consume: Consume) -> None:
    consumer = consume()
    assert taken(consumer, 2) == [0, 1]
    columns = consumer.poll()
    assert columns is not None
    assert columns.sequences.tolist() == list(range(2, 10))
    consumer.commit()
    assert consumer.position == 10
    assert consumer.poll() is None


def test_a_part_of_what_was_returned_may_be_committed(consume: Consume) -> None:
    consumer = consume()
    assert consumer.poll() is not None
    consumer.commit(4)
    assert consumer.position == 4
    consumer.commit(2)  # before it: changes nothing
    assert consumer.position == 4
    with pytest.raises(ValueError, match="records before 11 have not been read yet: the next one is 10"):
        consumer.commit(11)
    assert taken(consume()) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ({"start": "earliest"}, 0),
        ({"start": 4}, 4),
        ({"start": "latest"}, 9),
        ({"start": NOON + timedelta(minutes=6)}, 6),
        ({"start_time": NOON + timedelta(minutes=7)}, 7),
        ({"start": NOON + timedelta(days=1)}, 10),
        ({"start": "end"}, 10),
    ],
)
def test_a_new_consumer_begins_at_any_start(consume: Consume, orders: str, start: dict[str, Any], first: int) -> None:
    consumer = consume(**start)
    assert consumer.position == (first or None)
    append(orders, b"10")  # also those that begin at the end get this one
    assert taken(consumer) == list(range(first, 11))


def test_the_start_is_fixed_before_the_first_record(consume: Consume, orders: str) -> None:
    assert consume(start="end").position == 10  # and it ends without a commit
    append(orders, b"10", b"11")
    assert taken(consume(start="end")) == [10, 11]
    assert taken(consume(start=0)) == [10, 11]


def test_the_end_of_an_empty_log_leaves_nothing_out(consume: Consume, tmp_path: Path) -> None:
    log = str(tmp_path / "new")
    consumer = consume(log=log, start="end", follow=True)
    assert consumer.position is None
    consumer.close()
    append(log, b"0", b"1")
    assert taken(consume(log=log, start="end")) == [0, 1]


def test_a_consumer_seeks_back_and_forward(consume: Consume) -> None:
    consumer = consume()
    taken(consumer)
    consumer.commit()
    consumer.seek(NOON + timedelta(minutes=2))
    assert taken(consumer, 1) == [2]
    assert consumer.position == 10  # until the next commit
    consumer.commit()
    assert consumer.position == 3
    consumer.seek("earliest")
    consumer.commit()
    assert consumer.position is None
    assert taken(consumer, 1) == [0]
    consumer.seek("latest")
    consumer.commit()
    assert taken(consume()) == [9]


def test_it_commits_after_a_number_of_processed_records(consume: Consume) -> None:
    consumer = consume(commit_records=3)
    taken(consumer, 3)
    assert consumer.position == 0  # the third one is not processed before the fourth is asked for
    taken(consumer, 1)
    assert consumer.position == 3
    taken(consumer)
    assert consumer.position == 10  # at the end, too


def test_it_commits_after_a_time_while_it_waits(consume: Consume, tmp_path: Path) -> None:
    consumer = consume(commit_seconds=0.01, follow=True)
    reader = threading.Thread(target=lambda: taken(consumer, 11))
    reader.start()
    watch = PositionFile(log_state_folder(str(tmp_path / "state"), str(tmp_path / "orders")), "billing")
    wait_until(lambda: (position := watch.read()) is not None and position.next == 10)
    consumer.close()
    reader.join(WAIT_SECONDS)
    assert not reader.is_alive()


def test_the_end_of_a_block_commits_what_was_processed(consume: Consume) -> None:
    with consume(commit_records=100) as consumer:
        taken(consumer, 5)  # the fifth one may be in work still
    assert consume().position == 4


def test_a_block_that_fails_commits_nothing(consume: Consume) -> None:
    def work() -> None:
        with consume(commit_records=100) as consumer:
            taken(consumer, 5)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    assert consume().position == 0


def test_of_two_with_one_name_only_one_commits(consume: Consume) -> None:
    first, second = consume(), consume()
    assert taken(first, 4) == taken(second, 4) == [0, 1, 2, 3]
    second.commit()
    with pytest.raises(litelog.ConsumerMovedError, match="consumer billing was moved to sequence 4") as caught:
        first.commit()
    assert caught.value.exit_code == 5
    assert (caught.value.name, caught.value.next) == ("billing", 4)
    assert consume().position == 4


def test_a_poll_waits_no_longer_than_it_may_and_loses_nothing(consume: Consume, orders: str) -> None:
    consumer = consume(start="end", follow=True)
    assert consumer.poll(0) is None
    assert consumer.poll(timeout=0.01) is None
    append(orders, b"10")
    columns = consumer.poll(WAIT_SECONDS)
    assert columns is not None
    assert columns.sequences.tolist() == [10]


def test_a_closed_consumer_ends_and_keeps_its_position(consume: Consume) -> None:
    consumer = consume(follow=True)
    assert taken(consumer, 10) == list(range(10))
    consumer.commit()
    waiting = threading.Thread(target=consumer.close)
    waiting.start()
    assert consumer.poll() is None
    waiting.join(WAIT_SECONDS)
    assert next(consumer, None) is None
    assert consume().position == 10


@pytest.mark.parametrize("log_format", ["raw", "lines"])
def test_it_consumes_logs_of_other_formats(consume: Consume, tmp_path: Path, log_format: str) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "1.log").write_bytes(b"first\nsecond\n")
    options = {"log": str(folder), "log_format": log_format, "pattern": "*.log"}
    consumer = consume(**options)
    assert next(consumer).value in (b"first", b"first\nsecond\n")
    consumer.commit()
    with open(folder / "1.log", "ab") as file:
        file.write(b"third\n")
    left = b"\n".join(record.value for record in consume(**options))
    assert left == {"raw": b"third\n", "lines": b"second\nthird"}[log_format]


@pytest.fixture
def backup(orders: str, tmp_path: Path) -> str:
    """The folder of a replica of the log."""
    folder = tmp_path / "backup"
    with litelog.replicate(orders, folder, state_dir=tmp_path / "state", sync_interval=0.05) as replication:
        assert replication.wait_synced()
    return str(folder)


@pytest.mark.slow
def test_it_consumes_a_replica(consume: Consume, backup: str) -> None:
    consumer = consume(log=backup)
    assert taken(consumer, 4) == [0, 1, 2, 3]
    consumer.commit()
    assert taken(consume(log=f"file://{backup}")) == [4, 5, 6, 7, 8, 9]
    address = litelog.ReplicaConfig(url=f"file://{backup}")
    assert taken(consume(log=address, start=8)) == [4, 5, 6, 7, 8, 9]  # type: ignore[arg-type]
    late = consume("late", log=backup, start=NOON + timedelta(minutes=5))
    assert taken(late) == [5, 6, 7, 8, 9]


@pytest.mark.slow
def test_a_replica_has_what_the_folder_no_longer_holds(consume: Consume, backup: str, orders: str) -> None:
    consumer = consume(replicas=[backup])
    assert taken(consumer, 4) == [0, 1, 2, 3]
    consumer.commit()
    shutil.rmtree(orders)
    assert taken(consume(replicas=[backup])) == [4, 5, 6, 7, 8, 9]


@pytest.mark.slow
def test_records_that_are_gone_everywhere_are_reported_once(consume: Consume, tmp_path: Path) -> None:
    log, state = str(tmp_path / "log"), str(tmp_path / "state")
    fill_log(log)
    note_replica(log, state)
    consumer = consume(log=log)
    assert taken(consumer, 5) == [0, 1, 2, 3, 4]
    consumer.commit()
    with litelog.LogWriter(log) as writer:
        writer.truncate(30, state_dir=state)
    late = consume(log=log)
    with pytest.raises(litelog.OffsetJumpError) as caught:
        next(late)
    assert (caught.value.requested, caught.value.next) == (5, 30)
    assert late.position == 5
    assert taken(late) == list(range(30, 50))
    assert taken(consume(log=log, on_gap="jump")) == list(range(30, 50))


@pytest.mark.parametrize("wrong", [{"commit_records": 0}, {"commit_seconds": -1.0}, {"name": ".."}, {"name": "a/b"}])
def test_wrong_arguments_are_refused(consume: Consume, wrong: dict[str, Any]) -> None:
    with pytest.raises(litelog.ConfigError):
        consume(**wrong)
