"""A Parquet file of an exported table: written locally row group by row group, then put into the table's store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP_ROWS = 1 << 20
"""Rows of a row group. A file buffers at most one row group."""

GROUP_BYTES = 64 << 20

READ_BYTES = 4 << 20


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
        """The table's columns, except the partition column."""
        import pyarrow  # noqa: PLC0415 - an extra

        fields = [
            pyarrow.field("sequence", pyarrow.int64()),
            pyarrow.field("timestamp", pyarrow.timestamp("us", tz="UTC")),
            pyarrow.field("key", pyarrow.binary()),
        ]
        values = [pyarrow.field("value", pyarrow.binary())] if self.json_schema is None else self.json_schema
        return pyarrow.schema([*fields, *values])


class TableFile:
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


class FileBody:
    """A file as the body of a put. Each iteration yields the same bytes."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        with open(self._path, "rb") as file:
            while piece := file.read(READ_BYTES):
                yield piece
