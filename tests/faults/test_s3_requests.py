"""Requests are money: how many there are, counted on the wire, by a daemon of one log and by those who read it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

from litelog.config import make_config
from litelog.object_store import ObjectReplicaClient
from litelog.reading.replica_reader import POLLS_PER_LOOK, ReplicaReader
from litelog.replicator import Replicator
from litelog.shipping.replica_task import Phase
from tests.faults.figures import report
from tests.servers import REGION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from litelog.shipping.listener import Shipped
    from tests.faults.s3_replicas import Bench

WAIT_SECONDS = 60
"""What nothing here takes."""

INTERVAL_SECONDS = 0.3
POLLS = 20
"""Looks at an idle log, none of which may cost a request."""


class Progress:
    """A listener: how far it went."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next = 0

    def shipped(self, event: Shipped) -> None:
        with self._changed:
            self._next = event.header.next or self._next
            self._changed.notify_all()

    def began(self, *_: object) -> None: ...

    def sealed(self, event: object) -> None: ...

    def snapped(self, event: object) -> None: ...

    def wait_for(self, sequence: int) -> None:
        """Wait until every record before ``sequence`` is acknowledged."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._next >= sequence, WAIT_SECONDS)


@contextmanager
def running(bench: Bench) -> Iterator[tuple[Replicator, Progress]]:
    """The replicator at work on the bench's log."""
    url = f"s3://{bench.bucket}/replica?endpoint={bench.proxy.endpoint}&region={REGION}"
    values = {
        "sync_interval": f"{INTERVAL_SECONDS}s",
        "poll_interval": "10ms",
        "logs": [{"path": bench.log.folder, "replicas": [{"url": url}]}],
    }
    progress = Progress()
    replicator = Replicator(
        make_config("test", values), state_dir=str(bench.folder / "state"), host="here", listener=progress
    )
    thread = threading.Thread(target=replicator.run)
    thread.start()
    try:
        yield replicator, progress
    finally:
        replicator.stop()
        thread.join()


def wait_until(holds: Callable[[], bool]) -> None:
    """Look now and then until something holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < deadline
        pause.wait(0.01)


def is_idle(replicator: Replicator) -> bool:
    return all(status.phase == Phase.IDLE.value and status.position for status in replicator.status())


def test_idle_costs_nothing_load_one_put_an_interval_and_a_restart_two_gets(bench: Bench) -> None:
    pause = threading.Event()
    with running(bench) as (replicator, progress):
        bench.append()
        progress.wait_for(bench.writer.next_sequence)
        wait_until(lambda: is_idle(replicator))
        beginning = dict(bench.proxy.operations)
        bench.proxy.reset_counts()
        pause.wait(INTERVAL_SECONDS + POLLS * 0.01)
        idle = dict(bench.proxy.operations)
        assert not idle

        started = time.monotonic()
        for _ in range(150):
            bench.append(5, 50)
            pause.wait(0.01)
        progress.wait_for(bench.writer.next_sequence)
        wait_until(lambda: is_idle(replicator))
        intervals = (time.monotonic() - started) / INTERVAL_SECONDS
        load = dict(bench.proxy.operations)
        assert set(load) == {"PUT"}
        assert load["PUT"] <= intervals + 1, "the first one at once, then one an interval"

    bench.proxy.reset_counts()
    with running(bench) as (replicator, progress):
        wait_until(lambda: is_idle(replicator))
        pause.wait(POLLS * 0.01)
    restart = dict(bench.proxy.operations)
    assert restart == {"GET": 2}
    assert bench.restored() == bench.written()
    report(
        "s3_requests",
        beginning=sum(beginning.values()),
        idle=sum(idle.values()),
        load_puts=load["PUT"],
        load_intervals=round(intervals, 1),
        restart_gets=restart["GET"],
    )


def test_a_follower_gets_and_never_lists(bench: Bench) -> None:
    bench.append()
    daemon = bench.daemon(direct=True)
    bench.sync(daemon)
    read = threading.Condition()
    count = 0
    reader = ReplicaReader(ObjectReplicaClient(bench.open()), follow=True, poll_interval=0.005)

    def follow() -> None:
        nonlocal count
        for batch in reader.batches():
            with read:
                count += len(batch)
                read.notify_all()

    thread = threading.Thread(target=follow)
    thread.start()

    def wait_for_all() -> None:
        with read:
            assert read.wait_for(lambda: count == bench.writer.next_sequence, WAIT_SECONDS)

    try:
        wait_for_all()
        bench.proxy.reset_counts()
        for _ in range(5):
            bench.append()
            bench.sync(daemon)
            wait_for_all()
        assert set(bench.proxy.operations) == {"GET"}
        bench.proxy.reset_counts()
        wait_until(lambda: bench.proxy.operations.total() > 3 * POLLS_PER_LOOK)
        asked = Counter(request.key.removeprefix("replica/").partition("/")[0] for request in bench.proxy.requests)
        assert set(bench.proxy.operations) == {"GET"}
        assert set(asked) == {"generations", "epochs"}
        assert asked["epochs"] <= asked["generations"] / POLLS_PER_LOOK + 1, "one GET a poll, and few for successors"
        successor = bench.daemon("two", takeover=True, direct=True)
        bench.append()
        bench.sync(successor)
        wait_for_all()
    finally:
        reader.close()
        thread.join()
