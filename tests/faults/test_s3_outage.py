"""A store that is down for long: attempts and memory stay bounded, nothing is lost, and the daemon catches up.

The tests use a manual clock. The replicator waits on a condition in real time, so the tests take its turns one by one,
by the same rules: ``Replica.sync``, ``ReplicaTask.fail`` and ``due``.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

from litelog.errors import StoreError
from litelog.replicator.task import Phase
from litelog.replicator.wiring import BEGINNING
from litelog.retention.policy import GRACE_SECONDS
from litelog.shipping.backoff import MAX_DELAY_SECONDS
from litelog.shipping.context import Executors
from tests.builders.fault_proxy import Fault
from tests.builders.independent_reader import read_replica
from tests.faults.figures import report
from tests.faults.s3_replicas import Bench, s3_bench
from tests.sampling import at_night, times

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litelog.replicator.task import ReplicaTask
    from tests.builders.daemon_builder import Daemon
    from tests.builders.servers import S3Server

LIMIT_BYTES = 64 << 10
"""The most bytes of the log in one WAL segment, so that an outage leaves many of them to ship."""

MAX_HELD = 4
"""The most WAL segments that a replica holds in memory: those made ahead, and the one on its way."""

MEAN_DELAY_SECONDS = 5
"""In a long outage, the mean time between two attempts is longer."""


@pytest.fixture
def workers() -> Iterator[Executors]:
    with ThreadPoolExecutor(2) as compressing, ThreadPoolExecutor(2) as putting:
        yield Executors(compressing, putting)


def size(bench: Bench) -> int:
    """The size of the log, in bytes."""
    return sum(map(len, bench.written().values()))


def held(daemon: Daemon) -> int:
    """The number of WAL segments in memory."""
    return daemon.replica.queued


def sit_out(bench: Bench, daemon: Daemon, task: ReplicaTask, seconds: float) -> tuple[int, int]:
    """Let an outage last ``seconds``, while the log grows every ten seconds.

    Returns the number of attempts, and the most WAL segments in memory.
    """
    end = bench.clock.monotonic() + seconds
    attempts = most = 0
    while bench.clock.monotonic() < end:
        bench.append(100)
        if bench.clock.monotonic() >= task.due:
            with pytest.raises(StoreError) as caught:
                daemon.sync()
            task.fail(caught.value, bench.clock.monotonic(), daemon.random)
            assert task.phase is Phase.BACKING_OFF
            attempts += 1
            most = max(most, held(daemon))
        bench.clock.advance(min(10.0, task.due - bench.clock.monotonic()))
    return attempts, most


@pytest.mark.parametrize("seconds", [600, *at_night(7200)])
def test_an_outage_is_sat_out_and_caught_up(bench: Bench, workers: Executors, seconds: int) -> None:
    bench.append()
    daemon = bench.daemon(limit=LIMIT_BYTES, workers=workers)
    bench.sync(daemon)
    before, shipped = daemon.acknowledged[-1].end, size(bench)
    task = bench.task(daemon)
    bench.proxy.go_down()
    attempts, most = sit_out(bench, daemon, task, seconds)
    assert attempts <= 20 + seconds / MEAN_DELAY_SECONDS
    requests = daemon.store.errors.total()  # type: ignore[attr-defined]
    if seconds < GRACE_SECONDS / 2:
        assert requests == attempts
    else:  # before it puts, it looks whether the replica is still its own
        assert requests <= attempts * BEGINNING.attempts
    assert most <= MAX_HELD
    assert daemon.acknowledged[-1].end == before
    pending = size(bench) - shipped
    assert pending > (MAX_HELD + 1) * LIMIT_BYTES, "the outage left no more than is held"

    bench.proxy.come_back()
    back, started = bench.clock.monotonic(), time.monotonic()
    noticed = max(0.0, task.due - back)
    bench.clock.advance(noticed)
    puts = len(daemon.acknowledged)
    assert bench.sync(daemon, task) <= 1  # a kept connection may have died in the outage
    caught_up = time.monotonic() - started
    assert noticed <= MAX_DELAY_SECONDS
    assert len(daemon.acknowledged) - puts <= pending // (LIMIT_BYTES // 2) + 2
    assert daemon.replica.pending_bytes() == 0
    assert held(daemon) == 0
    assert bench.restored() == bench.written()
    assert len(read_replica(bench.open(direct=True))) == 1
    report(
        f"s3_outage_{seconds}",
        outage_seconds=seconds,
        attempts=attempts,
        requests=requests,
        wal_segments_held=most,
        pending_bytes=pending,
        noticed_after_seconds=round(noticed, 1),
        wal_segments_of_catching_up=len(daemon.acknowledged) - puts,
        catching_up_seconds=round(caught_up, 2),
        bytes_lost=0,
    )


def test_a_store_that_hangs_leaves_one_large_wal_segment_in_memory(
    server: S3Server, tmp_path: Path, workers: Executors
) -> None:
    with s3_bench(server, tmp_path, segment_bytes=1 << 30) as bench:
        for _ in range(30):
            bench.append(1, 1 << 18)
        daemon = bench.daemon(limit=5 << 18, workers=workers)
        task = bench.task(daemon)
        hangs = times(2, at_night=5)
        bench.proxy.plan.next("PUT", Fault.HANG, times=hangs, key_part="/wal/")
        most = 0
        for _ in range(hangs):
            with pytest.raises(StoreError) as caught:
                daemon.sync()
            task.fail(caught.value, bench.clock.monotonic(), daemon.random)
            most = max(most, held(daemon))
        assert most == 1
        bench.sync(daemon, task)
        assert bench.restored() == bench.written()


def test_an_outage_while_a_generation_begins_is_sat_out(bench: Bench) -> None:
    bench.append()
    for number in range(1, 6):
        bench.proxy.plan.next("PUT", None, times=number - 1)
        bench.proxy.plan.next("PUT", Fault.RESET, times=1, meanwhile=bench.proxy.go_down)
        daemon = bench.daemon(f"{number}", takeover=True)
        task = bench.task(daemon)
        sit_out(bench, daemon, task, 60)
        bench.proxy.come_back()
        bench.clock.advance(max(0.0, task.due - bench.clock.monotonic()))
        bench.sync(daemon, task)
        assert [claim.epoch for claim in daemon.claims] == [number]
        assert bench.restored(f"{number}") == bench.written()


def test_a_store_that_asks_for_minutes_gets_the_longest_ordinary_pause(bench: Bench) -> None:
    bench.append()
    daemon = bench.daemon()
    bench.sync(daemon)
    task = bench.task(daemon)
    bench.proxy.plan.retry_after = 120
    bench.proxy.plan.next("PUT", Fault.TOO_MANY_REQUESTS)
    bench.append()
    before = bench.clock.monotonic()
    assert bench.sync(daemon, task) == 1
    assert MAX_DELAY_SECONDS <= bench.clock.monotonic() - before < 2 * MAX_DELAY_SECONDS
