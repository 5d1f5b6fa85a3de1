"""The stream reader of the data source: Spark calls it in the driver and in tasks. This module imports PySpark."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from litelog.errors import ConfigError
from litelog.spark.messages import says_first
from litelog.spark.scan.decoding import read_partition
from litelog.spark.scan.journal import JournalPartition, is_journal, read_journal
from litelog.spark.stream.batching import Budget
from litelog.spark.stream.follower import StreamFollower
from litelog.spark.stream.journal import JournalStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.streaming.datasource import ReadLimit

    from litelog.spark.scan.schema import Column
    from litelog.spark.stream.options import StreamOptions


class LitelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs in one long-lived process, and reads them in the workers. A worker's copy has no state."""

    def __init__(self, options: StreamOptions, columns: Sequence[Column]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._follower: StreamFollower | JournalStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_columns": self._columns, "_follower": None}

    @says_first
    def initialOffset(self) -> dict[str, Any]:
        """The offset before the first wanted record."""
        return self._followed().initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """A limit from the options. Spark accepts only one limit; ``latestOffset`` applies all of them."""
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        if self._options.max_files is not None:
            return ReadMaxFiles(self._options.max_files)
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        return ReadAllAvailable()

    @says_first
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the batch that begins at ``start``."""
        return self._followed().latest(start, self._budget(limit))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end as last seen."""
        return self._followed().report()

    @says_first
    def prepareForTriggerAvailableNow(self) -> None:
        """Let the stream end where the logs end now."""
        self._followed().prepare()

    @says_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The partitions of a batch, one for each task."""
        return [InputPartition(partition) for partition in self._followed().plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition, as record batches."""
        planned = partition.value
        if isinstance(planned, JournalPartition):
            return read_journal(planned, self._columns)
        return read_partition(planned, self._columns) if planned is not None else iter(())

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: replicas do not depend on their readers."""

    def stop(self) -> None:
        """End the follower's threads."""
        if self._follower is not None:
            self._follower.close()

    def _followed(self) -> StreamFollower | JournalStream:
        if self._follower is None:
            of_journal = is_journal(self._options.read)
            self._follower = JournalStream(self._options) if of_journal else StreamFollower(self._options)
        return self._follower

    def _budget(self, limit: ReadLimit) -> Budget:
        """How much a batch may take."""
        options = self._options
        budget = Budget(options.max_bytes, options.max_files, options.max_records)
        if isinstance(limit, ReadAllAvailable):
            return Budget(None, None, None)
        if isinstance(limit, ReadMaxBytes):
            return replace(budget, bytes=limit.max_bytes)
        if isinstance(limit, ReadMaxFiles):
            return replace(budget, files=limit.max_files)
        if isinstance(limit, ReadMaxRows):
            return replace(budget, records=limit.max_rows)
        raise ConfigError(f"a stream's batches are limited by bytes, files and records, not by {type(limit).__name__}")
