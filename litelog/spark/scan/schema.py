"""The columns of a log in Spark: names, types, and which may be null."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.formats.extra_columns import ColumnType
from litelog.spark.options import Mode, RecordSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.spark.options import ReadOptions

TYPES: Final = {
    "sequence": "bigint",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "generation": "string",
    "index": "bigint",
    "offset": "bigint",
    "epoch": "bigint",
    "log": "string",
}
"""Each column's type as Spark writes it (``simpleString``).

``offset``: where the record's value begins in its log segment, in bytes. ``generation``, ``index``, ``epoch``: the
generation that is read, and the log segment in it; null for the folder of a log. ``log``: the log's name.
"""

FORMAT_TYPES: Final = {
    "command": "string",
    "arguments": "array<binary>",
    "ts": "bigint",
    "transactions": "int",
}
"""The types of columns that only some formats have. They are null for the logs of other formats."""

KAFKA_TYPES: Final = {
    "topic": "string",
    "partition": "int",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The types of further columns of Kafka's schema. The log's name states ``topic`` and ``partition``."""

KAFKA: Final = {
    "key": "key",
    "value": "value",
    "topic": "topic",
    "partition": "partition",
    "offset": "sequence",
    "timestamp": "timestamp",
    "timestampType": "timestampType",
    "headers": "headers",
}
"""The columns of Spark's Kafka source, and the column that each of them has here."""

_KAFKAS_OWN = frozenset(name.lower() for name in KAFKA_TYPES)

RECORD = ("sequence", "timestamp", "key", "value")
METADATA = ("generation", "index", "offset", "epoch", "log")
CORRUPT_TYPE = "string"


@dataclass(frozen=True, slots=True)
class Column:
    """A column to read. ``name`` is in TYPES or, if ``is_corrupt``, names the column for malformed data."""

    name: str
    nullable: bool
    is_corrupt: bool = False
    spelled: str = ""
    """The spelling that the reader used; empty: the same as ``name``."""

    @property
    def title(self) -> str:
        """The column's name in the result."""
        return self.spelled or self.name

    def asked_as(self, nullable: bool) -> Column:
        """The same column, nullable as a schema asks."""
        return replace(self, nullable=nullable)


def kafka_columns(options: ReadOptions, names: Sequence[str] | None = None) -> tuple[Column, ...]:
    """The columns of Kafka's schema, or those in ``names``. All may be null, as in Spark's Kafka source.

    Raises ConfigError for an unknown name.
    """
    if names is None:
        names = [name for name in KAFKA if options.include_headers or name != "headers"]
    known = {name.lower(): (name, column) for name, column in KAFKA.items()}
    found = []
    for name in names:
        if options.mode is Mode.PERMISSIVE and name.lower() == options.corrupt_column.lower():
            found.append(Column(options.corrupt_column, nullable=True, is_corrupt=True, spelled=name))
            continue
        if name.lower() not in known:
            raise ConfigError(f"Kafka's schema has no column {name!r} (it has {', '.join(KAFKA)})")
        found.append(Column(known[name.lower()][1], nullable=True, spelled=name))
    return tuple(found)


def log_columns(
    options: ReadOptions,
    *,
    has_timestamps: bool,
    has_generations: bool = True,
    names: Sequence[str] | None = None,
    own: Sequence[str] = (),
) -> tuple[Column, ...]:
    """Columns of a batch, or those in ``names``, NOT NULL where possible. Raises ConfigError for an unknown name.

    ``own``: those of FORMAT_TYPES that the logs have, for a batch with metadata.
    """
    lenient = options.mode is Mode.PERMISSIVE
    if lenient and options.corrupt_column.lower() in TYPES:
        raise ConfigError(
            f"columnNameOfCorruptRecord={options.corrupt_column!r} is a column of the log: choose another name"
        )
    if names is None:
        metadata = (*METADATA, *own) if options.include_metadata else METADATA[-1:] if options.has_several else ()
        names = [*RECORD, *metadata, *([options.corrupt_column] if lenient else [])]
    null = {"key"} if has_timestamps else {"key", "timestamp"}
    null |= set() if has_generations else {"generation", "index", "epoch"}
    if lenient:
        null |= {"sequence", "timestamp", "value", "offset"}
    return tuple(_column(name, null, options.corrupt_column if lenient else None) for name in names)


def asked_columns(options: ReadOptions, fields: Sequence[tuple[str, str, bool]]) -> tuple[Column, ...]:
    """The columns that a schema asks for by (name, type, nullable), nullable as it has them.

    Raises ConfigError for a column that a log does not have, and for an empty schema: Spark loses rows without columns.
    """
    if not fields:
        raise ConfigError("the schema has no column: ask for one, such as sequence")
    names = [name for name, _, _ in fields]
    if asks_for_kafka(options, names):
        most_null = kafka_columns(options, names)
    else:
        most_null = log_columns(options, has_timestamps=False, has_generations=False, names=names)
    found = []
    for column, (name, kind, nullable) in zip(most_null, fields, strict=True):
        expected = type_of(column)
        if kind != expected:
            raise ConfigError(
                f"column {name} is {expected.upper()}, not {kind.upper()}: ask for this type, and cast it in Spark"
            )
        found.append(column.asked_as(nullable))
    return tuple(found)


def asks_for_kafka(options: ReadOptions, names: Sequence[str]) -> bool:
    """Whether a schema is Kafka's: if an option says so, or else if it has a name that only Kafka's schema has.

    ``LitelogProvider.java`` decides in the same way.
    """
    if options.record_schema is not None:
        return options.record_schema is RecordSchema.KAFKA
    return not _KAFKAS_OWN.isdisjoint(name.lower() for name in names)


def type_of(column: Column) -> str:
    """A column's type as Spark writes it."""
    if column.is_corrupt:
        return CORRUPT_TYPE
    return TYPES.get(column.name) or FORMAT_TYPES.get(column.name) or KAFKA_TYPES[column.name]


def _column(name: str, null: set[str], corrupt: str | None) -> Column:
    if corrupt is not None and name.lower() == corrupt.lower():
        return Column(corrupt, nullable=True, is_corrupt=True, spelled=name)
    known = name.lower()
    if known in FORMAT_TYPES:
        return Column(known, nullable=True, spelled=name)
    if known not in TYPES:
        raise ConfigError(
            f"a log has no column {name!r} (it has {', '.join([*TYPES, *([corrupt] if corrupt else [])])})"
        )
    return Column(known, known in null, spelled=name)


def arrow_schema(columns: Sequence[Column]) -> Any:
    """The pyarrow.Schema of the batches: exactly what Spark makes of the same columns."""
    import pyarrow  # noqa: PLC0415  # an extra

    types = {
        "bigint": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
        "binary": pyarrow.binary(),
        "string": pyarrow.string(),
        "int": pyarrow.int32(),
        KAFKA_TYPES["headers"]: ColumnType.HEADERS.arrow(),
        FORMAT_TYPES["arguments"]: ColumnType.BYTES_LIST.arrow(),
    }
    return pyarrow.schema([pyarrow.field(column.title, types[type_of(column)], column.nullable) for column in columns])
