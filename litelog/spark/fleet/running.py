"""Runs a job on each replica of a fleet, in tasks, and makes a report. A failure does not stop the other replicas."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from litelog.errors import ExitCode, LitelogError
from litelog.spark.fleet.replicas import balance
from litelog.spark.jobs.progress import watching
from litelog.spark.query.dealing import deal
from litelog.spark.spark_session import count_slots
from litelog.stores.registry import redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.spark.fleet.replicas import FleetReplica
    from litelog.spark.jobs.progress import Progress

REPORT = (
    "name STRING, replica STRING, stored_bytes BIGINT, objects BIGINT, ok BOOLEAN, error STRING, message STRING, "
    "exit_code INT, seconds DOUBLE"
)
"""The columns of every report: the replica, what it holds, and whether the job is done. ``error`` is the name of the
error's class, and ``exit_code`` the code that the command of the job would end with."""

TASKS_PER_SLOT = 4
"""How many tasks each processor runs in turn. With more of them, processors end together, but the start costs more."""

UNKNOWN_SLOTS = 16
"""The number of processors to divide a fleet for if Spark does not report one."""

TASK_BYTES = 4 << 30
"""The most bytes of replicas for a task, on average: a shorter task loses less work with its executor."""


class FleetJob(Protocol):
    """The work on each replica. It is pickled for the tasks."""

    @property
    def columns(self) -> str:
        """Its own columns of the report, as Spark writes a schema."""

    def run(self, replica: FleetReplica) -> dict[str, object]:
        """Do the work, in a task. Tasks may run it several times, also at the same time.

        Returns the values of the job's own columns. Any error that it raises becomes a row of the report.
        """


def run_fleet(
    spark: Any, replicas: Sequence[FleetReplica], job: FleetJob, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Run ``job`` on each replica. Returns the rows of the report, in the order of ``replicas``."""
    size = sum(replica.bytes for replica in replicas)
    tasks = max((count_slots(spark) or UNKNOWN_SLOTS) * TASKS_PER_SLOT, -(-size // TASK_BYTES))
    parts = balance(replicas, tasks)
    if not parts:
        return []
    with watching(spark, progress, size):
        texts = deal(spark, parts, partial(_run_part, job), "row STRING").collect()
    found = {row["name"]: row for row in (json.loads(text["row"]) for text in texts)}
    return [found[replica.name] for replica in replicas]


def run_by_size(
    spark: Any,
    replicas: Sequence[FleetReplica],
    job: FleetJob,
    large_job: FleetJob,
    large_bytes: int,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Run ``job`` on each replica of up to ``large_bytes``, in tasks; then ``large_job`` on each larger one, one after
    the other on the driver. Returns the rows of the report."""
    rows = run_fleet(spark, [each for each in replicas if each.bytes <= large_bytes], job, progress)
    return rows + [run_one(large_job, each) for each in replicas if each.bytes > large_bytes]


def make_report(spark: Any, rows: Sequence[dict[str, Any]], columns: str) -> Any:
    """The report as a DataFrame, from its rows. No query of it runs the job again."""
    import pyarrow  # noqa: PLC0415 - an extra
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - an extra
    from pyspark.sql.types import StructType  # noqa: PLC0415 - an extra

    schema: Any = StructType.fromDDL(f"{REPORT}, {columns}")
    return spark.createDataFrame(pyarrow.Table.from_pylist(rows, to_arrow_schema(schema)), schema)


def run_one(job: FleetJob, replica: FleetReplica) -> dict[str, Any]:
    """Run ``job`` on a replica. Returns the row of the report, whatever happens."""
    started = time.monotonic()
    names = [field.split()[0] for field in job.columns.split(",")]
    own: dict[str, object] = dict.fromkeys(names)
    error: Exception | None = None
    try:
        own |= job.run(replica)
    except Exception as caught:  # noqa: BLE001 - the report names it, and the task continues
        error = caught
    code = ExitCode.DONE if error is None else ExitCode.FAILURE
    return {
        "name": replica.name,
        "replica": redact(replica.url),
        "stored_bytes": replica.bytes,
        "objects": replica.objects,
        "ok": error is None,
        "error": None if error is None else type(error).__name__,
        "message": None if error is None else str(error),
        "exit_code": int(error.exit_code if isinstance(error, LitelogError) else code),
        "seconds": time.monotonic() - started,
        **own,
    }


def _run_part(job: FleetJob, replicas: Sequence[FleetReplica]) -> Iterator[Any]:
    """The rows of some replicas, each as JSON, in a worker."""
    import pyarrow  # noqa: PLC0415 - in the worker

    for replica in replicas:
        yield pyarrow.RecordBatch.from_pydict({"row": [json.dumps(run_one(job, replica))]})
