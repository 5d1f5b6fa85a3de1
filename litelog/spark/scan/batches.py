"""Converts runs of records to record batches of one schema, coalesced to about BATCH_ROWS rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.errors import ConfigError
from litelog.formats.litelog.commit_batch import CommitGatherer
from litelog.objects.position import epoch_of
from litelog.spark.scan.schema import FORMAT_TYPES, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.spark.scan.partitions import PlannedLog
    from litelog.spark.scan.record_runs import Malformed, RecordRun, SegmentCommits
    from litelog.spark.scan.schema import Column

BATCH_ROWS = 10_000
"""Approximate rows of a batch. Fewer cost more time in Python, and more overflow the processor's cache."""

BATCH_BYTES = 16 << 20
"""The most bytes of values in a batch, except if a single one is larger."""

LONG_RUN_ROWS = 4096
"""If contiguous runs have this many rows on average, each becomes a separate batch, without a copy."""

_RECORD = ("sequence", "timestamp", "key", "value")
_OWN = ("headers", "timestampType", *FORMAT_TYPES)
"""Columns that only some formats have."""

_PARTITION = re.compile(r"(?P<topic>.+)-(?P<number>[0-9]{1,9})")


class BatchBuilder:
    """Gathers runs, and yields them as batches, which all share one schema object."""

    def __init__(self, columns: Sequence[Column]) -> None:
        import pyarrow  # noqa: PLC0415  # an extra

        self._arrow = pyarrow
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._names = {column.name for column in columns if not column.is_corrupt}
        self._constants: dict[str, str | int | None] = {}
        """The values of columns that are the same for all records of the log."""
        self._held: list[Any] = []
        self._rows = self._bytes = 0
        record = [name for name in _RECORD if name in self._names] or ["sequence"]
        self._wanted = [*record, *(name for name in _OWN if name in self._names)]
        self._gatherer = CommitGatherer(record, BATCH_ROWS, BATCH_BYTES)
        self._gathers = not self._names & {"offset", "index", *_OWN}

    def begin(self, log: PlannedLog) -> None:
        """Begin with the runs of this log."""
        name = None if log.claim is None else log.generation
        epoch = None if name is None else epoch_of(name)
        topic, partition = _find_partition(log.name)
        self._constants = {
            "generation": name,
            "epoch": epoch,
            "log": log.name,
            "topic": topic,
            "partition": partition,
        }

    def add(self, run: RecordRun) -> Iterator[Any]:
        """Add a run; yields the batches that it completes."""
        yield from self.end()
        for start, stop in _shares(run):
            part = run.columns if stop - start == len(run.columns) else run.columns.slice(start, stop)
            for batch in self._convert(part, run):
                yield from self._hold(batch)

    def add_commits(self, run: SegmentCommits) -> Iterator[Any]:
        """Add commits; yields the batches that they complete."""
        if not self._gathers:
            yield from self.add(run.to_run())
            return
        for count, arrays in self._gatherer.add(run.commits):
            yield from self._hold(self._dress(arrays, None, count))

    def end(self) -> Iterator[Any]:
        """Mark the end of contiguous commits; yields the batches that the gathered ones complete."""
        for count, arrays in self._gatherer.rest():
            yield from self._hold(self._dress(arrays, None, count))

    def add_malformed(self, found: Malformed) -> Iterator[Any]:
        """Add a row that describes malformed data; yields the batches that it completes."""
        yield from self.end()
        facts = {"index": found.index, "offset": found.start, **self._constants}
        values = [found.text if column.is_corrupt else facts.get(column.name) for column in self._columns]
        named = zip(values, self._schema, strict=True)
        arrays = [self._checked(self._arrow.array([value], field.type), field) for value, field in named]
        yield from self._hold(self._arrow.RecordBatch.from_arrays(arrays, schema=self._schema))

    def rest(self) -> Iterator[Any]:
        """Yield the last batch, if any rows are left."""
        if self._held:
            yield self._join()

    def _hold(self, batch: Any) -> Iterator[Any]:
        if batch.num_rows >= BATCH_ROWS // 2:
            yield from self.rest()
            yield batch
            return
        size = batch.nbytes
        if self._held and (self._rows + batch.num_rows > BATCH_ROWS or self._bytes + size > BATCH_BYTES):
            yield self._join()
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += size

    def _join(self) -> Any:
        held, self._held = self._held, []
        self._rows = self._bytes = 0
        return held[0] if len(held) == 1 else self._arrow.concat_batches(held)

    def _convert(self, columns: Any, run: RecordRun) -> Iterator[Any]:
        if not len(columns):
            return
        places = None
        if "offset" in self._names:
            places = self._arrow.array(columns.places + run.offset)
        runs = 1 if columns.runs is None else len(columns.runs)
        wanted = self._wanted
        long = len(columns) >= LONG_RUN_ROWS * runs
        batches = columns.to_arrow_batches(wanted) if long else [columns.to_arrow(wanted)]
        given = 0
        for batch in batches:
            count = batch.num_rows
            arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
            if places is not None:
                arrays["offset"] = places.slice(given, count)
            given += count
            yield self._dress(arrays, run.index, count)

    def _dress(self, arrays: dict[str, Any], index: int | None, count: int) -> Any:
        """The batch with all columns. ``arrays``: the columns whose values differ between records."""
        found = [self._array(column, field, arrays, index, count) for column, field in self._fields()]
        return self._arrow.RecordBatch.from_arrays(found, schema=self._schema)

    def _fields(self) -> Iterator[tuple[Column, Any]]:
        return zip(self._columns, self._schema, strict=True)

    def _array(self, column: Column, field: Any, arrays: dict[str, Any], index: int | None, count: int) -> Any:
        return self._checked(self._any_array(column, field, arrays, index, count), field)

    def _checked(self, array: Any, field: Any) -> Any:
        if array.null_count and not field.nullable:
            raise ConfigError(
                f"column {field.name} is null in log {self._constants['log']}: ask for it without NOT NULL"
            )
        return array

    def _any_array(self, column: Column, field: Any, arrays: dict[str, Any], index: int | None, count: int) -> Any:
        if column.is_corrupt:
            return self._arrow.nulls(count, field.type)
        if column.name in arrays:
            return arrays[column.name]
        value = index if column.name == "index" else self._constants.get(column.name)
        if value is None:
            return self._arrow.nulls(count, field.type)
        return self._arrow.repeat(self._arrow.scalar(value, field.type), count)


def _find_partition(log: str) -> tuple[str, int | None]:
    """The topic and the number of the partition in a log's name. Without a number: the last part, and None."""
    name = log.rpartition("/")[2]
    match = _PARTITION.fullmatch(name)
    return (name, None) if match is None else (match["topic"], int(match["number"]))


def _shares(run: RecordRun) -> Iterator[tuple[int, int]]:
    """Ranges [start, stop) of a run's records, each as many as fit into a batch."""
    lengths = run.columns.value_lengths
    count = len(lengths)
    total = int(lengths.sum()) if count else 0
    if count <= BATCH_ROWS * 3 // 2 and total <= BATCH_BYTES:
        yield 0, count
        return
    behind = np.cumsum(lengths, dtype=np.int64)
    start = 0
    while start < count:
        reached = int(behind[start - 1]) if start else 0
        fits = int(np.searchsorted(behind, reached + BATCH_BYTES, "right"))
        stop = min(count, start + BATCH_ROWS, max(fits, start + 1))
        yield start, stop
        start = stop
