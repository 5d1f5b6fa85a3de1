"""Exports many logs, each in one task to its own table. All tasks of a cluster share a large log."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import ConfigError
from litelog.spark.fleet.replicas import absolute, find_fleet
from litelog.spark.fleet.running import make_report, run_by_size
from litelog.spark.jobs.export_job import export as export_log
from litelog.spark.jobs.local_tasks import LocalTasks
from litelog.spark.options import format_options
from litelog.spark.store_options import read_store_options, replica_url
from litelog.stores.registry import place_below

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.spark.fleet.replicas import FleetReplica
    from litelog.spark.jobs.progress import Progress

COLUMNS = (
    "target STRING, runs BIGINT, first BIGINT, next BIGINT, records BIGINT, file_count BIGINT, written_bytes BIGINT"
)

LARGE_BYTES = 1 << 30
"""A replica of more bytes is exported by all tasks together, after the others."""

TABLES = ("parquet", "delta")
"""Kinds of tables that a place names. An Iceberg table has a name in a catalog."""


@dataclass(frozen=True, slots=True)
class ExportJob:
    """Exports a replica to its name below ``target``."""

    target: str = field(repr=False)
    shape: Mapping[str, Any] = field(repr=False)
    """The arguments of ``export`` that all logs share."""
    columns: str = COLUMNS

    def run(self, replica: FleetReplica) -> dict[str, object]:
        """Export it in this task. Attempts at the same time write the same files."""
        return self.run_on(LocalTasks(), replica)

    def run_on(self, tasks: Any, replica: FleetReplica) -> dict[str, object]:
        """Export it with the tasks of a session."""
        target = place_below(self.target, replica.name)
        done = export_log(tasks, replica.url, target, **self.shape)
        return {
            "target": target.partition("?")[0],
            "runs": done.runs,
            "first": done.first,
            "next": done.next,
            "records": done.rows,
            "file_count": done.files,
            "written_bytes": done.bytes,
        }


@dataclass(frozen=True, slots=True)
class LargeExportJob:
    """Exports a replica on all tasks. It runs on the driver."""

    spark: Any
    job: ExportJob
    columns: str = COLUMNS

    def run(self, replica: FleetReplica) -> dict[str, object]:
        """Export it."""
        return self.job.run_on(self.spark, replica)


def export(  # noqa: PLR0913 - each is a separate choice
    spark: Any,
    replicas: str | Sequence[str],
    target: str,
    *,
    partition_by: str | None = None,
    schema: str | None = None,
    lenient: bool = False,
    table: str = "parquet",
    merge_on: str | None = None,
    options: Mapping[str, object] | None = None,
    target_options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
    large_bytes: int = LARGE_BYTES,
) -> Any:
    """Add to a table for each replica, at its name below ``target``, all records that the table lacks.

    Args:
        spark: the SparkSession.
        replicas: URLs, folders or patterns (``s3://bucket/logs/*``). A replica's name is its path below the folders
            before the first wildcard.
        target: URL or folder below which the tables are.
        partition_by: ``date`` or ``hour``, of the records' timestamps; None: no partitions.
        schema: columns to parse from values.
        lenient: make the columns null if a value does not fit.
        table: ``parquet`` or ``delta``.
        merge_on: of ``delta`` tables: keep only the latest row for each value of this column.
        options: options of the data source.
        target_options: options of the target's store, if they differ.
        progress: called with bytes done and total bytes.
        large_bytes: replicas with more bytes are exported one after the other, each by all tasks.

    Returns:
        The report, a pyspark.sql.DataFrame with one row for each replica.

    Raises:
        NothingToRestoreError: no replica matches a pattern.
        ConfigError: an option does not fit, or two replicas have one name.
        StoreError: the replicas cannot be listed.
    """
    if table not in TABLES:
        raise ConfigError(f"table={table!r} must be one of {', '.join(TABLES)} to export several logs")
    own, _ = read_store_options(format_options(options))
    fleet = find_fleet(replicas, own)
    shape = {
        "partition_by": partition_by,
        "schema": schema,
        "lenient": lenient,
        "table": table,
        "merge_on": merge_on,
        "options": options,
        "target_options": target_options,
    }
    job = ExportJob(absolute(replica_url(target)), shape)
    rows = run_by_size(spark, fleet, job, LargeExportJob(spark, job), large_bytes, progress)
    return make_report(spark, rows, job.columns)
