"""``stream.writeStream.format("litelog")``: each micro-batch becomes a part of the log once, even if it is run again.

Spark runs a micro-batch again if the driver dies before the checkpoint holds it. So the claim of the generation that
makes a micro-batch readable states the query and the number of the batch, and a batch that the log holds is discarded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.spark.sink.options import parse_write_options
from litelog.spark.sink.plan import plan_write
from litelog.spark.sink.segments import check_columns
from litelog.spark.sink.writer import RunningTask, WrittenTask, discard_tasks, publish_tasks, write_partition
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from litelog.spark.sink.options import WriteOptions
    from litelog.spark.sink.plan import WritePlan


@dataclass
class StreamedTask(WrittenTask):
    """The result of one attempt of a task. It brings to the driver what only tasks know."""

    plan: WritePlan | None = None
    query: str = ""


class LitelogStreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch.

    Spark makes two instances for each micro-batch in the driver, and does not say which it is: it sends one to the
    tasks, and calls ``commit`` or ``abort`` of the other. The first instance plans the write when it is pickled. The
    second takes the plan from the messages of the tasks.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._plan: WritePlan | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_options": self._options, "_plan": self._require_plan()}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__ |= state

    def write(self, iterator: Iterator[Any]) -> StreamedTask:
        """Write a partition. A failed attempt leaves sealed segments that nothing refers to."""
        return self.write_as(RunningTask.current(), iterator)

    def write_as(self, task: RunningTask, batches: Iterable[Any]) -> StreamedTask:
        """Write the partition of that task."""
        plan = self._require_plan()
        done = write_partition(plan, task, batches)
        return StreamedTask(done.partition, done.records, done.entries, plan, task.query)

    def commit(self, messages: list[StreamedTask | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Name all written log segments in one snapshot, unless the log holds this batch."""
        plan, query = _planned(messages)
        if plan is not None:
            publish_tasks(plan, messages, (query, batchId))

    def abort(self, messages: list[StreamedTask | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803, ARG002
        """Delete the objects of the tasks that were done, if the store can be reached. Readers saw none of them."""
        plan, _ = _planned(messages)
        if plan is not None:
            discard_tasks(plan)

    def _require_plan(self) -> WritePlan:
        if self._plan is None:
            self._plan = plan_write(self._options, SystemClock(), overwrite=False)
        return self._plan


def make_stream_writer(options: Mapping[str, str], schema: Any, *, overwrite: bool) -> LitelogStreamWriter:
    """Create the writer of a stream with that schema. Raises ConfigError."""
    check_columns(schema)
    if overwrite:
        raise ConfigError('a log is only appended to: use outputMode("append")')
    given = {name: value for name, value in options.items() if name.lower() != "checkpointlocation"}
    parsed = parse_write_options(given)
    if parsed.transaction is not None or parsed.partition_records:
        raise ConfigError(
            "txnAppId, txnVersion and partitionRecords are options of a batch; a stream numbers its batches itself"
        )
    return LitelogStreamWriter(parsed)


def _planned(messages: Sequence[StreamedTask | None]) -> tuple[WritePlan | None, str]:
    """The plan of the tasks and their query. Raises ConfigError if the tasks knew no query."""
    for message in messages:
        if message is not None and message.plan is not None:
            if not message.query:
                raise ConfigError("the tasks do not know their streaming query, so the batch might be written twice")
            return message.plan, message.query
    return None, ""
