"""The ways to take records from a reader: in columns, as Arrow record batches, or one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from litelog.formats.columns import stream_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import pyarrow

    from litelog.formats.columns import Columns, Record


class RecordStream(ABC):
    """An iterator of Record, and a context manager.

    ``read``, ``batches``, ``arrow`` and iteration share one position: each continues where the last one stopped. The
    exception is the batch that iteration buffers: the others do not see its records. One thread reads; any thread may
    close.
    """

    def __init__(self) -> None:
        self._records: Iterator[Record] = iter(())

    @abstractmethod
    def read(self) -> Columns | None:
        """Return the next records, at least one; None at the end, and after ``close``."""

    @abstractmethod
    def close(self) -> None:
        """End reading: a blocked ``read`` returns. Idempotent."""

    def sequence_after(self, columns: Columns) -> int:
        """The sequence after the last of records that ``read`` has returned."""
        return int(columns.sequences[-1]) + 1

    def batches(self) -> Iterator[Columns]:
        """Yield what ``read`` returns, until it returns None. Raises as ``read``."""
        while (columns := self.read()) is not None:
            yield columns

    def arrow(self) -> pyarrow.RecordBatchReader:
        """Return what ``batches`` yields as Arrow record batches: sequence, timestamp, key, value.

        Iterate over the batches, or hand the stream over. pandas, Polars and DuckDB take its batches without a copy:

            reader.arrow().read_pandas(types_mapper=pandas.ArrowDtype)
            polars.from_arrow(reader.arrow())
            duckdb.from_arrow(reader.arrow())

        Each batch owns its memory. Its errors are those of ``read``.

        Raises:
            ConfigError: pyarrow is not installed.
        """
        return stream_arrow(self.batches())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        while (record := next(self._records, None)) is None:
            columns = self.read()
            if columns is None:
                raise StopIteration
            self._records = iter(columns.records())
        return record

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
