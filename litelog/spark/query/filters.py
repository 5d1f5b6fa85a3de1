"""The conditions ``(column, operator, value)`` of the fast path: checked, as one expression, and what they bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from numbers import Integral
from operator import and_, eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any, Final

from litelog.errors import ConfigError
from litelog.spark.options import MAX_SEQUENCE, Mode
from litelog.spark.scan.schema import TYPES, arrow_schema, log_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.spark.options import Range, ReadOptions

COMPARISONS: Final = {"=": eq, "==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
MEMBERSHIPS: Final = ("in", "not in")


@dataclass(frozen=True, slots=True)
class Condition:
    """One of them. ``values``: what is compared with; several only with ``in`` and ``not in``."""

    column: str
    operator: str
    values: tuple[Any, ...]


def parse_conditions(where: Iterable[Any]) -> tuple[Condition, ...]:
    """A list of ``(column, operator, value)``, checked. ConfigError that names the one that does not fit."""
    return tuple(map(_parse, where))


def expression_of(conditions: Sequence[Condition]) -> Any:
    """The pyarrow Expression that holds where all of them do; None where there are none."""
    return reduce(and_, map(_express, conditions)) if conditions else None


def narrow(wanted: Range, conditions: Sequence[Condition]) -> Range:
    """``wanted``, with the sequences that they may hold for."""
    firsts, stops = [], []
    for one in conditions:
        if one.column != "sequence" or one.operator in ("!=", "not in"):
            continue
        low, high = min(one.values, default=0), max(one.values, default=-1)
        if one.operator in ("=", "==", "in", ">", ">="):
            firsts.append(low + (one.operator == ">"))
        if one.operator in ("=", "==", "in", "<", "<="):
            stops.append(high + (one.operator != "<"))
    if not firsts and not stops:
        return wanted
    return wanted.narrow(*(_clamp(bound) for bound in (max(firsts, default=None), min(stops, default=None))))


def require_bound(expression: Any, options: ReadOptions) -> None:
    """ConfigError for an expression that is none over the columns of a log."""
    import pyarrow  # noqa: PLC0415 - an extra
    from pyarrow import dataset  # noqa: PLC0415 - an extra

    names = [*TYPES, *([options.corrupt_column] if options.mode is Mode.PERMISSIVE else [])]
    table = arrow_schema(log_columns(options, has_timestamps=False, has_generations=False, names=names)).empty_table()
    try:
        dataset.dataset(table).scanner(filter=expression).to_table()
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        raise ConfigError(f"where: {expression}: {str(error).splitlines()[0]}") from None


def _clamp(bound: int | None) -> int | None:
    return None if bound is None else max(0, min(bound, MAX_SEQUENCE))


def _parse(given: Any) -> Condition:
    if not isinstance(given, tuple) or len(given) != 3:
        raise ConfigError(f"where: {given!r} is no condition: write a list of (column, operator, value)")
    column, operator, value = given
    if column not in TYPES:
        raise ConfigError(f"where: {given!r}: a log has no column {column!r} (it has {', '.join(TYPES)})")
    if operator in COMPARISONS:
        return Condition(column, operator, (_value(given, column, value),))
    if operator not in MEMBERSHIPS:
        known = ", ".join([*COMPARISONS, *MEMBERSHIPS])
        raise ConfigError(f"where: {given!r}: operator {operator!r} must be one of {known}")
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ConfigError(f"where: {given!r}: {operator} takes a list of values")
    return Condition(column, operator, tuple(_value(given, column, each) for each in value))


def _value(given: Any, column: str, value: Any) -> Any:
    """A value as it is compared with the column's."""
    kind = TYPES[column]
    if kind == "bigint":
        if type(value) is not bool and isinstance(value, Integral) and abs(int(value)) <= MAX_SEQUENCE:
            return int(value)
        wanted = "a number of 64 bits"
    elif kind == "timestamp":
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value
        wanted = "a datetime with a time zone"
    elif kind == "binary":
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        if isinstance(value, str):
            return value.encode()
        wanted = "bytes, or text"
    else:
        if isinstance(value, str):
            return value
        wanted = "text"
    raise ConfigError(f"where: {given!r}: {column} is compared with {wanted}, and not with {value!r}")


def _express(condition: Condition) -> Any:
    import pyarrow  # noqa: PLC0415 - an extra
    from pyarrow import compute  # noqa: PLC0415 - an extra

    kinds = {
        "bigint": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("us", tz="UTC"),
        "binary": pyarrow.binary(),
        "string": pyarrow.string(),
    }
    field, kind = compute.field(condition.column), kinds[TYPES[condition.column]]
    if condition.operator in COMPARISONS:
        return COMPARISONS[condition.operator](field, pyarrow.scalar(condition.values[0], kind))
    held = field.isin(pyarrow.array(condition.values, kind))
    return held if condition.operator == "in" else ~held & field.is_valid()
