"""``df.write.format("litelog")``: tasks write sealed segments, and the driver names all of them at once, or none."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from litelog.dataclass import dataclass
from litelog.errors import LitelogError
from litelog.events import fields
from litelog.spark.sink.options import parse_write_options
from litelog.spark.sink.plan import WritePlan, open_client, plan_write
from litelog.spark.sink.publish import discard, publish
from litelog.spark.sink.segments import SegmentWriter, check_columns
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.stores.object_store import ObjectReplicaClient

_logger = logging.getLogger(__name__)

QUERY_ID = "sql.streaming.queryId"
"""The property of a task that names its streaming query."""

THREADS = 2
"""The thread in which a task compresses while it encodes the next data."""


@dataclass(frozen=True, slots=True)
class RunningTask:
    """The facts that Spark gives a task about itself."""

    partition: int
    attempt: int
    """A number that no other attempt of any task of the application has."""
    query: str = ""
    """Id of the streaming query, which it keeps as long as its checkpoint."""

    @classmethod
    def current(cls) -> RunningTask:
        """The task that calls this; outside Spark, the first one."""
        context = TaskContext.get()
        if context is None:
            return cls(0, 0)
        return cls(context.partitionId(), context.taskAttemptId(), context.getLocalProperty(QUERY_ID) or "")


@dataclass
class WrittenTask(WriterCommitMessage):
    """The result of one attempt of a task."""

    partition: int
    records: int
    entries: list[SnapshotEntry] = field(default_factory=list)


class LitelogWriter(DataSourceArrowWriter):
    """One write. The driver creates it, tasks call ``write``, and the driver calls ``commit`` or ``abort``.

    Each process has its own instance. They share the plan.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[Any]) -> WrittenTask:
        """Write a partition. A failed attempt leaves sealed segments that nothing refers to."""
        return write_partition(self._plan, RunningTask.current(), iterator)

    def commit(self, messages: list[WrittenTask | None]) -> None:  # type: ignore[override]
        """Name all written log segments in one snapshot."""
        publish_tasks(self._plan, messages, self._plan.options.transaction)

    def abort(self, messages: list[WrittenTask | None]) -> None:  # type: ignore[override]  # noqa: ARG002
        """Delete the objects of the write, if the store can be reached. Readers saw none of them.

        Spark does not wait for the tasks that it stops. Objects that they put later stay until retention deletes them.
        """
        discard_tasks(self._plan)


def write_partition(plan: WritePlan, task: RunningTask, batches: Iterable[Any]) -> WrittenTask:
    """Write the record batches of a task."""
    client = open_client(plan.options)
    try:
        with ThreadPoolExecutor(THREADS, "seal") as executor:
            first, size = plan.first_of(task.partition), plan.options.segment_bytes
            writer = SegmentWriter(client, plan.staging, first, task.attempt, size, executor)
            records = writer.write(batches, SystemClock())
    finally:
        client.close()
    return WrittenTask(task.partition, records, writer.entries)


def publish_tasks(
    plan: WritePlan, messages: Sequence[WrittenTask | None], transaction: tuple[str, int] | None = None
) -> None:
    """Name the log segments of all tasks in one snapshot, or delete them if the log holds their transaction."""
    written = sorted((message for message in messages if message is not None), key=lambda one: one.partition)
    client = open_client(plan.options)
    try:
        if transaction is not None and plan.holds(*transaction):
            said = "%s: version %d of %s is in the log: it is not written again"
            _logger.info(said, client.url, *reversed(transaction), extra=fields("already-written", replica=client.url))
            _discard(client, plan)
            return
        published = publish(client, plan, [one.entries for one in written], SystemClock(), transaction)
    finally:
        client.close()
    if published is not None:
        _logger.info(
            "%s: generation %s holds sequences %d to %d more, in %d log segments (%d renumbered)",
            client.url,
            published.generation,
            published.first,
            published.next - 1,
            published.segments,
            published.renumbered,
            extra=fields("published", replica=client.url, generation=published.generation),
        )


def discard_tasks(plan: WritePlan) -> None:
    """Delete the objects of the tasks, or warn that they stay."""
    client = open_client(plan.options)
    try:
        _discard(client, plan)
    finally:
        client.close()


def _discard(client: ObjectReplicaClient, plan: WritePlan) -> None:
    try:
        discard(client, plan)
    except LitelogError as error:
        said = "%s: %s; leftovers of the write stay in the store; readers ignore them"
        _logger.warning(said, client.url, error, extra=fields("not-discarded", replica=client.url))


def make_writer(options: Mapping[str, str], schema: Any, *, overwrite: bool) -> LitelogWriter:
    """Create the writer of a DataFrame with that schema, and claim the replica.

    Raises ConfigError, FencedError and StoreError.
    """
    check_columns(schema)
    return LitelogWriter(plan_write(parse_write_options(options), SystemClock(), overwrite=overwrite))
