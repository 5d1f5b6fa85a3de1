"""The part of the fast path that runs in workers: filters, projects and aggregates record batches in Arrow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.spark.scan.schema import TYPES, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from litelog.spark.scan.schema import Column

MERGED: Final = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}
"""The aggregate functions, and the function that merges each one's partial results."""

ROWS = 1 << 17
"""About how many rows are aggregated at a time. Each Arrow plan costs as much as some thousand rows."""

ALL = "*"
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One column of the result."""

    name: str
    column: str
    """A column of the projection; ``*`` for all rows."""
    function: str


@dataclass(frozen=True, slots=True)
class Query:
    """How to filter, project and aggregate the batches of a partition. Picklable."""

    columns: tuple[Column, ...]
    """The columns that are read."""
    where: Any = None
    """A pyarrow.compute.Expression over these columns."""
    projection: tuple[tuple[str, Any], ...] = ()
    """(name, Expression over these columns) of each column of the result; empty: the columns as they are read."""
    group_by: tuple[str, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()

    @property
    def is_plain(self) -> bool:
        return self.where is None and not self.projection and not self.aggregates

    def schema(self) -> Any:
        """The pyarrow.Schema of the batches that ``run`` yields."""
        read = arrow_schema(self.columns)
        return read if self.is_plain else _apply(self, read.empty_table(), self.aggregates).schema


def run(query: Query, batches: Iterable[Any]) -> Iterator[Any]:
    """Apply the query to record batches. Yields a result for each batch, or one for all if there are aggregates."""
    import pyarrow  # noqa: PLC0415 - an extra

    if query.is_plain:
        yield from batches
        return
    if not query.aggregates:
        for batch in batches:
            yield from _apply(query, pyarrow.Table.from_batches([batch])).to_batches()
        return
    partial = None
    for table in _tables(pyarrow, batches):
        found = _apply(query, table, query.aggregates)
        partial = found if partial is None else _merge(query, pyarrow.concat_tables([partial, found]))
    if partial is not None:
        yield from partial.combine_chunks().to_batches()


def expressions(columns: Sequence[str] | Mapping[str, Any] | None) -> tuple[tuple[str, Any], ...]:
    """The projection that ``columns`` describes; empty if it only lists names."""
    from pyarrow import compute  # noqa: PLC0415 - an extra

    if columns is None or not hasattr(columns, "items"):
        return ()
    return tuple((name, compute.field(of) if isinstance(of, str) else of) for name, of in columns.items())


def fields_of(*parts: Any, corrupt: str | None = None) -> set[str]:
    """The columns of a log that the expressions may name, possibly more.

    ``corrupt``: the column for malformed data, if there is one.
    """
    texts = [str(part) for part in parts if part is not None]
    found = {word for text in texts for word in _WORD.findall(text) if word in TYPES}
    return found | ({corrupt} if corrupt is not None and any(corrupt in text for text in texts) else set())


def parse_aggregates(aggregate: Mapping[str, Any], group_by: Sequence[str]) -> tuple[Aggregate, ...]:
    """Parse ``{name: (column, function)}``.

    Raises ConfigError for a function that tasks cannot compute in parts, for ``group_by`` without an aggregate, and if
    two columns of the result have the same name, ignoring case.
    """
    found = []
    names = [name.lower() for name in (*group_by, *aggregate)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"aggregate and group_by name a column {twice[0]!r} twice")
    for name, given in aggregate.items():
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise ConfigError(f"aggregate {name}: {given!r} is not (column, function)")
        column, function = given
        if function not in MERGED:
            raise ConfigError(f"aggregate {name}: {function!r} must be one of {', '.join(MERGED)}")
        if column == ALL and function != "count":
            raise ConfigError(f"aggregate {name}: {function} needs a column")
        found.append(Aggregate(name, column, function))
    if group_by and not found:
        raise ConfigError("group_by needs aggregate")
    return tuple(found)


def _tables(pyarrow: Any, batches: Iterable[Any]) -> Iterator[Any]:
    held: list[Any] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += len(batch)
        if rows >= ROWS:
            yield pyarrow.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pyarrow.Table.from_batches(held)


def _apply(query: Query, table: Any, aggregates: Sequence[Aggregate] = ()) -> Any:
    from pyarrow import acero  # noqa: PLC0415 - an extra

    steps = [acero.Declaration("table_source", acero.TableSourceNodeOptions(table))]
    if query.where is not None:
        steps.append(acero.Declaration("filter", acero.FilterNodeOptions(query.where)))
    if query.projection:
        names, made = zip(*query.projection, strict=True)
        steps.append(acero.Declaration("project", acero.ProjectNodeOptions(list(made), list(names))))
    if aggregates:
        steps.append(_aggregation(query.group_by, aggregates))
    return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


def _merge(query: Query, table: Any) -> Any:
    """Merge two partial results."""
    from pyarrow import acero  # noqa: PLC0415 - an extra

    merged = [Aggregate(one.name, one.name, MERGED[one.function]) for one in query.aggregates]
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    steps = [source, _aggregation(query.group_by, merged)]
    return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


def _aggregation(group_by: Sequence[str], aggregates: Sequence[Aggregate]) -> Any:
    from pyarrow import acero  # noqa: PLC0415 - an extra

    prefix = "hash_" if group_by else ""
    made: list[tuple[Any, ...]] = []
    for one in aggregates:
        if one.column == ALL:
            made.append(([], f"{prefix}count_all", None, one.name))
        else:
            made.append((one.column, prefix + one.function, None, one.name))
    return acero.Declaration("aggregate", acero.AggregateNodeOptions(made, keys=list(group_by) or None))
