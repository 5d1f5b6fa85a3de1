"""Replicas of several kinds of one log: a replica that is down delays no other, and catches up by itself."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3")
pytest.importorskip("fsspec")
pytest.importorskip("moto.server")

from litelog.config import make_config
from litelog.formats.litelog import LitelogFormat
from litelog.log.writer import LogWriter
from litelog.replicator import Replicator
from litelog.replicator.task import Phase
from litelog.replicator.wiring import BEGINNING
from litelog.stores.registry import open_store
from litelog.system.clock import SystemClock
from tests.builders.independent_reader import read_replica
from tests.builders.log_builder import LogBuilder
from tests.builders.servers import CREDENTIALS, REGION
from tests.faults.figures import report
from tests.sampling import times
from tests.waiting import WAIT_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from litelog.objects.claim import Claim
    from litelog.replicator.status import ReplicaStatus
    from litelog.shipping.events import WalSegmentShipped
    from tests.faults.s3_replicas import Bench

OUTAGE_SECONDS = times(1800, at_night=3600)
SPEED = 600
"""An hour takes six seconds, if the machine is fast enough for SETTLED_ROUNDS."""

LIMIT_BYTES = 16 << 10
"""Bytes of the log in one WAL segment here, so that an outage leaves many of them to be shipped."""

MAX_HELD = 4
"""The most WAL segments that a replica holds in memory: those made ahead, and the one on its way."""

MEAN_DELAY_SECONDS = 5
"""In a long outage, the mean time between two attempts is longer."""

SETTLED_ROUNDS = 20
"""The rounds after which most threads exist."""

MORE_THREADS = 20
"""The most threads that bounded pools start later. One for each failed attempt would be a hundred."""

LOGS = 6
"""More than the threads that one destination has."""


class FastClock:
    """The machine's clock with a faster monotonic time. The wall clock is unchanged, as files have its time stamps."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._start = self._clock.monotonic()

    def now(self) -> int:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._start + (self._clock.monotonic() - self._start) * SPEED


@dataclass
class Progress:
    """A listener that keeps the end of each replica of each log."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    ends: dict[tuple[str, str], int] = field(default_factory=dict)

    def on_wal_segment_shipped(self, event: WalSegmentShipped) -> None:
        with self.changed:
            self.ends[event.log, event.replica] = event.header.next or 0
            self.changed.notify_all()

    def on_generation_started(self, log: str, replica: str, claim: Claim) -> None: ...

    def on_segment_sealed(self, event: object) -> None: ...

    def on_snapshot_written(self, event: object) -> None: ...

    def on_scrub_finished(self, event: object) -> None: ...

    def wait_for(self, log: str, replica: str, sequence: int) -> None:
        """Wait until ``replica`` has acknowledged every record before ``sequence``."""
        with self.changed:
            reached = self.changed.wait_for(lambda: self.ends.get((log, replica), 0) >= sequence, WAIT_SECONDS)
        assert reached, f"{replica} was held back"


@contextmanager
def running(replicator: Replicator) -> Iterator[None]:
    thread = threading.Thread(target=replicator.run)
    thread.start()
    try:
        yield
    finally:
        replicator.stop()
        thread.join()


class Mixed:
    """One log, and a replicator with three replicas of it: in a folder, in S3 through the proxy, in fsspec's memory."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.clock = FastClock()
        self.progress = Progress()
        s3 = {"endpoint": bench.proxy.endpoint, "region": REGION, **CREDENTIALS}
        self.places: list[tuple[str, dict[str, object]]] = [
            (f"file://{bench.folder}/replica", {}),
            (f"s3://{bench.bucket}/replica", s3),
            (f"fsspec+memory:/{bench.folder}/replica", {}),
        ]
        replicas = [{"url": url, "options": options} for url, options in self.places]
        values = {
            "max_segment_bytes": LIMIT_BYTES,
            "shutdown_timeout": "1h",  # of the fast clock
            "logs": [{"path": bench.log.folder, "replicas": replicas}],
        }
        self.replicator = Replicator(
            make_config("test", values),
            state_dir=str(bench.folder / "states"),
            host="here",
            clock=self.clock,
            random=Random(5),
            listener=self.progress,
        )

    def status(self, scheme: str) -> ReplicaStatus:
        """The status of the replica with that scheme."""
        (found,) = [status for status in self.replicator.status() if status.replica.startswith(scheme)]
        return found

    def wait_for(self, *schemes: str) -> None:
        """Wait until these replicas have all of the log."""
        for scheme in schemes:
            replica = self.status(scheme).replica
            self.progress.wait_for(self.bench.log.folder, replica, self.bench.writer.next_sequence)

    def held(self) -> int:
        """The WAL segments in memory of the replica that holds most of them."""
        return max(task.replica.queued for task in self.replicator._scheduler.tasks if task.replica is not None)

    def sit_out(self, seconds: float) -> tuple[int, int, int]:
        """Append for the length of an outage of S3, and for as many rounds as are judged. The others hold each round's
        records before the next round.

        Returns the rounds, the most WAL segments in memory, and the threads that were added after the first rounds."""
        end = self.clock.monotonic() + seconds
        rounds = held = early = late = 0
        while self.clock.monotonic() < end or rounds <= SETTLED_ROUNDS:
            self.bench.append(20)
            self.wait_for("file:", "memory:")
            held = max(held, self.held())
            rounds += 1
            if rounds <= SETTLED_ROUNDS:
                early = max(early, threading.active_count())
            late = max(late, threading.active_count())
        return rounds, held, late - early

    def assert_restorable(self) -> None:
        """Assert that the log can be restored from each replica alone, and that each has one generation."""
        written = self.bench.written()
        for number, (url, options) in enumerate(self.places):
            store = open_store(url, options)
            assert self.bench.restored(f"restored-{number}", self.bench.client(store)) == written
            assert len(read_replica(store)) == 1, "an outage began a generation"
            store.close()


def test_a_long_outage_of_one_replica_is_nothing_to_the_others(bench: Bench) -> None:
    mixed = Mixed(bench)
    bench.append()
    with running(mixed.replicator):
        wait_until(lambda: len(mixed.replicator.status()) == 3)
        mixed.wait_for("file:", "s3:", "memory:")
        before = mixed.status("s3:")
        bench.proxy.go_down()
        down = mixed.clock.monotonic()
        rounds, held, more_threads = mixed.sit_out(OUTAGE_SECONDS)
        failed, outage = mixed.status("s3:"), mixed.clock.monotonic() - down
        assert failed.phase in {Phase.BACKING_OFF.value, Phase.SYNCING.value}
        assert failed.position == before.position
        assert failed.error is not None
        for healthy in (mixed.status("file:"), mixed.status("memory:")):
            assert (healthy.error, healthy.failures) == (None, 0)
        assert 1 < failed.failures <= 20 + outage / MEAN_DELAY_SECONDS
        assert bench.proxy.refused <= failed.failures * BEGINNING.attempts
        assert held <= MAX_HELD
        assert more_threads <= MORE_THREADS, "the threads grow with the length of the outage"
        assert sum(map(len, bench.written().values())) > (MAX_HELD + 1) * LIMIT_BYTES, "no more than is held"

        bench.proxy.come_back()
        while mixed.progress.ends[bench.log.folder, failed.replica] < bench.writer.next_sequence:
            bench.append(1)
            mixed.wait_for("file:", "memory:")
        wait_until(lambda: mixed.status("s3:").error is None)
    assert {status.phase for status in mixed.replicator.status()} == {Phase.DONE.value}
    mixed.assert_restorable()
    report(
        "mixed_replicas",
        outage_seconds=round(outage),
        attempts=failed.failures,
        wal_segments_held=held,
        rounds_of_the_others=rounds,
        bytes_lost=0,
    )


def test_a_store_that_hangs_holds_up_its_own_replicas_alone(tmp_path: Path) -> None:
    """The store never answers. More replicas wait for it than a destination has threads."""
    progress = Progress()
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        options = {"endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}", "region": REGION, **CREDENTIALS}
        writers = {}
        for number in range(LOGS):
            log = LogBuilder(str(tmp_path / f"log-{number}"), LitelogFormat())
            writers[log.folder] = stack.enter_context(LogWriter(log.folder, fsync="never"))
            writers[log.folder].append([b"first"])
        values = {
            "shutdown_timeout": "10ms",
            "sync_interval": "10ms",
            "logs": [
                {
                    "path": folder,
                    "replicas": [
                        {"url": f"s3://bucket/{number}", "options": {**options, "read-timeout": "1h"}},
                        {"url": f"file://{tmp_path}/replica-{number}"},
                    ],
                }
                for number, folder in enumerate(writers)
            ],
        }
        replicator = Replicator(
            make_config("test", values), state_dir=str(tmp_path / "state"), host="here", listener=progress
        )
        failures: list[BaseException] = []

        def run() -> None:
            try:
                replicator.run()
            except Exception as error:  # noqa: BLE001 - the final sync to the store that hangs fails
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            for turn in range(3):
                for number, (folder, writer) in enumerate(writers.items()):
                    progress.wait_for(folder, f"file://{tmp_path}/replica-{number}", turn + 1)
                    writer.append([b"more"])
            hung = [status for status in replicator.status() if status.replica.startswith("s3:")]
            assert [status.phase for status in hung] == [Phase.SYNCING.value] * LOGS
        finally:
            replicator.stop()
            thread.join()
            silent.close()
        assert "final sync" in str(failures)
