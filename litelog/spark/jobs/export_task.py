"""A task of an export: writes a range of a log to Parquet files with pyarrow, under predictable names."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any, Final

from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.spark.jobs.json_columns import parse_values
from litelog.spark.jobs.latest_rows import latest_rows
from litelog.spark.jobs.manifest import MERGED, ExportedFile
from litelog.spark.jobs.table_file import ExportSettings, FileBody, TableFile
from litelog.stores.registry import open_store
from litelog.stores.retrying_store import RetryingStore

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Iterator, Mapping

    from litelog.stores.object_store import ObjectStore

MAX_OPEN = 1000
"""The most partitions of the table that one task may write to."""

TIME_PARTITIONS: Final = {"date": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
"""Columns that a table may be partitioned by, derived from the timestamp, and their formats."""

FIRST_DATE, LAST_DATE = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, in microseconds since 1970. Neither Python nor Spark has dates beyond them."""


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """The location of the table. The repr shows neither the URL nor options."""

    url: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return "Target()"

    def open(self, stop: threading.Event) -> ObjectStore:
        return RetryingStore(open_store(self.url, self.options), stop)


class RangeExport:
    """Writes one range. Buffers a row group for each partition of the table in which the range has rows."""

    def __init__(self, store: ObjectStore, settings: ExportSettings, name: str) -> None:
        """``name``: the name of the files in the table's folders, the same each time this range is exported."""
        self._store = store
        self._settings = settings
        self._name = name

    def write(self, batches: Iterable[Any]) -> list[ExportedFile]:
        """Write all batches. Returns the durable files. Raises StoreError and MalformedJsonError."""
        with tempfile.TemporaryDirectory(prefix="litelog-export-") as folder:
            outputs: dict[str, TableFile] = {}
            tables: Iterable[Any] = map(self._convert, _large(batches))
            if self._settings.merge_on is not None:
                tables = latest_rows(tables, self._settings.merge_on)
            for whole in tables:
                for value, table in self._split(whole):
                    if value not in outputs:
                        if len(outputs) == MAX_OPEN:
                            raise ConfigError(f"a task would write to more than {MAX_OPEN} partitions of the table")
                        path = os.path.join(folder, str(len(outputs)))
                        outputs[value] = TableFile(path, table.schema, self._settings)
                    outputs[value].add(table)
            return [self._put(value, output) for value, output in sorted(outputs.items())]

    def _convert(self, table: Any) -> Any:
        """Convert columns of the log to columns of the table."""
        schema = self._settings.json_schema
        if schema is None:
            return table
        table = table.combine_chunks()
        values, sequences = table.column("value"), table.column("sequence")
        values, sequences = (column.chunk(0) if column.num_chunks else column for column in (values, sequences))
        parsed = parse_values(values, sequences, schema, lenient=self._settings.lenient)
        kept = table.drop_columns(["value"])
        for field in schema:
            kept = kept.append_column(field, parsed.column(field.name))
        return kept

    def _split(self, table: Any) -> Iterator[tuple[str, Any]]:
        """Yield (value of the partition column, its rows), in order of time."""
        if self._settings.partition_by is None:
            yield "", table
            return
        import pyarrow  # noqa: PLC0415 - an extra
        from pyarrow import compute  # noqa: PLC0415 - an extra

        _require_dates(table)
        unit = {"date": "day", "hour": "hour"}[self._settings.partition_by]
        floors = compute.floor_temporal(table.column("timestamp"), unit=unit)
        for floor in compute.unique(floors).to_pylist():
            scalar = pyarrow.scalar(floor, floors.type)
            text = "__HIVE_DEFAULT_PARTITION__" if floor is None else _render(floor, self._settings.partition_by)
            chosen = compute.is_null(floors) if floor is None else compute.equal(floors, scalar)
            yield text, table.filter(chosen)

    def _put(self, value: str, output: TableFile) -> ExportedFile:
        output.close()
        column = self._settings.partition_by
        folder = f"{column}={value}/" if column else "" if self._settings.merge_on is None else MERGED
        key = f"{folder}{self._name}.parquet"
        self._store.put(key, FileBody(output.path), create_only=False)
        size = os.path.getsize(output.path)
        os.unlink(output.path)
        return ExportedFile(key, output.rows, size, output.first, output.last, {column: value} if column else {})


def _large(batches: Iterable[Any]) -> Iterator[Any]:
    """Combine batches into tables of 131,072 rows or more, which are cheaper to process."""
    import pyarrow  # noqa: PLC0415 - an extra

    held: list[Any] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += len(batch)
        if rows >= 1 << 17:
            yield pyarrow.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pyarrow.Table.from_batches(held)


def _require_dates(table: Any) -> None:
    """Raise ConfigError for a timestamp that no date can express, for example nanoseconds given as microseconds."""
    from pyarrow import compute  # noqa: PLC0415 - an extra

    stamps = table.column("timestamp").cast("int64")
    outside = compute.or_(compute.less(stamps, FIRST_DATE), compute.greater(stamps, LAST_DATE))
    if compute.any(outside).as_py():
        place = compute.index(outside, True).as_py()
        raise ConfigError(
            f"sequence {table.column('sequence')[place]} has the timestamp {stamps[place]} microseconds since 1970, "
            "which is outside the years 1 to 9999, so partition_by does not work: choose a new target without it"
        )


def _render(floor: Any, column: str) -> str:
    return str(floor.strftime(TIME_PARTITIONS[column]))
