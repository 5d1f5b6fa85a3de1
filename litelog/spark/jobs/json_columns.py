"""Parses JSON values into columns of a given schema with Arrow. Reports malformed values, and never guesses."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from litelog.errors import ConfigError, CorruptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

BLOCK_BYTES = 1 << 30
"""The block size for Arrow: one block holds all values of a batch. Otherwise Arrow would infer types from the first."""

UNPARSED = frozenset({"date", "time", "variant", "geometry", "geography"})
"""Spark types for which Arrow would accept a number or another object, unlike Spark."""


class MalformedJsonError(CorruptionError):
    """A record's value is not a JSON object of the schema."""

    def __init__(self, sequence: int, reason: str) -> None:
        self.sequence = sequence
        super().__init__(f"sequence {sequence}: its value is not a JSON object of the schema: {reason}")


def parse_values(values: Any, sequences: Any, schema: Any, *, lenient: bool) -> Any:
    """Parse ``values`` (binary) into a pyarrow.Table of ``schema``, with a row for each of them, in order.

    Ignores fields that the schema does not name; fields that an object lacks are null. Raises MalformedJsonError,
    naming the first record that cannot be parsed; with ``lenient`` its columns are null.
    """
    import pyarrow  # noqa: PLC0415 - an extra

    try:
        return _parse(pyarrow, values, schema)
    except pyarrow.ArrowInvalid as error:
        if len(values) == 1:
            if not lenient:
                raise MalformedJsonError(sequences[0].as_py(), str(error).splitlines()[0]) from error
            return pyarrow.Table.from_arrays([pyarrow.nulls(1, field.type) for field in schema], schema=schema)
    middle = len(values) // 2
    halves = [(values[:middle], sequences[:middle]), (values[middle:], sequences[middle:])]
    return pyarrow.concat_tables([parse_values(*half, schema, lenient=lenient) for half in halves])


def _parse(pyarrow: Any, values: Any, schema: Any) -> Any:
    from pyarrow import compute, json  # noqa: PLC0415 - an extra

    if not len(values):
        return schema.empty_table()
    lines = pyarrow.array([values.cast(pyarrow.string())], pyarrow.list_(pyarrow.string()))  # ArrowInvalid: no UTF-8

    def read(separator: str, wanted: Any, before: bytes = b"", after: bytes = b"") -> Any:
        joined = compute.binary_join(lines, separator)[0].as_buffer()
        text = pyarrow.py_buffer(b"".join([before, joined, after])) if before else joined
        options = json.ParseOptions(explicit_schema=wanted, newlines_in_values=True, unexpected_field_behavior="ignore")
        reading = json.ReadOptions(use_threads=False, block_size=BLOCK_BYTES)
        return json.read_json(pyarrow.BufferReader(text), reading, options)

    # Arrow reads contiguous objects regardless of where values end, and crashes if a null comes first. So each value is
    # first parsed as the field of another object. Only values with further fields pass; the second read refuses them.
    held = read('}\n{"value":', pyarrow.schema([("value", pyarrow.struct([]))]), b'{"value":', b"}")
    if held.num_rows != len(values) or held.column(0).null_count:
        raise pyarrow.ArrowInvalid("it is not one object")
    return read("\n", schema).select(schema.names)


def arrow_schema_of(ddl: str, taken: Collection[str] = (), *, lenient: bool = False) -> Any:
    """Convert a schema as Spark writes it (``user STRING, at TIMESTAMP, amount DOUBLE``) to a pyarrow.Schema.

    Raises ConfigError for an invalid schema, for a type that Arrow does not create from JSON, for NOT NULL if
    ``lenient`` gives nulls, and for duplicate columns, ignoring case, including those of the table (``taken``): Spark
    could not read such a table.
    """
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - an extra
    from pyspark.sql.types import StructType  # noqa: PLC0415 - an extra

    try:
        parsed = cast("StructType", StructType.fromDDL(ddl))
        names = parsed.fieldNames()
    except Exception as error:
        message = (line.strip() for line in str(error).splitlines())
        raise ConfigError(
            f"schema {ddl!r} is not valid: {next(filter(None, message), type(error).__name__)}"
        ) from error
    held = {name.lower() for name in taken}
    for name in names:
        if name.lower() in held:
            raise ConfigError(f"schema {ddl!r} names the column {name}, which the table has already: leave it out")
        held.add(name.lower())
    for field in parsed.fields:
        if lenient and not field.nullable:
            raise ConfigError(f"schema {ddl!r} has the column {field.name} NOT NULL, but lenient gives it nulls")
        _require_parsed(field)
    return to_arrow_schema(parsed, timezone="UTC")


def _kinds(data_type: Any) -> Iterator[str]:
    """Yield the names of a Spark type, and of the types that it consists of."""
    yield data_type.typeName()
    if hasattr(data_type, "elementType"):
        yield from _kinds(data_type.elementType)
    for field in getattr(data_type, "fields", ()):
        yield from _kinds(field.dataType)


def _require_parsed(field: Any) -> None:
    """Raise ConfigError for a type that cannot be parsed from JSON, or that, like DATE, is parsed differently."""
    import pyarrow  # noqa: PLC0415 - an extra
    from pyspark.errors import PySparkException  # noqa: PLC0415 - an extra
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - an extra
    from pyspark.sql.types import StructType  # noqa: PLC0415 - an extra

    spelled = str(field.dataType.simpleString())
    fits = UNPARSED.isdisjoint(_kinds(field.dataType))
    try:
        schema = to_arrow_schema(StructType().add(field.name, field.dataType), timezone="UTC")
        with suppress(pyarrow.ArrowInvalid):  # a NOT NULL field is missing
            _parse(pyarrow, pyarrow.array([b"{}"]), schema)
    except (PySparkException, NotImplementedError):
        fits = False
    if not fits:
        raise ConfigError(
            f"schema: column {field.name} is {spelled.upper()}, which is not made of JSON: "
            "use STRING, or a STRUCT or ARRAY of types that are, and cast it in Spark"
        )
