"""``litelog.spark.write``: writes as ``df.write.format("litelog")`` does, but writes no log segment twice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from litelog.spark.options import format_options

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
    """Append a DataFrame's records to a replica, numbered in the order of its partitions.

    A write that fails leaves nothing that readers see.

    Args:
        frame: the DataFrame, with a column ``value``, and ``key`` and ``timestamp`` if there are any.
        url: URL of the replica.
        overwrite: start the log again, in a generation that diverges, instead of appending to it.
        count_first: keep the DataFrame in memory and on disk, and count its partitions first. Tasks then write each log
            segment once, with its final sequences, and nothing is claimed before the DataFrame is computed. Without it,
            the driver numbers all partitions after the first one, which reads and writes them once more. That pays off
            only for little data.
        options: options of the data source's writer.

    Raises:
        ConfigError: a column has a wrong name or type (raised before anything is computed or claimed), or an option
            does not fit.
        FencedError: another owner has the replica.
        StoreError: a request to the store failed.
        CorruptionError: an object of the replica is damaged.
    """
    from litelog.spark.sink.segments import check_columns  # noqa: PLC0415

    given = format_options(options)
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
    """Count the rows of each partition of a DataFrame with a column ``value``. Runs one job, which fails for a null."""

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
