"""The data source ``litelog``, which gives Spark the schema, partitions and rows. This module imports PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from litelog.errors import ConfigError
from litelog.spark.messages import says_first
from litelog.spark.options import Engine, parse_options
from litelog.spark.scan.decoding import read_partition
from litelog.spark.scan.journal import (
    JournalPartition,
    is_journal,
    journal_columns,
    plan_journal,
    read_journal,
    require_journal_columns,
)
from litelog.spark.scan.planning import plan, stated_columns
from litelog.spark.scan.schema import asked_columns, type_of
from litelog.spark.stream.options import parse_any_options, parse_stream_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.spark.options import ReadOptions
    from litelog.spark.scan.schema import Column
    from litelog.spark.sink.stream_writer import LitelogStreamWriter
    from litelog.spark.stream.reader import LitelogStreamReader


_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_WORDS = ArrayType(BinaryType())
_TYPES: dict[str, DataType] = {
    kind.simpleString(): kind
    for kind in (BinaryType(), IntegerType(), LongType(), StringType(), TimestampType(), _WORDS, _HEADERS)
}


class LitelogSource(DataSource):
    """``spark.read.format("litelog").load(URL)``: the records of replicas, and of logs in local folders."""

    @classmethod
    def name(cls) -> str:
        """The name of the data source in Spark."""
        return "litelog"

    @says_first
    def schema(self) -> StructType:
        """All columns of the logs that the options name. Costs a listing and a GET for each replica."""
        options = parse_any_options(self.options)
        return spark_schema(journal_columns(options) if is_journal(options) else stated_columns(options))

    @says_first
    def reader(self, schema: StructType) -> LitelogReader:
        """A reader of the columns in ``schema``, which may be fewer, and in a different order."""
        options = parse_options(self.options)
        if options.engine is Engine.JAVA:
            raise ConfigError(
                "engine=java: this session started without the columnar reader: let litelog.spark.session start it, or "
                "make the jar (litelog spark jar -o litelog-spark.jar) and start Spark with --jars litelog-spark.jar"
            )
        return LitelogReader(options, _asked(options, schema))

    @says_first
    def streamReader(self, schema: StructType) -> LitelogStreamReader:
        """A reader of a stream with the columns in ``schema``."""
        from litelog.spark.stream.reader import LitelogStreamReader  # noqa: PLC0415  # batches do not need it

        options = parse_stream_options(self.options)
        return LitelogStreamReader(options, _asked(options.read, schema))

    @says_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of records with the columns in ``schema``."""
        from litelog.spark.sink.writer import make_writer  # noqa: PLC0415  # readers do not need it

        return make_writer(self.options, schema, overwrite=overwrite)

    @says_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> LitelogStreamWriter:
        """A writer of the micro-batches of a stream with the columns in ``schema``."""
        from litelog.spark.sink.stream_writer import make_stream_writer  # noqa: PLC0415  # readers do not need it

        return make_stream_writer(self.options, schema, overwrite=overwrite)


class LitelogReader(DataSourceReader):
    """Plans in the driver and reads in the workers. Spark pickles it for both, so it holds only the request.

    It has no ``pushFilters``: in Spark 4.3, filters of one query leak into other queries of the same DataFrame.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[Column]) -> None:
        self._options = options
        self._columns = tuple(columns)

    @says_first
    def partitions(self) -> Sequence[InputPartition]:
        """The partitions, one for each task."""
        found = plan_journal(self._options) if is_journal(self._options) else plan(self._options).partitions
        return [InputPartition(partition) for partition in found]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a partition, as record batches."""
        planned = partition.value
        if isinstance(planned, JournalPartition):
            return read_journal(planned, self._columns)
        return read_partition(planned, self._columns) if planned is not None else iter(())


def spark_schema(columns: Sequence[Column]) -> StructType:
    """The columns as a Spark schema."""
    return StructType([StructField(column.title, _TYPES[type_of(column)], column.nullable) for column in columns])


def _asked(options: ReadOptions, schema: StructType) -> tuple[Column, ...]:
    fields = [(field.name, field.dataType.simpleString(), field.nullable) for field in schema.fields]
    columns = asked_columns(options, fields)
    if is_journal(options):
        require_journal_columns(columns)
    return columns
