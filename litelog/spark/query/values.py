"""Decodes the values of records with Spark's own functions: JSON, Avro and Protobuf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError
from litelog.spark.query.names import quoted
from litelog.spark.query.protobuf_values import decode_protobuf

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow

_FORMS = ("json", "avro", "protobuf")
_MODES = ("FAILFAST", "PERMISSIVE")
_JARS = {"avro": "4.2.0"}
"""The newest versions of Spark's jars that litelog's tests have run, in Spark 4.3.0."""
_NOT_LOADED = "NOT_LOADED"
"""In the error class of Spark for a function whose jar the session lacks."""


def decode(
    df: Any,
    form: str | pyarrow.Schema,
    *,
    schema: Any = None,
    message: str | None = None,
    descriptor: str | bytes | None = None,
    column: str = "value",
    mode: str = "FAILFAST",
    options: Mapping[str, str] | None = None,
) -> Any:
    """Replace the bytes in a column of a DataFrame, batch or stream, by what they encode.

    >>> decode(log, "json", schema="id BIGINT, total DOUBLE").select("sequence", "value.*")
    >>> decode(log, "json").selectExpr("value:id::bigint")
    >>> decode(log, pyarrow.schema([("id", pyarrow.int64())]))
    >>> decode(log, "avro", schema=Path("order.avsc").read_text())
    >>> decode(log, "protobuf", message="Order", descriptor="order.desc")

    Spark's own functions do the work: ``from_json``, ``parse_json``, ``from_avro`` and ``from_protobuf``. The last two
    need a jar, with which the session must start. In a session without the jar of Protobuf, Python decodes it, with the
    package ``protobuf``.

    Args:
        df: a DataFrame with the column.
        form: ``json``, ``avro`` or ``protobuf``; or a pyarrow.Schema, which is that of JSON objects.
        schema: for ``json`` the fields, as Spark's DDL or a StructType; without it the column becomes a VARIANT. For
            ``avro`` the schema with which the values were written, as JSON.
        message: for ``protobuf`` the full name of the message.
        descriptor: for ``protobuf`` the path of a descriptor set on this machine (``protoc --include_imports
            --descriptor_set_out=FILE``), or its bytes.
        column: the column. Null stays null.
        mode: ``FAILFAST``: a value that cannot be decoded ends the query with an error. ``PERMISSIVE``: it becomes null
            or a struct of nulls.
        options: further options of Spark's function. With them Protobuf needs the jar.

    Returns:
        The DataFrame, with the same columns.

    Raises:
        ConfigError: an argument is invalid or missing, or the session lacks the jar.
    """
    from pyspark.sql import functions  # noqa: PLC0415 - an extra

    if mode not in _MODES:
        raise ConfigError(f"mode={mode!r} must be {' or '.join(_MODES)}")
    if column not in df.columns:
        raise ConfigError(f"decode: the DataFrame has no column {column!r}; it has {', '.join(df.columns)}")
    given = {**(options or {}), "mode": mode}
    name = functions.col(quoted(column))
    if form == "avro":
        decoded = _call("from_avro", name, [_required("avro", schema=schema)], given)
    elif form == "protobuf":
        found = _required("protobuf", message=message), _read_descriptor(_required("protobuf", descriptor=descriptor))
        decoded = _call("from_protobuf", name, [*found], given)
        if not options and not _is_loaded(df, decoded):
            decoded = decode_protobuf(name, *found, lenient=mode == "PERMISSIVE")
    else:
        decoded = _from_json(name.cast("string"), _json_schema(form, schema), given)
    return _with_column(df, column, decoded, form)


def _from_json(text: Any, schema: Any, options: Mapping[str, str]) -> Any:
    from pyspark.sql import functions  # noqa: PLC0415 - an extra

    if schema is not None:
        return functions.from_json(text, schema, dict(options))
    return functions.parse_json(text) if options["mode"] == "FAILFAST" else functions.try_parse_json(text)


def _json_schema(form: Any, schema: Any) -> Any:
    """The fields of JSON objects for Spark; None if they are not known."""
    import pyarrow  # noqa: PLC0415 - an extra

    if form == "json":
        return schema
    if not isinstance(form, pyarrow.Schema):
        raise ConfigError(f"decode: {form!r} must be {', '.join(_FORMS)}, or a pyarrow.Schema")
    from pyspark.errors import PySparkTypeError  # noqa: PLC0415 - an extra
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - an extra

    if schema is not None:
        raise ConfigError("decode: give the pyarrow.Schema alone, without schema")
    try:
        return from_arrow_schema(form)
    except (PySparkTypeError, TypeError) as error:
        raise ConfigError(f"decode: {str(error).splitlines()[0]}") from None


def _required(form: str, **arguments: Any) -> Any:
    """The one argument. Raises ConfigError if it is missing."""
    ((name, value),) = arguments.items()
    if value is None:
        raise ConfigError(f"decode: {form} needs {name}")
    return value


def _read_descriptor(descriptor: str | bytes) -> bytes:
    if isinstance(descriptor, bytes):
        return descriptor
    try:
        with open(descriptor, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"descriptor {descriptor}: cannot be read ({error.strerror})") from None


def _call(function: str, column: Any, arguments: list[Any], options: Mapping[str, str]) -> Any:
    """Call a function of Spark SQL that Spark knows by its name only."""
    from pyspark.sql import functions  # noqa: PLC0415 - an extra

    pairs = [functions.lit(part) for pair in options.items() for part in pair]
    return functions.call_function(function, column, *map(functions.lit, arguments), functions.create_map(*pairs))


def _is_loaded(df: Any, decoded: Any) -> bool:
    """Whether the session has the jar of a function. True if the column has any other error."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - an extra

    try:
        df.select(decoded).schema  # noqa: B018 - over Spark Connect only this analyzes the plan
    except AnalysisException as error:
        return _NOT_LOADED not in str(error)
    return True


def _with_column(df: Any, column: str, decoded: Any, form: Any) -> Any:
    """``df`` with the column. Raises ConfigError, with what to add, if Spark lacks the jar of a function."""
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - an extra

    try:
        found = df.withColumn(column, decoded)
        if form in ("avro", "protobuf"):
            found.schema  # noqa: B018 - over Spark Connect only this analyzes the plan
    except AnalysisException as error:
        raise _explained(error, form, df.sparkSession.version) from None
    return found


def _explained(error: Exception, form: str, version: str) -> Exception:
    if _NOT_LOADED not in str(error):
        return error
    package = f"org.apache.spark:spark-{form}_2.13:{_JARS.get(form, version)}"
    return ConfigError(
        f"decode: the session lacks Spark's jar for {form}: start it with --packages {package}, or with "
        f"session(config={{'spark.jars.packages': '{package}'}}). The version is that of Spark, {version}, or the "
        "newest one before it"
    )
