"""Restores, reads and follows a replica while a daemon seals, writes snapshots and prunes as fast as it can.

Each reader gives the log's own bytes, or fails with an error that names a missing object.
"""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import CorruptObjectError, LitelogError, NotFoundError, PrunedError, ReplicaGapError
from litelog.reading.replica_reader import ReplicaReader
from litelog.restore.execution import restore
from litelog.restore.follow import CopyFollower
from litelog.restore.history_plan import Target, find_plan
from litelog.retention.policy import RetentionPolicy
from litelog.shipping.context import Settings, SnapshotPolicy
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.file import FileStore
from tests.builders.daemon_builder import Daemon
from tests.builders.log_builder import LogBuilder, make_log
from tests.builders.manual_clock import ManualClock
from tests.faults.figures import report
from tests.sampling import times
from tests.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.formats.columns import Record
    from litelog.restore.plan import RestorePlan
    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore
    from tests.builders.servers import S3Server

HALF_HOUR = 1800.0
POLL_SECONDS = 0.01
LOOK_SECONDS = 0.2
"""Longer than half an hour of the log's time takes."""
KEPT = 3
"""The log segments at the source, and so, with the policy ``mirror``, in the newest snapshot."""

NAMED = (ReplicaGapError, PrunedError, CorruptObjectError, NotFoundError)
"""The errors of a reader whose objects were deleted."""


class Past:
    """A log that grows in steps of half an hour, and the daemon that prunes its past.

    The daemon does not wait for readers. Readers may wait for the daemon."""

    def __init__(self, folder: Path, store: ObjectStore) -> None:
        self.folder = folder
        self.log: LogBuilder = make_log(folder / "log")
        self.clock = ManualClock()
        self.store = store
        self.deleted = 0
        self.steps = 0
        self.ended = threading.Event()
        self.changed = threading.Condition()
        settings = Settings(
            snapshot_policy=SnapshotPolicy.MIRROR, snapshot_segments=1, retention=RetentionPolicy(max_age=3600.0)
        )
        state = str(folder / "state")
        self.log.roll(3)
        self.daemon = Daemon(self.log, DeletionCounter(store, self), state, clock=self.clock, settings=settings)

    def step(self) -> None:
        """Ship another log segment, in three WAL segments, and delete the oldest one at the source."""
        self.log.roll(2, size=300)
        for _ in range(3):
            self.daemon.sync()
            self.log.append(2, size=300)
            self.clock.advance(HALF_HOUR / 3)
        self.daemon.sync()
        for name in sorted(self.log.files())[:-KEPT]:
            self.log.delete(name)
        with self.changed:
            self.steps += 1
            self.changed.notify_all()

    def live(self, steps: int) -> None:
        try:
            for _ in range(steps):
                self.step()
        finally:
            self.ended.set()
            with self.changed:
                self.changed.notify_all()

    def let_pass(self, steps: int) -> None:
        """Wait until the log has advanced by ``steps``, or the run has ended."""
        with self.changed:
            until = self.steps + steps
            assert self.changed.wait_for(lambda: self.steps >= until or self.ended.is_set(), WAIT_SECONDS)

    def is_its(self, files: dict[str, bytes]) -> bool:
        """Whether these are consecutive log segments of the log. The last one may be a prefix; the others are whole."""
        names = sorted(self.log.texts)
        start = names.index(min(files))
        held = sorted(files)
        return (
            held == names[start : start + len(held)]
            and all(files[name] == self.log.texts[name] for name in held[:-1])
            and self.log.texts[held[-1]].startswith(files[held[-1]])
        )


class _Passing:
    """A store that passes all requests to another one."""

    def __init__(self, inner: ObjectStore, past: Past) -> None:
        self.inner, self.past = inner, past
        self.url, self.enforces_create_only = inner.url, inner.enforces_create_only

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self.inner.put(key, body, create_only=create_only)

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        return self.inner.open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, start_after)

    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete(keys)

    def close(self) -> None: ...


class DeletionCounter(_Passing):
    """Counts the deleted objects."""

    def delete(self, keys: Iterable[str]) -> None:
        wanted = list(keys)
        self.inner.delete(wanted)
        self.past.deleted += len(wanted)


class SlowStore(_Passing):
    """Waits at every few reads until the log has advanced, so that planned objects no longer exist."""

    def __init__(self, inner: ObjectStore, past: Past, reads: int, steps: int) -> None:
        super().__init__(inner, past)
        self._reads, self._steps, self._count = reads, steps, 0

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self._count += 1
        if self._count % self._reads == 0:
            self.past.let_pass(self._steps)
        return super().open(key, byte_range)


class Readers:
    """The readers that run while the daemon prunes, each in a thread. ``seen`` counts their results."""

    def __init__(self, past: Past) -> None:
        self.past = past
        self.seen: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self.threads: list[threading.Thread] = []

    def start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._run, args=(work,))
        self.threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self.threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()
        for error in self.errors:
            raise error

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.errors.append(error)

    def failed(self, who: str, error: LitelogError) -> None:
        """Assert that the error names a missing object, and count it."""
        assert isinstance(error, NAMED), repr(error)
        names = ("generations/", self.past.daemon.generation, *self.past.log.texts)
        assert any(name in str(error) for name in names), str(error)
        self.seen[f"{who} failed with a name"] += 1

    def restore_again_and_again(self, reads: int, steps: int) -> None:
        past, number = self.past, 0
        while not past.ended.is_set():
            number += 1
            client = ObjectReplicaClient(SlowStore(past.store, past, reads, steps))
            output = past.folder / f"restored-{reads}-{number}"

            def replan(client: ObjectReplicaClient = client) -> RestorePlan:
                self.seen["restore planned again"] += 1
                return find_plan(client, Target(), past.log.format)

            try:
                plan = find_plan(client, Target(), past.log.format)
                restore(client, plan, str(output), log_format=past.log.format, replan=replan, parallelism=1)
            except LitelogError as error:
                self.failed("restore", error)
                assert not output.exists()
                continue
            assert past.is_its({path.name: path.read_bytes() for path in output.glob("*.log")})
            self.seen["restore whole"] += 1

    def read_again_and_again(self, reads: int, steps: int) -> None:
        past = self.past
        while not past.ended.is_set():
            client = ObjectReplicaClient(SlowStore(past.store, past, reads, steps))
            records = Sequences(past.log)
            try:
                with ReplicaReader(client) as reader:
                    for batch in reader.batches():
                        records.check(batch.records())
            except LitelogError as error:
                self.failed("cat", error)
                continue
            self.seen["cat whole"] += 1

    def follow(self, reads: int, steps: int) -> None:
        """Read the whole log. A reader that pruning overtakes begins again after the pruned part."""
        past = self.past
        while True:
            store, stop, records = SlowStore(past.store, past, reads, steps), threading.Event(), Sequences(past.log)
            client = ObjectReplicaClient(store)
            reader = ReplicaReader(
                client, follow=True, poll_interval=POLL_SECONDS, look_seconds=LOOK_SECONDS, stop=stop
            )
            timer = threading.Thread(target=self._stop_when, args=(partial(self._is_read, records), stop))
            timer.start()
            try:
                with reader:
                    for batch in reader.batches():
                        records.check(batch.records())
            except LitelogError as error:
                self.failed("follow", error)
                continue
            finally:
                stop.set()
                timer.join(WAIT_SECONDS)
            assert records.next == past.log.next
            self.seen["follow reached the end"] += 1
            return

    def follow_copy(self, reads: int, steps: int) -> None:
        """Restore and follow a copy, which holds the log from the copy's beginning on.

        A copy that pruning overtakes is restored again. The hour of grace passes in a moment here, so the follower
        looks for successors after a moment without news."""
        past, number = self.past, 0
        while True:
            number += 1
            client = ObjectReplicaClient(SlowStore(past.store, past, reads, steps))
            output, stop = past.folder / f"copy-{number}", threading.Event()
            replan = partial(find_plan, client, Target(), past.log.format)
            timer = threading.Thread(target=self._stop_when, args=(partial(self._is_copied, output), stop))
            timer.start()
            try:
                plan = replan()
                restore(client, plan, str(output), log_format=past.log.format, replan=replan)
                with CopyFollower(client, str(output), plan, past.log.format, look_seconds=LOOK_SECONDS) as follower:
                    follower.run(stop, POLL_SECONDS)
            except LitelogError as error:
                self.failed("followed copy", error)
                if output.exists():
                    assert past.is_its({path.name: path.read_bytes() for path in output.glob("*.log")})
                continue
            finally:
                stop.set()
                timer.join(WAIT_SECONDS)
            assert self._is_copied(output)
            assert past.is_its({path.name: path.read_bytes() for path in output.glob("*.log")})
            self.seen["followed copy reached the end"] += 1
            return

    def _is_read(self, records: Sequences) -> bool:
        return records.next == self.past.log.next

    def _is_copied(self, output: Path) -> bool:
        last = max(self.past.log.texts)
        return (output / last).exists() and (output / last).read_bytes() == self.past.log.texts[last]

    def _stop_when(self, is_done: Callable[[], bool], stop: threading.Event) -> None:
        """Set ``stop`` once the log no longer grows and ``is_done``, or after the time limit."""
        for _ in range(WAIT_SECONDS * 20):
            if (self.past.ended.is_set() and is_done()) or stop.wait(0.05):
                break
        stop.set()


class Sequences:
    """Checks that records are consecutive records of the log."""

    def __init__(self, log: LogBuilder) -> None:
        self.next = -1
        self._log = log

    def check(self, records: Iterable[Record]) -> None:
        for record in records:
            assert self.next in (-1, record.sequence), f"{record.sequence} follows {self.next - 1}"
            assert bytes(record.value).startswith(b"r%d." % record.sequence)
            self.next = record.sequence + 1


def run(past: Past, steps: int, name: str) -> None:
    readers = Readers(past)
    for _ in range(4):
        past.step()
    readers.start(partial(readers.restore_again_and_again, 3, 5))
    readers.start(partial(readers.restore_again_and_again, 50, 1))
    readers.start(partial(readers.read_again_and_again, 4, 6))
    readers.start(partial(readers.read_again_and_again, 50, 1))
    readers.start(partial(readers.follow, 9, 4))
    readers.start(partial(readers.follow_copy, 20, 4))
    try:
        past.live(steps)
    finally:
        past.ended.set()
        readers.join()
    seen = readers.seen
    report(f"prune_readers_{name}", **dict(sorted(seen.items())), deleted=past.deleted)
    assert past.deleted > steps
    assert seen["restore whole"] > 0
    assert seen["cat whole"] > 0
    assert seen["follow reached the end"] == 1
    assert seen["followed copy reached the end"] == 1
    assert seen["restore planned again"] + seen["restore failed with a name"] > 0
    assert seen["cat failed with a name"] > 0


def test_on_disk(tmp_path: Path) -> None:
    run(Past(tmp_path, FileStore(str(tmp_path / "replica"))), 40, "file")


def test_in_s3(tmp_path: Path, server: S3Server) -> None:
    from replica_clients.s3 import open_store

    store = open_store(f"s3://{server.make_bucket()}/replica", server.options())
    try:
        run(Past(tmp_path, store), times(8, at_night=12), "s3")
    finally:
        store.close()
