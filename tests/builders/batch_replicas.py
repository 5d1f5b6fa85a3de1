"""Replicas that Spark wrote in many small appends, dead writes in them, and maintenance of them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeVar

import pyarrow

from litelog.formats.litelog import SEGMENT_HEADER_BYTES
from litelog.reading.replica_reader import ReplicaReader
from litelog.spark.maintenance.execution import Maintained, maintain
from litelog.spark.maintenance.plan import MaintenanceOptions
from litelog.spark.sink.options import parse_write_options
from litelog.spark.sink.plan import open_client, plan_write
from litelog.spark.sink.segments import SegmentWriter
from litelog.stores.object_store import ObjectReplicaClient
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import InlineExecutor
from tests.builders.manual_clock import ManualClock
from tests.builders.many_generations import CountedReplica
from tests.builders.restoring import files_in, restore_to
from tests.builders.stores import CountingStore, KilledError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from typing_extensions import Buffer

    from litelog.formats.columns import Record
    from litelog.restore.plan import Target
    from litelog.spark.sink.plan import WritePlan
    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore

Result = TypeVar("Result")

HOURS = 3600.0


def clock_after(hours: float) -> ManualClock:
    """A clock that shows the machine's time, that many hours later."""
    clock = ManualClock()
    clock.advance(hours * HOURS)
    return clock


def small_appends(
    count: int, *, records: int = 2, inner: ObjectStore | None = None, hours_ago: float = 0.0
) -> CountedReplica:
    """A replica with ``count`` appends, each in a separate log segment. ``inner``: its store, by default in memory."""
    replica = CountedReplica(inner or MemoryStore("counted"), hours_ago)
    for _ in range(count):
        replica.append(records=records)
    return replica


def copy_of(replica: CountedReplica) -> CountedReplica:
    """A replica with the same objects."""
    store = MemoryStore("copy")
    for info in replica.inner.list(""):
        store.put(info.key, [replica.inner.open(info.key).read()])
    copied = CountedReplica(store)
    copied.appended = replica.appended
    return copied


def die_in_write(replica: CountedReplica, *, records: int = 2) -> WritePlan:
    """Write as a task does, and publish nothing. Returns the plan of the write."""
    options = parse_write_options({"path": replica.url, "partitionrecords": f"[{records}]"})
    clock = replica.clock()
    plan = plan_write(options, clock, overwrite=False)
    client = open_client(options)
    for attempt in range(2):
        writer = SegmentWriter(client, plan.staging, plan.next, attempt, options.segment_bytes, InlineExecutor())
        writer.write([pyarrow.RecordBatch.from_pydict({"value": [b"dead"] * records})], clock)
    return plan


def client_of(replica: CountedReplica) -> ObjectReplicaClient:
    return ObjectReplicaClient(replica.store)


def run(
    replica: CountedReplica,
    options: MaintenanceOptions | None = None,
    *,
    hours: float = 48,
    store: ObjectStore | None = None,
) -> Maintained:
    """Maintain a replica, that many hours after it was written."""
    client = ObjectReplicaClient(store or replica.store)
    return maintain(client, options or MaintenanceOptions(), clock_after(hours))


def records_of(replica: CountedReplica) -> list[Record]:
    """All records, as litelog's own reader reads them."""
    with ReplicaReader(client_of(replica)) as reader:
        return [record for columns in reader.batches() for record in columns.records()]


def commits_of(replica: CountedReplica, folder: Path, target: Target | None = None) -> bytes:
    """The bytes of all commits, as a restore into a new folder writes them."""
    restore_to(client_of(replica), folder, target)
    files = files_in(folder)
    return b"".join(files[name][SEGMENT_HEADER_BYTES:] for name in sorted(files))


class InterruptedStore(CountingStore):
    """Calls ``act`` once, before its ``at``-th request, or after it."""

    def __init__(self, inner: ObjectStore, at: int, act: Callable[[], object], *, after: bool = False) -> None:
        super().__init__(inner)
        self._at, self._act, self._after = at, act, after
        self._numbers = itertools.count(1)

    def put(self, key: str, body: Iterable[Buffer], *, create_only: bool = True) -> None:
        self._carry_out(lambda: self.inner.put(key, body, create_only=create_only))

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        return self._carry_out(lambda: self.inner.open(key, byte_range))

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._carry_out(lambda: iter(tuple(self.inner.list(prefix, start_after))))

    def delete(self, keys: Iterable[str]) -> None:
        self._carry_out(lambda: self.inner.delete(keys))

    def _carry_out(self, call: Callable[[], Result]) -> Result:
        number = next(self._numbers)
        self.requests["all"] = number
        if number == self._at and not self._after:
            self._act()
        try:
            return call()
        finally:
            if number == self._at and self._after:
                self._act()


def kill() -> None:
    """End the process."""
    raise KilledError
