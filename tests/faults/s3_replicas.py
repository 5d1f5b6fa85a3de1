"""Daemons without threads whose replica is in S3. Their requests pass through the fault proxy.

A test drives a daemon as the replicator does.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from litelog.errors import ExistsError, LitelogError, NotFoundError, StoreError
from litelog.formats.litelog import LitelogFormat
from litelog.log.writer import LogWriter
from litelog.replicator.task import FINISHED, Phase, ReplicaTask
from litelog.replicator.wiring import BEGINNING
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.retrying_store import RetryingStore, RetryPolicy
from replica_clients.s3 import open_store
from tests.builders.daemon_builder import Daemon
from tests.builders.fault_proxy import fault_proxy
from tests.builders.log_builder import LogBuilder
from tests.builders.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore
    from litelog.stores.replica_client import ReplicaClient
    from tests.builders.fault_proxy import FaultProxy
    from tests.builders.servers import S3Server

SHORT_WAITS = "250ms"
"""A read time-out for many hangs. On a busy machine it also ends requests that do not hang; they are not counted."""

PATIENT = "1s"
"""A read time-out for a few hangs. Only requests that hang reach it."""

LONG = "20s"
"""A read time-out for tests in which no request hangs."""

MAX_ATTEMPTS = 400
"""How many times a test tries one sync before it fails."""

SYNC_SECONDS = 1.0
POLL_SECONDS = 1.0
LIMIT_BYTES = 16 << 20


class ErrorCountingStore:
    """Counts the errors that reach the library. There is one for each fault, unless the SDK hides one."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.url = inner.url
        self.enforces_create_only = inner.enforces_create_only
        self.errors: Counter[str] = Counter()

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        try:
            self.inner.put(key, body, create_only=create_only)
        except StoreError as error:
            self._count("put", error)
            raise

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        try:
            return _CountedStream(self.inner.open(key, byte_range), self)  # type: ignore[return-value]
        except StoreError as error:
            self._count("open", error)
            raise

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        try:
            yield from self.inner.list(prefix, start_after)
        except StoreError as error:
            self._count("list", error)
            raise

    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete(keys)

    def close(self) -> None:
        self.inner.close()

    def _count(self, operation: str, error: StoreError) -> None:
        if not isinstance(error, NotFoundError | ExistsError):
            self.errors[operation] += 1


class _CountedStream:
    def __init__(self, inner: BinaryIO, store: ErrorCountingStore) -> None:
        self._inner = inner
        self._store = store

    def read(self, size: int = -1) -> bytes:
        try:
            return self._inner.read(size)
        except StoreError:
            self._store.errors["read"] += 1
            raise

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> _CountedStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._inner.close()


@dataclass
class Bench:
    """One log, one bucket, and daemons that replicate the log to the bucket through the proxy."""

    server: S3Server
    proxy: FaultProxy
    folder: Path
    segment_bytes: int = 100_000
    """The size of a log segment."""
    read_timeout: str = PATIENT
    """The read time-out of clients that use the proxy."""
    clock: ManualClock = field(default_factory=ManualClock)
    daemons: list[Daemon] = field(default_factory=list)
    stores: list[ObjectStore] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bucket = self.server.make_bucket()
        self.log = LogBuilder(str(self.folder / "log"), LitelogFormat())
        self.writer = LogWriter(self.log.folder, segment_bytes=self.segment_bytes, fsync="never")
        self._choose = Random(1)

    def close(self) -> None:
        self.writer.close()
        for daemon in self.daemons:
            daemon.close()
        for store in self.stores:
            store.close()

    def append(self, records: int = 10, size: int = 200) -> int:
        """Append records of random bytes, all different. Return the next sequence."""
        return self.writer.append([self._choose.randbytes(size) for _ in range(records)]).next

    def open(self, *, direct: bool = False) -> ObjectStore:
        """A client's store: through the proxy, or with ``direct`` on the server itself."""
        endpoint = self.server.endpoint if direct else self.proxy.endpoint
        options = self.server.options(endpoint=endpoint, **{"read-timeout": LONG if direct else self.read_timeout})
        self.stores.append(store := open_store(f"s3://{self.bucket}/replica", options))
        return store

    def daemon(self, name: str = "one", *, takeover: bool = False, direct: bool = False, **more: int) -> Daemon:
        """A daemon with a state folder of that name."""
        store = ErrorCountingStore(self.open(direct=direct))
        state = str(self.folder / "state" / name)
        seed = len(self.daemons)
        beginning = RetryingStore(store, threading.Event(), BEGINNING, Random(seed), self._wait)
        facts = {"clock": self.clock, "seed": seed, "takeover": takeover, "host": name, "beginning": beginning}
        daemon = Daemon(self.log, store, state, **facts, **more)
        self.daemons.append(daemon)
        return daemon

    def _wait(self, seconds: float) -> bool:
        self.clock.advance(seconds)
        return False

    def task(self, daemon: Daemon) -> ReplicaTask:
        """The task that the replicator has for a daemon's replica."""
        return ReplicaTask(self.log.folder, "", daemon.replica, SYNC_SECONDS, POLL_SECONDS, LIMIT_BYTES)

    def sync(self, daemon: Daemon, task: ReplicaTask | None = None, attempts: int = MAX_ATTEMPTS) -> int:
        """Sync until it succeeds, as the replicator does, without waiting. Return the number of failed attempts.

        Raises an error that ends a task, or the last error after ``attempts``."""
        task = task or self.task(daemon)
        for failures in range(attempts):
            try:
                daemon.sync()
            except LitelogError as error:
                task.fail(error, self.clock.monotonic(), daemon.random)
                if task.phase in FINISHED or failures == attempts - 1:
                    raise
                assert task.phase is Phase.BACKING_OFF
                self.clock.advance(task.due - self.clock.monotonic())
            else:
                task.succeed()
                self.clock.advance(SYNC_SECONDS)
                return failures
        raise AssertionError

    def client(self, store: ObjectStore | None = None) -> ReplicaClient:
        """A client that retries without waiting, by default on the server itself."""
        store = store or self.open(direct=True)
        return ObjectReplicaClient(
            RetryingStore(store, threading.Event(), RetryPolicy(attempts=20), Random(1), lambda _: False)
        )

    def restored(self, name: str = "restored", client: ReplicaClient | None = None) -> dict[str, bytes]:
        """The log segments that a restore writes, keyed by name."""
        client = client or self.client()
        log_format = LitelogFormat()
        output = self.folder / name
        restore(client, find_plan(client, Target(), log_format), str(output), log_format=log_format)
        return files(output)

    def written(self) -> dict[str, bytes]:
        """The log segments at the source, keyed by name."""
        return files(Path(self.log.folder))


def files(folder: Path) -> dict[str, bytes]:
    """The log segments in a folder, keyed by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))}


@contextmanager
def s3_bench(server: S3Server, folder: Path, **more: int) -> Iterator[Bench]:
    """A bench in a folder, with a new proxy and a new bucket."""
    with fault_proxy(server.endpoint) as proxy:
        bench = Bench(server, proxy, folder, **more)
        try:
            yield bench
        finally:
            proxy.plan.enabled = False
            bench.close()
