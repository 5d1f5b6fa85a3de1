"""Verifies many replicas, each in one task. All tasks of a cluster share the sealed segments of a large replica."""

from __future__ import annotations

import json
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, ExitCode, NoReplicaError, StoreError
from litelog.spark.fleet.replicas import find_fleet
from litelog.spark.fleet.running import make_report, run_by_size
from litelog.spark.jobs.options import store_options
from litelog.spark.jobs.verify_job import verify as verify_on_cluster
from litelog.spark.scan.task import open_log_format
from litelog.stores.opening import opened_replica
from litelog.verify.execution import verify as verify_here
from litelog.verify.findings import Scope

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from litelog.spark.fleet.replicas import FleetReplica
    from litelog.spark.jobs.progress import Progress
    from litelog.verify.report import VerifyReport

COLUMNS = "anomaly_count BIGINT, log_bytes BIGINT, report STRING"

LARGE_BYTES = 4 << 30
"""A replica of more bytes is verified by all tasks together, after the others."""


@dataclass(frozen=True, slots=True)
class VerifyJob:
    """Verifies a replica."""

    options: Mapping[str, str] = field(repr=False)
    scope: Scope
    pattern: str | None
    columns: str = COLUMNS

    def run(self, replica: FleetReplica) -> dict[str, object]:
        """Verify it in this task."""
        with opened_replica(replica.url, self.options) as client:
            formats = partial(open_log_format, pattern=self.pattern)
            return _columns(verify_here(client.store, formats=formats, scope=self.scope))


@dataclass(frozen=True, slots=True)
class LargeVerifyJob:
    """Verifies a replica on all tasks. It runs on the driver."""

    spark: Any
    job: VerifyJob
    columns: str = COLUMNS

    def run(self, replica: FleetReplica) -> dict[str, object]:
        """Verify it."""
        scope, options = self.job.scope, {f"store.{name}": value for name, value in self.job.options.items()}
        report = verify_on_cluster(
            self.spark, replica.url, share=scope.share, seed=scope.seed, pattern=self.job.pattern, options=options
        )
        return _columns(report)


def verify(
    spark: Any,
    replicas: str | Sequence[str],
    *,
    share: float = 1.0,
    seed: int = 0,
    pattern: str | None = None,
    options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
    large_bytes: int = LARGE_BYTES,
) -> Any:
    """Check all that replicas hold, as ``litelog verify`` does, without changing anything.

    Args:
        spark: the SparkSession.
        replicas: URLs, folders or patterns (``s3://bucket/logs/*``).
        share: share of the contents to check, from 0 to 1; structure is always checked.
        seed: selects that share.
        pattern: names of the log segments, if the logs' format requires a pattern.
        options: options of the replicas' store.
        progress: called with bytes done and total bytes.
        large_bytes: replicas with more bytes are verified one after the other, each by all tasks.

    Returns:
        The report, a pyspark.sql.DataFrame with one row for each replica. ``ok`` is false if a reader may meet an
        anomaly, or if an object could not be read. ``report`` is the JSON of ``litelog verify --json``.

    Raises:
        NothingToRestoreError: no replica matches a pattern.
        ConfigError: an option does not fit, or two replicas have one name.
        StoreError: the replicas cannot be listed.
    """
    own = store_options(options, "verify")
    fleet = find_fleet(replicas, own)
    job = VerifyJob(own, Scope(share, seed), pattern)
    rows = run_by_size(spark, fleet, job, LargeVerifyJob(spark, job), large_bytes, progress)
    return make_report(spark, rows, job.columns)


def _columns(report: VerifyReport) -> dict[str, object]:
    if report.is_empty:
        raise NoReplicaError(report.replica)
    found: dict[str, object] = {}
    if report.harmful:
        first = next(anomaly for anomaly in report.anomalies if anomaly.harmful)
        error, code = CorruptionError.__name__, ExitCode.CORRUPTION
        found = {"ok": False, "error": error, "message": str(first), "exit_code": int(code)}
    elif report.failed:
        error, code = StoreError.__name__, ExitCode.FAILURE
        found = {"ok": False, "error": error, "message": report.failures[0], "exit_code": int(code)}
    return found | {
        "anomaly_count": report.harmful,
        "log_bytes": report.content_bytes,
        "report": json.dumps(report.as_json()),
    }
