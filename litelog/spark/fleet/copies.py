"""Copies many replicas to another store, each in a task."""

from __future__ import annotations

import threading
from dataclasses import field
from typing import TYPE_CHECKING, Any

from litelog.copying.execution import copy as copy_replica
from litelog.dataclass import dataclass
from litelog.spark.fleet.replicas import absolute, find_fleet
from litelog.spark.fleet.running import make_report, run_fleet
from litelog.spark.jobs.options import options_of_target, store_options
from litelog.spark.store_options import replica_url
from litelog.stores.opening import open_copy, open_retrying
from litelog.stores.registry import place_below

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.spark.fleet.replicas import FleetReplica
    from litelog.spark.jobs.progress import Progress


COLUMNS = "target STRING, copied_objects BIGINT, copied_bytes BIGINT, deleted_objects BIGINT"


@dataclass(frozen=True, slots=True)
class CopyJob:
    """Copies a replica to its name below ``target``."""

    target: str = field(repr=False)
    options: Mapping[str, str] = field(repr=False)
    target_options: Mapping[str, str] = field(repr=False)
    columns: str = COLUMNS

    def run(self, replica: FleetReplica) -> dict[str, object]:
        """Copy the objects that the copy lacks. Several attempts may run at once: every put is create-only."""
        stop = threading.Event()
        source = open_retrying(replica.url, self.options, stop)
        target = open_copy(source, place_below(self.target, replica.name), self.target_options, stop)
        try:
            done = copy_replica(source.store, target.store)
        finally:
            stop.set()
            source.close()
            target.close()
        return {
            "target": done.target,
            "copied_objects": done.objects,
            "copied_bytes": done.bytes,
            "deleted_objects": done.removed,
        }


def copy(
    spark: Any,
    replicas: str | Sequence[str],
    target: str,
    *,
    options: Mapping[str, object] | None = None,
    target_options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Any:
    """Copy replicas to their names below ``target``. An older copy gets what it lacks. A copy is a replica as well.

    Args:
        spark: the SparkSession.
        replicas: URLs, folders or patterns (``s3://bucket/logs/*``). A replica's name is its path below the folders
            before the first wildcard.
        target: URL or folder below which the copies are.
        options: options of the replicas' store.
        target_options: options of the target's store, if they differ.
        progress: called with bytes done and total bytes.

    Returns:
        The report, a pyspark.sql.DataFrame with one row for each replica.

    Raises:
        NothingToRestoreError: no replica matches a pattern.
        ConfigError: an option does not fit, or two replicas have one name.
        StoreError: the replicas cannot be listed.
    """
    own = store_options(options, "copy")
    fleet = find_fleet(replicas, own)
    job = CopyJob(absolute(replica_url(target)), own, dict(options_of_target(target, target_options, own)))
    return make_report(spark, run_fleet(spark, fleet, job, progress), job.columns)
