"""A task of an export: writes a range of a log to Parquet files with pyarrow, under predictable names."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from litelog.errors import ConfigError
from litelog.spark.jobs.json_columns import parse_values
from litelog.spark.jobs.latest_rows import latest_rows
from litelog.spark.jobs.manifest import MERGED, ExportedFile
from litelog.stores.registry import open_store
from litelog.stores.retrying_store import RetryingStore

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Iterator, Mapping

    from litelog.stores.object_store import ObjectStore

GROUP_ROWS = 1 << 20
"""Rows of a row group. A task buffers at most one row group for each partition of the table."""

GROUP_BYTES = 64 << 20

READ_BYTES = 4 << 20
MAX_OPEN = 1000
"""The most partitions of the table that one task may write to."""

TIME_PARTITIONS: Final = {"date": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
"""Columns that a table may be partitioned by, derived from the timestamp, and their formats."""

FIRST_DATE, LAST_DATE = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, in microseconds since 1970. Neither Python nor Spark has dates beyond them."""


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """The layout of rows. Picklable."""

    partition_by: str | None
    """``date``, ``hour``, or None."""
    json_schema: Any = None
    """The pyarrow.Schema to parse values by; None: values stay as they are."""
    lenient: bool = False
    """Values that are not valid JSON become nulls instead of an error."""
    merge_on: str | None = None
    """The column of which the table holds the latest row for each value; None: it holds all rows."""
    compression: str = "zstd"
    level: int | None = 1

    def arrow_schema(self) -> Any:
        """The table's columns, except the one that it is partitioned by."""
        import pyarrow  # noqa: PLC0415 - an extra

        fields = [
            pyarrow.field("sequence", pyarrow.int64()),
            pyarrow.field("timestamp", pyarrow.timestamp("us", tz="UTC")),
            pyarrow.field("key", pyarrow.binary()),
        ]
        values = [pyarrow.field("value", pyarrow.binary())] if self.json_schema is None else self.json_schema
        return pyarrow.schema([*fields, *values])


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
            outputs: dict[str, _Output] = {}
            tables: Iterable[Any] = map(self._convert, _large(batches))
            if self._settings.merge_on is not None:
                tables = latest_rows(tables, self._settings.merge_on)
            for whole in tables:
                for value, table in self._split(whole):
                    if value not in outputs:
                        if len(outputs) == MAX_OPEN:
                            raise ConfigError(f"a task would write to more than {MAX_OPEN} partitions of the table")
                        path = os.path.join(folder, str(len(outputs)))
                        outputs[value] = _Output(path, table.schema, self._settings)
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

    def _put(self, value: str, output: _Output) -> ExportedFile:
        output.close()
        column = self._settings.partition_by
        folder = f"{column}={value}/" if column else "" if self._settings.merge_on is None else MERGED
        key = f"{folder}{self._name}.parquet"
        self._store.put(key, _FileBody(output.path), create_only=False)
        size = os.path.getsize(output.path)
        os.unlink(output.path)
        return ExportedFile(key, output.rows, size, output.first, output.last, {column: value} if column else {})


class _Output:
    """A file that is being written, and the rows for its next row group."""

    def __init__(self, path: str, schema: Any, settings: ExportSettings) -> None:
        from pyarrow import parquet  # noqa: PLC0415 - an extra

        self.path = path
        self.rows = 0
        self.first = self.last = -1
        self._held: list[Any] = []
        self._rows = self._bytes = 0
        self._writer = parquet.ParquetWriter(
            path,
            schema,
            compression=settings.compression,
            compression_level=settings.level,
            use_dictionary=["key"] if "key" in schema.names and settings.json_schema is None else True,
            write_statistics=[name for name in schema.names if name != "value"],
            sorting_columns=[parquet.SortingColumn(schema.get_field_index("sequence"))],
        )

    def add(self, table: Any) -> None:
        sequences = table.column("sequence")
        self.first = sequences[0].as_py() if self.first < 0 else self.first
        self.last = sequences[-1].as_py()
        self.rows += table.num_rows
        self._held.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow  # noqa: PLC0415 - an extra

        if self._held:
            self._writer.write_table(pyarrow.concat_tables(self._held), row_group_size=GROUP_ROWS)
            self._held, self._rows, self._bytes = [], 0, 0


class _FileBody:
    """A file as the body of a put. Each iteration yields the same bytes."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        with open(self._path, "rb") as file:
            while piece := file.read(READ_BYTES):
                yield piece


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
            f"sequence {table.column('sequence')[place]} is stamped {stamps[place]} microseconds since 1970, which is "
            "outside the years 1 to 9999, so partition_by does not work: choose a new target without it"
        )


def _render(floor: Any, column: str) -> str:
    return str(floor.strftime(TIME_PARTITIONS[column]))
