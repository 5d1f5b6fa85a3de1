"""A data source without rows: Spark knows no size of it, also under Spark Connect. This module imports PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType


class NothingSource(DataSource):
    """Has any schema, and no rows."""

    @classmethod
    def name(cls) -> str:
        """The name of the data source in Spark."""
        return "litelog_nothing"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark names it
        """A reader of no rows."""
        return _NothingReader()


class _NothingReader(DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002 - none is read
        return iter(())
