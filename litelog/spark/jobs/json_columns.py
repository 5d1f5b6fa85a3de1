"""JSON values as columns of a given schema, parsed by Arrow; what is malformed is found, not guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from litelog.errors import ConfigError, CorruptionError

if TYPE_CHECKING:
    from collections.abc import Collection

BLOCK_BYTES = 1 << 30
"""One block for all that is parsed at a time: Arrow would otherwise tell types from the first one."""


class MalformedJsonError(CorruptionError):
    """A record's value is no JSON object of the schema."""

    def __init__(self, sequence: int, reason: str) -> None:
        self.sequence = sequence
        super().__init__(f"sequence {sequence}: its value is no JSON object of the schema: {reason}")


def parse_values(values: Any, sequences: Any, schema: Any, *, lenient: bool) -> Any:
    """A pyarrow.Table of ``schema`` with a row for each of ``values`` (binary), in order.

    Fields that the schema does not name are left out; those that an object lacks are null. MalformedJsonError names the
    first record that cannot be parsed; with ``lenient`` its columns are null.
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
    lines = pyarrow.array([values.cast(pyarrow.binary())], pyarrow.list_(pyarrow.binary()))
    joined = compute.binary_join(lines, b"\n")[0].as_buffer()
    options = json.ParseOptions(explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore")
    table = json.read_json(
        pyarrow.BufferReader(joined), json.ReadOptions(use_threads=False, block_size=BLOCK_BYTES), options
    )
    if table.num_rows != len(values):
        raise pyarrow.ArrowInvalid(f"{len(values)} values hold {table.num_rows} objects")
    return table.select(schema.names)


def arrow_schema_of(ddl: str, taken: Collection[str] = ()) -> Any:
    """The pyarrow.Schema of a schema as Spark writes it: ``user STRING, at TIMESTAMP, amount DOUBLE``.

    ConfigError for one that is none, and for one that names a column twice, or one that the table has besides
    (``taken``), in whatever capitals: Spark could not read such a table.
    """
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - an extra
    from pyspark.sql.types import StructType  # noqa: PLC0415 - an extra

    try:
        parsed = cast("StructType", StructType.fromDDL(ddl))
        names = parsed.fieldNames()
    except Exception as error:
        said = (line.strip() for line in str(error).splitlines())
        raise ConfigError(f"schema {ddl!r} is none: {next(filter(None, said), type(error).__name__)}") from error
    held = {name.lower() for name in taken}
    for name in names:
        if name.lower() in held:
            raise ConfigError(f"schema {ddl!r} names the column {name}, which the table has already: leave it out")
        held.add(name.lower())
    return to_arrow_schema(parsed, timezone="UTC")
