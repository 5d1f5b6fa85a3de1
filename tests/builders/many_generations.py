"""Replicas that Spark or daemons claimed many times, and counts of the requests that readers make."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow

from litelog.formats.litelog import LitelogFormat
from litelog.spark.sink.options import parse_write_options
from litelog.spark.sink.plan import open_client, plan_write
from litelog.spark.sink.publish import publish
from litelog.spark.sink.segments import SegmentWriter
from litelog.stores.registry import register_object_store
from replica_clients.memory import MemoryStore
from tests.builders.daemon_builder import Daemon, InlineExecutor
from tests.builders.log_builder import LogBuilder
from tests.builders.manual_clock import ManualClock
from tests.builders.stores import CountingStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from litelog.stores.object_store import ObjectInfo, ObjectStore

PAGE = 1000
"""The keys that S3 lists in one request."""


class PagingStore(CountingStore):
    """Counts a listing's pages, as S3 makes a request for each."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for number, info in enumerate(super().list(prefix, start_after)):
            if number and number % PAGE == 0:
                self._count("list")
            yield info


@dataclass
class CountedReplica:
    """A replica in this process with its own URL. It counts requests."""

    inner: ObjectStore = field(default_factory=lambda: MemoryStore("counted"))
    hours_ago: float = 0.0
    """When appends happen."""

    def __post_init__(self) -> None:
        self.store = PagingStore(self.inner)
        self.number = next(_NUMBERS)
        self.appended = 0
        register_object_store("tallied", lambda url, _: _REPLICAS[url])
        _REPLICAS[self.url] = self.store

    @property
    def url(self) -> str:
        """The URL for options and arguments."""
        return f"tallied://{self.number}"

    def count(self, act: Callable[[], object]) -> dict[str, int]:
        """The requests of ``act``, by operation."""
        before = dict(self.store.requests)
        act()
        made = {operation: count - before.get(operation, 0) for operation, count in self.store.requests.items()}
        return {operation: count for operation, count in made.items() if count}

    def clock(self) -> ManualClock:
        """The clock of a write that begins now."""
        clock = ManualClock()
        clock.jump(-self.hours_ago * 3600)
        return clock

    def append(self, *, records: int = 2, takeover: bool = False, tag: bytes = b"") -> None:
        """Append as one task of a Spark write does. ``tag``: what each value begins with."""
        options = parse_write_options(
            {"path": self.url, "partitionrecords": f"[{records}]", "takeover": str(takeover).lower()}
        )
        clock = self.clock()
        plan = plan_write(options, clock, overwrite=False)
        client = open_client(options)
        self.appended += 1
        writer = SegmentWriter(
            client, plan.staging, plan.first_of(0), self.appended, options.segment_bytes, InlineExecutor()
        )
        values = [tag + b"%d" % number for number in range(plan.next, plan.next + records)]
        writer.write([pyarrow.RecordBatch.from_pydict({"value": values})], clock)
        publish(client, plan, [writer.entries], clock)


_NUMBERS = itertools.count()
_REPLICAS: dict[str, PagingStore] = {}


def appended(count: int) -> CountedReplica:
    """A replica with ``count`` appends by Spark."""
    replica = CountedReplica()
    for _ in range(count):
        replica.append()
    return replica


def taken_over(count: int, folder: Path) -> CountedReplica:
    """A replica that ``count`` daemons took over, one after the other, while the log grew."""
    replica, log = CountedReplica(), start_log(folder)
    for number in range(count):
        log.append(1)
        if number % 8 == 7:
            log.roll()
        _sync(replica, log, str(folder / f"state-{number}"), number)
    return replica


def restarted(count: int, folder: Path) -> CountedReplica:
    """A replica whose daemon was started ``count`` times. The log did not grow after the first time."""
    replica, log = CountedReplica(), start_log(folder)
    log.append(1)
    for number in range(count):
        _sync(replica, log, str(folder / "state"), number)
    return replica


def start_log(folder: Path) -> LogBuilder:
    """A log in ``folder`` with an empty log segment."""
    os.makedirs(folder / "log")
    log = LogBuilder(str(folder / "log"), LitelogFormat())
    log.roll()
    return log


def _sync(replica: CountedReplica, log: LogBuilder, state: str, seed: int) -> None:
    """Start a daemon, ship what the log holds, and stop it."""
    daemon = Daemon(log, replica.inner, state, seed=seed, takeover=True, backlog_sealer=True)
    daemon.sync()
    daemon.close()
