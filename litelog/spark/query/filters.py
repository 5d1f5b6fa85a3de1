"""Filters ``(column, operator, value)`` of ``litelog.spark.read``: checks and combines them, and derives bounds.

Arrow itself decides which times satisfy a filter. Records outside the resulting bounds are not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import reduce
from numbers import Integral
from operator import and_, eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any, Final

from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.formats.log_format import MAX_SEQUENCE
from litelog.spark.options import Mode, Range
from litelog.spark.scan.schema import TYPES, arrow_schema, log_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.spark.options import ReadOptions

COMPARISONS: Final = {"=": eq, "==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
MEMBERSHIPS: Final = ("in", "not in")


@dataclass(frozen=True, slots=True)
class Condition:
    """One filter. ``values``: the values to compare with; several only for ``in`` and ``not in``."""

    column: str
    operator: str
    values: tuple[Any, ...]


def parse_conditions(where: Iterable[Any]) -> tuple[Condition, ...]:
    """Parse and check a list of ``(column, operator, value)``. Raises a ConfigError that names a faulty condition."""
    return tuple(map(_parse, where))


def expression_of(conditions: Sequence[Condition]) -> Any:
    """The pyarrow Expression that combines all conditions with "and"; None if there are none."""
    return reduce(and_, map(_express, conditions)) if conditions else None


def narrow(wanted: Range, conditions: Sequence[Condition]) -> Range:
    """``wanted``, limited to the sequences that may meet the conditions."""
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
    """Raise ConfigError for an expression that does not work on the columns of a log."""
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
        raise ConfigError(f"where: {given!r} is not a condition: write a list of (column, operator, value)")
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
    """The value, converted for comparison with the column."""
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
    raise ConfigError(f"where: {given!r}: {column} is compared with {wanted}, not with {value!r}")


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


LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
"""Microseconds since 1970."""

PROBES = 32
"""How many times to test per query."""


def time_bounds(where: Any, schema: Any) -> Range:
    """The range of timestamps outside which a pyarrow Expression over ``schema`` accepts no record.

    A side has no bound if Arrow finds none. The range has no bounds if the schema allows null timestamps, and the
    expression may accept a row with one.
    """
    import pyarrow  # noqa: PLC0415 - an extra
    from pyarrow import compute  # noqa: PLC0415 - an extra

    field, kind = compute.field("timestamp"), schema.field("timestamp").type

    def none_until(times: Sequence[int]) -> list[bool]:
        return _never(where, [field <= pyarrow.scalar(time, kind) for time in times], schema)

    def none_since(times: Sequence[int]) -> list[bool]:
        return _never(where, [field >= pyarrow.scalar(-time, kind) for time in times], schema)

    if schema.field("timestamp").nullable and not _never(where, [field.is_null()], schema)[0]:
        return Range()
    before, after = _search(none_until), _search(none_since)
    since = None if before is None else min(before + 1, HIGHEST)
    return Range(since=since, until=None if after is None else -after)


def _search(never: Callable[[Sequence[int]], list[bool]]) -> int | None:
    """The highest time for which ``never`` is true; None if there is none. ``never`` is true up to some time only."""
    low, high = LOWEST + 1, HIGHEST
    if not never([low])[0]:
        return None
    while low < high:
        step = max(1, (high - low) // PROBES)
        times = [*[*range(low + step, high, step)][:PROBES], high]
        holds = [time for time, found in zip(times, never(times), strict=True) if found]
        fails = [time for time in times if time not in holds]
        low, high = max([low, *holds]), min([high + 1, *fails]) - 1
    return low


def _never(where: Any, known: Sequence[Any], schema: Any) -> list[bool]:
    """For each fact in ``known``, whether no record for which it holds meets the condition. Arrow's datasets, which
    prune files by such facts, decide that."""
    from pyarrow import dataset, fs  # noqa: PLC0415 - an extra

    names = [str(number) for number in range(len(known))]
    made = dataset.FileSystemDataset.from_paths(
        names,
        schema=schema,
        format=dataset.IpcFileFormat(),
        filesystem=fs.SubTreeFileSystem("/", fs.LocalFileSystem()),
        partitions=list(known),
    )
    left = {fragment.path for fragment in made.get_fragments(filter=where)}
    return [name not in left for name in names]
