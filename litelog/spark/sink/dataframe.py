"""``litelog.spark.write``: what ``df.write.format("litelog")`` does, without writing anything twice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from litelog.spark.spelling import spell_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def write(
    frame: Any,
    url: str,
    *,
    overwrite: bool = False,
    count_first: bool = True,
    options: Mapping[str, object] | None = None,
) -> None:
    """Append a DataFrame's records (``value``, and ``key`` and ``timestamp`` where there are any) to a replica.

    Its records are numbered in the order of its partitions, behind those that the log holds; ``overwrite`` begins the
    log anew instead, in a generation that diverges. ``count_first``: keep the DataFrame (in memory and on disk) and
    count its partitions, so that tasks write each log segment once, with its numbers, and so that nothing is claimed
    before the DataFrame was computed. Without that what lies behind the first partition is numbered by the driver, and
    read and written once more: right where that is little.

    Raises what the data source's writer raises: nothing is readable of a write that failed. ConfigError, before
    anything is computed or claimed, for a column of another name or type.
    """
    from litelog.spark.sink.segments import check_columns  # noqa: PLC0415

    given = spell_options(options)
    check_columns(frame.schema)
    kept = frame.persist() if count_first else frame
    try:
        if count_first:
            given["partitionRecords"] = json.dumps(count_partitions(kept) or [0])
        kept.write.format("litelog").mode("overwrite" if overwrite else "append").options(**given).save(url)
    finally:
        if count_first:
            kept.unpersist()


def count_partitions(frame: Any) -> list[int]:
    """How many rows each partition of a DataFrame with a column ``value`` holds. One job. It fails for a null."""

    def count(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow  # noqa: PLC0415 - in the worker
        from pyspark import TaskContext  # noqa: PLC0415 - in the worker

        from litelog.spark.sink.segments import check_values  # noqa: PLC0415 - in the worker

        context, rows = TaskContext.get(), 0
        for batch in batches:
            check_values(batch.column("value"))
            rows += len(batch)
        number = 0 if context is None else context.partitionId()
        yield pyarrow.RecordBatch.from_pydict({"partition": [number], "rows": [rows]})

    found = {
        row["partition"]: row["rows"] for row in frame.mapInArrow(count, "partition bigint, rows bigint").collect()
    }
    return [found.get(number, 0) for number in range(max(found, default=-1) + 1)]
