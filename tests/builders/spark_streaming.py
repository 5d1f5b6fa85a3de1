"""Runs a streaming query as Spark does, without Spark: in batches, with a checkpoint, and tasks that read plans."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from typing import TYPE_CHECKING, Any

from litelog.spark.scan.decoding import read_partition
from litelog.spark.scan.schema import log_columns
from litelog.spark.stream.batching import Budget
from litelog.spark.stream.follower import StreamFollower
from litelog.spark.stream.options import parse_stream_options
from litelog.stores.object_store import ObjectReplicaClient
from litelog.stores.registry import open_store
from litelog.stores.retrying_store import RetryingStore, RetryPolicy
from tests.builders.manual_clock import ManualClock
from tests.builders.replica_builder import ReplicaBuilder
from tests.builders.spark_reading import stored

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from typing import BinaryIO

    from litelog.errors import StoreError
    from litelog.formats import LogFormat
    from litelog.spark.scan.inputs import ScanInput
    from litelog.stores.object_store import ByteRange, ObjectInfo, ObjectStore


class CountingStore:
    """Counts requests by kind. Each of the next requests raises an error from ``failures``."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.url, self.enforces_create_only = inner.url, inner.enforces_create_only
        self.counts: Counter[str] = Counter()
        self.failures: list[StoreError] = []

    def open(self, key: str, byte_range: ByteRange | None = None) -> BinaryIO:
        self._count("GET")
        return self.inner.open(key, byte_range)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._count("LIST")
        return self.inner.list(prefix, start_after)

    def _count(self, kind: str) -> None:
        self.counts[kind] += 1
        if self.failures:
            raise self.failures.pop(0)

    def put(self, *_: object, **__: object) -> None:
        raise AssertionError("a stream writes nothing")

    def delete(self, *_: object) -> None:
        raise AssertionError("a stream deletes nothing")

    def close(self) -> None:
        pass


def live_builder(log_format: LogFormat | None = None) -> tuple[ReplicaBuilder, str]:
    """A builder, and the URL of its replica. Tasks can read the replica while it grows."""
    builder = ReplicaBuilder() if log_format is None else ReplicaBuilder(log_format)
    url = stored({})
    builder.store = open_store(url)  # type: ignore[assignment]
    builder.client = ObjectReplicaClient(builder.store)
    return builder, url


class Query:
    """A streaming query. ``rows``: the rows in its sink, by batch. ``offsets``: its checkpoint."""

    def __init__(self, url: str, *, available_now: bool = False, **options: object) -> None:
        self.options = {"path": url, **{name.lower(): str(value) for name, value in options.items()}}
        self.parsed = parse_stream_options(self.options)
        self.columns = log_columns(self.parsed.read, has_timestamps=False, has_generations=True)
        self.clock = ManualClock()
        self.stores: list[CountingStore] = []
        self.offsets: list[str] = []
        self.rows: list[list[dict[str, Any]]] = []
        self.available_now = available_now
        self.start()

    def start(self) -> None:
        """Begin with only the checkpoint in memory."""
        self.follower = StreamFollower(self.parsed, clock=self.clock, clients=self._client, pause=0.0)
        if self.available_now:
            self.follower.prepare()

    def _client(self, place: ScanInput, stop: threading.Event) -> ObjectReplicaClient:
        store = CountingStore(open_store(place.url))
        self.stores.append(store)
        return ObjectReplicaClient(RetryingStore(store, stop, RetryPolicy(2, 1.0, 0.0, 0.0)))

    @property
    def counts(self) -> Counter[str]:
        return sum((store.counts for store in self.stores), Counter())

    def reset_counts(self) -> None:
        for store in self.stores:
            store.counts.clear()

    def next_offset(self) -> str | None:
        """The next batch's end, as text; None if there is nothing new."""
        last = self.offsets[-1] if self.offsets else json.dumps(self.follower.initial())
        read = self.parsed
        budget = Budget(read.max_bytes, read.max_files, read.max_records)
        end = json.dumps(self.follower.latest(json.loads(last), budget))
        return None if end == last else end

    def read(self, number: int) -> list[dict[str, Any]]:
        """The rows of a batch. Each call plans the batch again."""
        first = json.loads(self.offsets[number - 1]) if number else self.follower.initial()
        partitions = self.follower.plan(first, json.loads(self.offsets[number]))
        return [
            row
            for partition in pickle.loads(pickle.dumps(partitions))
            for batch in read_partition(partition, self.columns)
            for row in batch.to_pylist()
        ]

    def step(self) -> bool:
        """Run one batch. Returns False if there is nothing new."""
        end = self.next_offset()
        if end is None:
            return False
        self.offsets.append(end)
        self.rows.append(self.read(len(self.offsets) - 1))
        return True

    def run(self) -> Query:
        """Run batches until there is nothing new, even after two more seconds."""
        for _ in range(1000):
            if self.step():
                continue
            self.clock.advance(2.0)
            if not self.step():
                return self
        raise AssertionError("it does not end")

    def restart(self, *, forget: int = 0) -> Query:
        """Start again with the checkpoint alone, and make the last ``forget`` batches again.

        Their offsets are still in the checkpoint, as Spark writes a batch's offsets before its results."""
        self.start()
        for number in range(len(self.offsets) - forget, len(self.offsets)):
            again = self.read(number)
            assert again == self.rows[number], "a batch that was made again has other rows"
        return self

    def all_rows(self) -> list[dict[str, Any]]:
        return [row for rows in self.rows for row in rows]

    def sequences(self) -> list[int]:
        return [row["sequence"] for row in self.all_rows()]

    def values(self) -> list[bytes]:
        return [row["value"] for row in self.all_rows()]
