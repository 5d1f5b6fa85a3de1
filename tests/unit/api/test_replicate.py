"""A program replicates its logs while a block runs, and learns at its end whether that worked."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import litelog
from tests.builders.recorded_logs import unpack
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_records_that_the_block_appends_are_in_the_replica(orders: Path, tmp_path: Path) -> None:
    with (
        litelog.replicate(
            str(orders), f"file://{tmp_path}/backup", state_dir=tmp_path / "state", sync_interval=0.05
        ) as replication,
        litelog.LogWriter(orders, fsync="never") as writer,
    ):
        writer.append(b"ten")
        assert replication.wait_synced(timeout=200)
        (status,) = replication.status
        assert (status.sequence, status.synced, status.lag_bytes, status.error) == (11, True, 0, None)
        assert replication.is_running
        writer.append(b"eleven")
    assert not replication.is_running
    with litelog.open_replica(tmp_path / "backup", start=10) as records:
        assert [record.value for record in records] == [b"ten", b"eleven"]


@pytest.mark.slow
def test_a_configuration_is_replicated(orders: Path, tmp_path: Path) -> None:
    file = tmp_path / "litelog.yml"
    file.write_text(
        f"state-dir: {tmp_path}/state\nlogs:\n- path: {orders}\n  replicas:\n"
        f"  - {{url: {tmp_path}/a, sync-interval: 50ms}}\n  - {{url: memory://b, sync-interval: 50ms}}\n"
    )
    with litelog.replicate(litelog.load_config(str(file))) as replication:
        assert replication.wait_synced()
        assert {status.replica for status in replication.status} == {f"file://{tmp_path}/a", "memory://b"}
    with pytest.raises(litelog.ConfigError, match="names replicas, formats and settings itself"):
        litelog.replicate(litelog.load_config(file), tmp_path / "c")


def test_settings_go_to_each_replica(orders: Path, tmp_path: Path) -> None:
    made = litelog.replicate(
        orders,
        tmp_path / "a",
        litelog.ReplicaConfig(url=str(tmp_path / "b"), snapshot_segments=7),
        sync_interval="1m30s",
        fencing="isolated",
        state_dir=tmp_path / "state",
        takeover=True,
    )
    (log,) = made.replicator.config.logs
    assert [(each.sync_interval, each.fencing, each.snapshot_segments) for each in log.replicas] == [
        (90, "isolated", 100),
        (90, "isolated", 7),
    ]
    assert log.takeover


@pytest.mark.slow
def test_a_folder_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    with litelog.replicate(
        tmp_path / "later", tmp_path / "backup", state_dir=tmp_path / "state", sync_interval=0.05
    ) as replication:
        assert not replication.wait_synced(timeout=0)
        with litelog.LogWriter(tmp_path / "later", fsync="never") as writer:
            writer.append(b"first")
        assert replication.wait_synced()
    assert litelog.verify_replica(tmp_path / "backup").is_sound


@pytest.mark.slow
def test_the_end_of_the_block_raises_why_replication_failed(orders: Path, backup: Path, tmp_path: Path) -> None:
    with pytest.raises(litelog.FencedError, match="run again with --takeover"):  # noqa: PT012, SIM117
        with litelog.replicate(orders, backup, state_dir=tmp_path / "other", sync_interval=0.05) as replication:
            with pytest.raises(litelog.FencedError):
                replication.wait_synced()
    with litelog.replicate(
        orders, backup, state_dir=tmp_path / "other", takeover=True, sync_interval=0.05
    ) as replication:
        assert replication.wait_synced()


@pytest.mark.slow
def test_an_error_of_the_block_comes_first(orders: Path, backup: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError) as raised,
        litelog.replicate(orders, backup, state_dir=tmp_path / "other", sync_interval=0.05),
    ):
        raise ZeroDivisionError
    assert ["replication failed, too: " in note for note in raised.value.__notes__] == [True]


@pytest.mark.slow
def test_a_replica_that_another_owner_has_is_named_while_the_others_go_on(
    orders: Path, backup: Path, tmp_path: Path
) -> None:
    second = litelog.replicate(orders, backup, tmp_path / "second", state_dir=tmp_path / "other", sync_interval=0.05)
    with pytest.raises(litelog.FencedError), second as replication:  # noqa: PT012 - the end of the block raises
        with pytest.raises(litelog.NotReplicatedError, match=f"{orders} to file://{backup}: fenced"):
            replication.wait_synced()
        replication.replicator.barrier(str(orders), f"file://{tmp_path}/second", 200)
        assert [status.synced for status in replication.status] == [False, True]


def test_a_daemon_that_was_stopped_cannot_be_waited_for(orders: Path, tmp_path: Path) -> None:
    """The log's folder never appeared, so the end of the block has nothing to sync."""
    nowhere = litelog.replicate(
        tmp_path / "nope", tmp_path / "backup", state_dir=tmp_path / "state", sync_interval=0.05
    )
    with nowhere as replication:
        stopping = threading.Thread(target=replication.stop)
        stopping.start()
        with pytest.raises(litelog.NotReplicatedError, match="stopped"):
            replication.wait_synced()
        stopping.join()


def test_mistakes_are_found_before_it_begins(orders: Path, tmp_path: Path) -> None:
    for wrong, words in (
        (lambda: litelog.replicate(orders), "replicas"),
        (lambda: litelog.replicate(orders, "gopher://x"), "no replica client for gopher"),
        (lambda: litelog.replicate(orders, tmp_path / "b", log_format="nope"), "no log format"),
        (lambda: litelog.replicate(orders, tmp_path / "b", sync_interval="often"), "must be a duration"),
        (lambda: litelog.replicate(orders, tmp_path / "b", fencing="none"), "fencing"),
    ):
        with pytest.raises(litelog.ConfigError, match=words):
            wrong()


@pytest.mark.slow
def test_it_serves_its_status_where_a_configuration_says_so(orders: Path, tmp_path: Path) -> None:
    text = f"addr: unix:{tmp_path}/socket\nstate-dir: {tmp_path}/state\nlogs:\n- {{path: {orders}, replicas: [{{url: 'memory://c'}}]}}\n"
    with litelog.replicate(litelog.load_config(text)):
        assert (tmp_path / "socket").is_socket()
    assert not (tmp_path / "socket").exists()


@pytest.mark.slow
def test_what_a_watermark_withholds_is_lag(tmp_path: Path) -> None:
    """A broker's high watermark: 17 of 40 records may still be taken back."""
    partition = unpack("kafka", "rolled", tmp_path)
    topic, _, number = partition.name.rpartition("-")
    checkpoint = tmp_path / "replication-offset-checkpoint"
    checkpoint.write_text(f"0\n1\n{topic} {number} 23\n")
    with litelog.replicate(
        partition, f"file://{tmp_path}/backup", log_format="kafka", state_dir=tmp_path / "state", sync_interval=0.05
    ) as replication:
        wait_until(lambda: [status.lag_records for status in replication.status] == [17])
        (status,) = replication.status
        assert (status.sequence, status.lag_bytes > 0, status.lag_seconds > 0) == (23, True, True)
        checkpoint.write_text(f"0\n1\n{topic} {number} 40\n")
        wait_until(lambda: replication.status[0].lag_bytes == 0)
        (status,) = replication.status
        assert (status.sequence, status.lag_records, status.lag_seconds) == (40, 0, 0.0)
