"""Latest-by-key tables: which tables can be one, and the latest rows of a range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def check_merge(merge_on: str, table: str, partition_by: str | None, columns: Iterable[str]) -> None:
    """Raise ConfigError unless a table of this kind can hold the latest row for each value of ``merge_on``."""
    known = [name for name in columns if name not in ("sequence", "timestamp")]
    if merge_on not in known:
        raise ConfigError(f"merge_on={merge_on!r} must be one of the table's columns: {', '.join(known)}")
    if table != "delta":
        raise ConfigError(f"merge_on works with table=delta, not with table={table}")
    if partition_by is not None:
        raise ConfigError("merge_on does not work with partition_by: the latest row of a key may be in any partition")


def latest_rows(tables: Iterable[Any], merge_on: str) -> Iterator[Any]:
    """Reduce tables, in the order of their sequences, to one table with the last row for each value of a column.

    Rows without a value are left out.
    """
    import pyarrow  # noqa: PLC0415 - an extra
    from pyarrow import compute  # noqa: PLC0415 - an extra

    held: Any = None
    for table in tables:
        whole = table if held is None else pyarrow.concat_tables([held, table])
        whole = whole.filter(compute.is_valid(whole.column(merge_on))).combine_chunks()
        last = whole.select([merge_on, "sequence"]).group_by(merge_on).aggregate([("sequence", "max")])
        wanted = compute.sort_indices(last.column("sequence_max"))
        rows = compute.index_in(last.column("sequence_max").take(wanted), whole.column("sequence").combine_chunks())
        held = whole.take(rows)
    if held is not None and held.num_rows:
        yield held
