"""Counts the requests of a daemon with one log, and of its readers, on the wire: requests cost money."""

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
from litelog.reading.follower import POLLS_PER_LOOK
from litelog.reading.replica_reader import ReplicaReader
from litelog.replicator import Replicator
from litelog.replicator.task import Phase
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.trial import RACERS, ROUNDS
from tests.builders.servers import REGION
from tests.faults.figures import report
from tests.faults.s3_replicas import SYNC_SECONDS
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.shipping.events import WalSegmentShipped
    from tests.faults.s3_replicas import Bench

INTERVAL_SECONDS = 0.3
SYNCS_AN_HOUR = 60
TRIAL_REQUESTS = 170
"""The most requests of the trial before the first claim at a destination, besides the puts of the long listing: races
in one request and in parts (four requests each, as each is ended), reads and deletions of the objects that they left, a
listing of three pages, and a listing and deletions in sixteen batches of the long listing's objects."""

POLLS = 20
"""The number of polls of an idle log. None may cost a request."""


class Progress:
    """A listener that keeps the next sequence."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next = 0

    def on_wal_segment_shipped(self, event: WalSegmentShipped) -> None:
        with self._changed:
            self._next = event.header.next or self._next
            self._changed.notify_all()

    def on_generation_started(self, *_: object) -> None: ...

    def on_segment_sealed(self, event: object) -> None: ...

    def on_snapshot_written(self, event: object) -> None: ...

    def wait_for(self, sequence: int) -> None:
        """Wait until every record before ``sequence`` is acknowledged."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._next >= sequence, WAIT_SECONDS)


@contextmanager
def running(bench: Bench) -> Iterator[tuple[Replicator, Progress]]:
    """A replicator that runs on the bench's log."""
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


def is_idle(replicator: Replicator) -> bool:
    return all(status.phase == Phase.IDLE.value and status.position for status in replicator.status())


def test_idle_costs_nothing_load_one_put_an_interval_and_a_restart_three_requests(
    bench: Bench, short_listing: int
) -> None:
    pause = threading.Event()
    with running(bench) as (replicator, progress):
        bench.append()
        progress.wait_for(bench.writer.next_sequence)
        wait_until(lambda: is_idle(replicator))
        beginning = dict(bench.proxy.operations)
        trial = Counter(request.operation for request in bench.proxy.requests if "/trials/" in f"/{request.key}")
        tried = trial.total() - short_listing
        assert 2 * RACERS * ROUNDS < tried <= TRIAL_REQUESTS, "the destination was not tried once"
        assert sum(beginning.values()) - trial.total() < 20
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
        assert load["PUT"] <= intervals + 1, "more than one put an interval after the first one"

    bench.proxy.reset_counts()
    with running(bench) as (replicator, progress):
        wait_until(lambda: is_idle(replicator))
        pause.wait(POLLS * 0.01)
    restart = dict(bench.proxy.operations)
    assert restart == {"LIST": 2, "GET": 1}
    assert bench.restored() == bench.written()
    report(
        "s3_requests",
        trial=trial.total(),
        beginning=sum(beginning.values()),
        idle=sum(idle.values()),
        load_puts=load["PUT"],
        load_intervals=round(intervals, 1),
        restart_requests=sum(restart.values()),
    )


def test_the_requests_that_log_segments_and_snapshots_add_to_steady_load_are_bounded(bench: Bench) -> None:
    """One upload a minute, for hours. WAL segments are deleted an hour after a snapshot covered them."""
    daemon = bench.daemon()
    bench.append()
    bench.sync(daemon)

    def spend_an_hour(*, loaded: bool) -> Counter[str]:
        bench.proxy.reset_counts()
        for _ in range(SYNCS_AN_HOUR):
            if loaded:
                bench.append(50, 200)
            bench.sync(daemon)
            bench.clock.advance(3600 / SYNCS_AN_HOUR - SYNC_SECONDS)
        return Counter(f"{request.operation} {_kind(request.key)}" for request in bench.proxy.requests)

    for _ in range(2):
        spend_an_hour(loaded=True)
    before, taken = len(bench.written()), len(daemon.snapshots)
    hour = spend_an_hour(loaded=True)
    finished = len(bench.written()) - before
    assert finished >= 3
    assert len(daemon.snapshots) == taken + 1
    deleted = hour.pop("DELETE wal")
    assert SYNCS_AN_HOUR <= deleted <= SYNCS_AN_HOUR + finished + 1, "not those of one snapshot"
    assert hour == {
        "PUT wal": SYNCS_AN_HOUR + finished,  # the end of one log segment and the start of the next are two
        "PUT segments": finished,
        **dict.fromkeys(("PUT snapshots", "GET snapshots", "LIST snapshots", "LIST wal"), 1),
    }

    after = spend_an_hour(loaded=False) + spend_an_hour(loaded=False)
    assert after.pop("DELETE wal", 0) <= 2 * deleted, "more than the WAL segments of two hours"
    assert set(after) <= {"PUT snapshots", "GET snapshots", "LIST snapshots", "GET epochs", "LIST wal"}
    assert set(after.values()) == {1}, "more than one snapshot of the last finished log segments"
    assert not spend_an_hour(loaded=False)
    report(
        "s3_requests_of_sealing",
        uploads=SYNCS_AN_HOUR,
        finished=finished,
        puts=sum(count for kind, count in hour.items() if kind.startswith("PUT")),
        gets_and_lists=3,
        deletes=deleted,
        afterwards=after.total(),
    )


def _kind(key: str) -> str:
    """The kind of objects that a key, or the prefix of a listing, belongs to."""
    return next(kind for kind in ("epochs", "snapshots", "segments", "wal", "generations") if f"/{kind}/" in f"{key}/")


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
        assert asked["epochs"] <= asked["generations"] / POLLS_PER_LOOK + 1, "too many looks for successors"
        successor = bench.daemon("two", takeover=True, direct=True)
        bench.append()
        bench.sync(successor)
        wait_for_all()
    finally:
        reader.close()
        thread.join()
