"""A consumer gets an error if the log no longer holds what it processed, and its position stays."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import litelog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Consume = Callable[..., litelog.Consumer]


def rewrite(log: str, *values: bytes) -> None:
    """Replace a log by another one."""
    shutil.rmtree(log, ignore_errors=True)
    with litelog.LogWriter(log, fsync="never") as writer:
        writer.append(list(values))


def consumed(consume: Consume, count: int, **options: Any) -> None:
    consumer = consume(**options)
    for _ in range(count):
        next(consumer)
    consumer.commit()
    consumer.close()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([b"other"] * 10, "holds another record at sequence 4, which consumer billing has processed"),
        ([b"few"] * 3, "ends before sequence 4"),
    ],
)
@pytest.mark.parametrize("follow", [False, True])
def test_a_log_that_was_replaced_is_noticed(
    consume: Consume, orders: str, values: list[bytes], words: str, follow: bool
) -> None:
    consumed(consume, 5)
    rewrite(orders, *values)
    for _ in range(2):
        consumer = consume(follow=follow)
        with pytest.raises(litelog.DivergedError, match=words):
            consumer.poll(0)
        assert consumer.position == 5
    consumer.seek("earliest")
    assert next(consumer).value == values[0]
    consumer.commit()
    assert next(consume()).sequence == 1


def test_a_log_that_was_rewound_to_the_position_is_the_same_log(consume: Consume, orders: str) -> None:
    consumed(consume, 10)
    (segment,) = (os.path.join(orders, name) for name in os.listdir(orders) if name.endswith(".log"))
    with open(segment, "rb") as file:
        whole = file.read()
    with litelog.LogWriter(orders, fsync="never") as writer:
        writer.append(b"10")
    with open(segment, "wb") as file:
        file.write(whole)
    consumer = consume()
    assert consumer.poll() is None
    with open(segment, "wb") as file:
        file.write(whole[:-1])  # the last record is torn
    with pytest.raises(litelog.DivergedError, match="ends before sequence 9"):
        consume().poll()


def test_a_log_that_comes_back_is_checked_then(consume: Consume, orders: str) -> None:
    consumed(consume, 5)
    shutil.rmtree(orders)
    consumer = consume(follow=True)
    assert consumer.poll(0) is None
    rewrite(orders, *[b"other"] * 10)
    with pytest.raises(litelog.DivergedError, match="holds another record at sequence 4"):
        consumer.poll()
    assert consumer.position == 5


def test_a_log_whose_sequences_count_bytes_is_compared_by_its_bytes(consume: Consume, tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    options = {"log": str(folder), "log_format": "raw", "pattern": "*.bin"}
    (folder / "1.bin").write_bytes(b"a" * 5000 + b"b" * 100)
    consumed(consume, 1, **options)
    (folder / "1.bin").write_bytes(b"a" * 5000 + b"b" * 100 + b"c" * 10)
    assert consume(**options).poll().data.tobytes().endswith(b"c" * 10)  # type: ignore[union-attr]
    (folder / "1.bin").write_bytes(b"a" * 5000 + b"b" * 99 + b"c" * 10)
    with pytest.raises(litelog.DivergedError, match="another record"):
        consume(**options).poll()
    (folder / "1.bin").write_bytes(b"a" * 5000)
    with pytest.raises(litelog.DivergedError, match="ends before"):
        consume(**options).poll()


@pytest.mark.slow
def test_a_replica_that_lags_behind_a_missing_folder_is_no_other_log(
    consume: Consume, orders: str, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    with litelog.replicate(orders, backup, state_dir=tmp_path / "state", sync_interval=0.05) as replication:
        assert replication.wait_synced()
    with litelog.LogWriter(orders, fsync="never") as writer:
        writer.append([b"10", b"11"])
    consumed(consume, 12, replicas=[backup])
    os.rename(orders, orders + ".away")
    consumer = consume(replicas=[backup])
    assert consumer.poll() is None
    assert consumer.position == 12
    os.rename(orders + ".away", orders)
    with litelog.LogWriter(orders, fsync="never") as writer:
        writer.append(b"12")
    assert [record.sequence for record in consume(replicas=[backup])] == [12]


@pytest.mark.slow
def test_a_replica_whose_history_forked_is_noticed(consume: Consume, orders: str, tmp_path: Path) -> None:
    backup = str(tmp_path / "backup")
    options = {"state_dir": tmp_path / "state", "sync_interval": 0.05}
    with litelog.replicate(orders, backup, **options) as replication:  # type: ignore[arg-type]
        assert replication.wait_synced()
    consumed(consume, 5, log=backup)
    (segment,) = (os.path.join(orders, name) for name in os.listdir(orders) if name.endswith(".log"))
    os.truncate(segment, 200)
    with litelog.LogWriter(orders, fsync="never") as writer:
        writer.append([b"other"] * 20)
    with litelog.replicate(orders, backup, **options) as replication:  # type: ignore[arg-type]
        assert replication.wait_synced()
    with pytest.raises(litelog.DivergedError, match="sequence 4, which consumer billing has processed"):
        consume(log=backup).poll()
