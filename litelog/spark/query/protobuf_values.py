"""Decodes values of Protobuf with the package ``protobuf``, for sessions without Spark's jar.

The columns have the types and nulls of Spark's ``from_protobuf`` without options: an enum is its name, a field that is
not set is null, and unsigned numbers have the signed types of their size.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"


def decode_protobuf(column: Any, message: str, descriptor: bytes, *, lenient: bool) -> Any:
    """The column of what a column's bytes encode.

    Args:
        column: the bytes, as Spark's column.
        message: the name of the message, with or without its package.
        descriptor: a descriptor set.
        lenient: whether a value that cannot be decoded becomes null. Otherwise it ends the query.

    Raises:
        ConfigError: the package is missing, the descriptor lacks the message, or the message contains itself.
    """
    import pyarrow  # noqa: PLC0415 - an extra
    from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415 - an extra

    def decoded(values: Any) -> Any:
        read = reader(message, descriptor, lenient=lenient)
        found = (None if one is None else read(one) for one in values.to_pylist())
        return pyarrow.array(found, arrow_type(message, descriptor))

    decoded.__annotations__ = dict.fromkeys(("values", "return"), pyarrow.Array)  # by which Spark knows its kind
    made: Any = arrow_udf  # its stub knows no structs
    return made(decoded, spark_type(message, descriptor))(column)


def spark_type(message: str, descriptor: bytes) -> Any:
    """The type of the column. Raises as ``decode_protobuf`` does."""
    return _struct_of(_message_class(message, descriptor).DESCRIPTOR, ())


def arrow_type(message: str, descriptor: bytes) -> Any:
    """The same type for Arrow."""
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415 - an extra

    return to_arrow_type(spark_type(message, descriptor), timezone="UTC")


@lru_cache(maxsize=16)
def _message_class(name: str, descriptor: bytes) -> Any:
    """The class of a message. Raises ConfigError."""
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415 - an extra
        from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415
        from google.protobuf.message import DecodeError  # noqa: PLC0415
        from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            "decode: the session lacks Spark's jar for protobuf, and Python lacks the package protobuf: on each "
            "machine of the cluster, pip install 'protobuf>=6.30'"
        ) from None
    pool = DescriptorPool()
    try:
        files = FileDescriptorSet.FromString(descriptor).file
        for file in files:
            pool.Add(file)
        for file in files:
            for full in _names_of(pool.FindFileByName(file.name).message_types_by_name.values()):
                if name in (full, full.rpartition(".")[2]):
                    return GetMessageClass(pool.FindMessageTypeByName(full))
    except (DecodeError, TypeError, KeyError) as error:
        raise ConfigError(
            f"decode: the descriptor cannot be used: {error}. Make it with protoc --include_imports "
            "--descriptor_set_out=FILE"
        ) from None
    raise ConfigError(f"decode: the descriptor has no message {name}")


def _names_of(messages: Any) -> list[str]:
    """The full names of messages, and of those that are defined in them."""
    found = []
    for message in messages:
        found += [message.full_name, *_names_of(message.nested_types)]
    return found


def _struct_of(message: Any, within: tuple[str, ...]) -> Any:
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415 - an extra

    if message.full_name in within:
        raise ConfigError(f"decode: message {message.full_name} contains itself: only Spark's jar decodes it")
    inner = (*within, message.full_name)
    return StructType(
        [
            StructField(field.name, _type_of(field, inner), not (field.is_required or field.is_repeated))
            for field in message.fields
        ]
    )


def _type_of(field: Any, within: tuple[str, ...]) -> Any:
    from pyspark.sql.types import ArrayType, MapType  # noqa: PLC0415 - an extra

    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return MapType(_single_type(key, within), _single_type(value, within), valueContainsNull=False)
    single = _single_type(field, within)
    return ArrayType(single, containsNull=False) if field.is_repeated else single


def _single_type(field: Any, within: tuple[str, ...]) -> Any:
    from pyspark.sql import types  # noqa: PLC0415 - an extra

    if field.message_type is not None:
        known = {_TIMESTAMP: types.TimestampType, _DURATION: types.DayTimeIntervalType}
        found = known.get(field.message_type.full_name)
        return _struct_of(field.message_type, within) if found is None else found()
    return {
        field.CPPTYPE_INT32: types.IntegerType,
        field.CPPTYPE_UINT32: types.IntegerType,
        field.CPPTYPE_INT64: types.LongType,
        field.CPPTYPE_UINT64: types.LongType,
        field.CPPTYPE_FLOAT: types.FloatType,
        field.CPPTYPE_DOUBLE: types.DoubleType,
        field.CPPTYPE_BOOL: types.BooleanType,
        field.CPPTYPE_ENUM: types.StringType,
        field.CPPTYPE_STRING: types.BinaryType if field.type == field.TYPE_BYTES else types.StringType,
    }[field.cpp_type]()


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def reader(name: str, descriptor: bytes, *, lenient: bool) -> Callable[[bytes], dict[str, Any] | None]:
    """The function that decodes a value, to what Arrow takes. It raises ValueError unless it is ``lenient``."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - an extra

    made = _message_class(name, descriptor)
    fields = _field_readers(made.DESCRIPTOR)

    def read(value: bytes) -> dict[str, Any] | None:
        try:
            return _read_fields(made.FromString(value), fields)
        except (DecodeError, _UnfitError) as error:
            if lenient:
                return None
            raise ValueError(f"decode: a value is not a message {name}: {error}") from None

    return read


class _UnfitError(Exception):
    """Spark's type has no such value."""


_Fields = list[tuple[str, "Callable[[Any], Any]"]]


def _field_readers(message: Any) -> _Fields:
    return [(field.name, _field_reader(field)) for field in message.fields]


def _read_fields(message: Any, fields: _Fields) -> dict[str, Any]:
    return {name: read(message) for name, read in fields}


def _field_reader(field: Any) -> Callable[[Any], Any]:
    """The function that takes a field of a message; None if it is not set."""
    name = field.name
    if _is_map(field):
        key, value = (_value_reader(field.message_type.fields_by_name[one]) for one in ("key", "value"))
        return lambda message: [(key(one), value(held)) for one, held in getattr(message, name).items()]
    value = _value_reader(field)
    if field.is_repeated:
        return lambda message: [value(one) for one in getattr(message, name)]
    if field.has_presence:
        is_default = field.has_default_value
        return lambda message: value(getattr(message, name)) if is_default or message.HasField(name) else None
    unset = field.default_value
    return lambda message: None if (held := getattr(message, name)) == unset else value(held)


def _value_reader(field: Any) -> Callable[[Any], Any]:
    """The function that converts a value of Protobuf to a value of Spark."""
    if field.message_type is not None:
        return _message_reader(field.message_type)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        unknown = f"UNKNOWN_ENUM_VALUE_{field.enum_type.name}_"
        return lambda value: names.get(value) or f"{unknown}{value}"
    if field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        half = 1 << (31 if field.cpp_type == field.CPPTYPE_UINT32 else 63)
        return lambda value: (value + half) % (2 * half) - half
    if field.type == field.TYPE_STRING:  # the package returns bytes that are not UTF-8 as they are, in proto2
        return lambda value: value.decode(errors="replace") if isinstance(value, bytes) else value
    return lambda value: value


def _message_reader(message: Any) -> Callable[[Any], Any]:
    """As ``_value_reader``, for the values of a message's type."""
    if message.full_name == _TIMESTAMP:
        return lambda value: _require_fit(value.seconds * 1_000_000 + value.nanos // 1000)
    if message.full_name == _DURATION:
        return lambda value: _require_fit(value.seconds * 1_000_000 + int(value.nanos / 1000))
    fields = _field_readers(message)
    return lambda value: _read_fields(value, fields)


def _require_fit(microseconds: int) -> int:
    if not -(1 << 63) <= microseconds < 1 << 63:
        raise _UnfitError(f"{microseconds} microseconds are beyond Spark's timestamps")
    return microseconds
