"""Restores many replicas to folders that the executors reach, each in a task."""

from __future__ import annotations

import fcntl
import filecmp
import os
import shutil
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import LockedError, OutputExistsError
from litelog.restore.plan import Target
from litelog.restore.several import LogRestore, restore_one
from litelog.spark.fleet.replicas import find_fleet
from litelog.spark.fleet.running import make_report, run_fleet
from litelog.spark.jobs.options import store_options
from litelog.spark.scan.task import open_log_format
from litelog.stores.opening import opened_replica
from litelog.verify.execution import verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from litelog.restore.execution import RestoreResult
    from litelog.spark.fleet.replicas import FleetReplica
    from litelog.spark.jobs.progress import Progress

LOCK_SECONDS = 600.0
"""How long a task waits for another attempt that restores the same log."""

PAUSE_SECONDS = 0.5


COLUMNS = "output STRING, position STRING, log_bytes BIGINT, log_segments BIGINT, records BIGINT, there BOOLEAN"


@dataclass(frozen=True, slots=True)
class RestoreJob:
    """Restores a replica to its name below ``output``."""

    output: str
    options: Mapping[str, str] = field(repr=False)
    target: Target
    pattern: str | None
    delta: bool
    columns: str = COLUMNS

    def run(self, replica: FleetReplica) -> dict[str, object]:
        """Restore the log. A folder that an earlier attempt has restored counts as done, if it is still the same."""
        output = os.path.join(self.output, *replica.name.split("/"))
        try:
            done = self._restore(replica, output, delta=self.delta)
        except OutputExistsError:
            is_there = self._is_there if self.target == Target() else self._is_restored_so
            if not is_there(replica, output):
                raise
            return {"output": output, "there": True}
        return {
            "output": done.output,
            "position": str(done.end),
            "log_bytes": done.bytes,
            "log_segments": done.files,
            "records": done.records,
            "there": False,
        }

    def _restore(self, replica: FleetReplica, output: str, *, delta: bool) -> RestoreResult:
        """Restore the log, after any other attempt has ended: Spark may run two at a time."""
        log = LogRestore(replica.name, ((replica.url, self.options),), output, self.pattern)
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                return restore_one(log, self.target, delta=delta)
            except LockedError:
                if time.monotonic() >= until:
                    raise
            time.sleep(PAUSE_SECONDS)

    def _is_there(self, replica: FleetReplica, output: str) -> bool:
        """Whether the folder holds the whole log of the replica, byte for byte."""
        with opened_replica(replica.url, self.options) as client:
            report = verify(client.store, formats=partial(open_log_format, pattern=self.pattern), against=output)
        held = report.against
        rest = held is None or held.behind or held.gone or held.missing or held.left_out
        return report.is_sound and not report.anomalies and not rest

    def _is_restored_so(self, replica: FleetReplica, output: str) -> bool:
        """Whether the folder holds what this bounded restore gives, byte for byte. Restores the log again, next to it.

        An attempt that dies leaves files there, which the next attempt removes.
        """
        parent, name = os.path.split(output)
        with _locked_folder(os.path.join(parent, f".{name}.compared")) as folder:
            again = os.path.join(folder, "log")
            self._restore(replica, again, delta=False)
            return _hold_the_same(output, again)


@contextmanager
def _locked_folder(path: str) -> Iterator[str]:
    """Create a folder for one attempt at a time, without what a dead attempt left there. Remove it at the end."""
    with ExitStack() as stack:
        while True:
            os.makedirs(path, exist_ok=True)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    break
        stack.callback(shutil.rmtree, path, ignore_errors=True)
        for name in os.listdir(path):
            shutil.rmtree(os.path.join(path, name))
        yield path


def _hold_the_same(one: str, other: str) -> bool:
    """Whether two folders hold the same files, byte for byte."""
    names = sorted(os.listdir(one))
    if names != sorted(os.listdir(other)):
        return False
    _, unequal, unreadable = filecmp.cmpfiles(one, other, names, shallow=False)
    return not unequal and not unreadable


def restore(  # noqa: PLR0913 - each is an independent choice
    spark: Any,
    replicas: str | Sequence[str],
    output: str,
    *,
    sequence: int | None = None,
    timestamp: int | None = None,
    pattern: str | None = None,
    delta: bool = False,
    options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Any:
    """Restore logs to their names below the folder ``output``, on the machines of the executors.

    On a cluster, all machines share the folder ``output``, or each log is on the machine that ran its task.

    Args:
        spark: the SparkSession.
        replicas: URLs, folders or patterns (``s3://bucket/logs/*``). A replica's name is its path below the folders
            before the first wildcard.
        output: the folder below which the logs are restored.
        sequence: restore each log up to this record.
        timestamp: restore each log up to this time, in microseconds since 1970.
        pattern: names of the log segments, if the logs' format requires a pattern.
        delta: replace what is in the outputs, and read only the data that they lack. Without it, an output is an error
            unless it holds exactly what this restore gives.
        options: options of the replicas' store.
        progress: called with bytes done and total bytes.

    Returns:
        The report, a pyspark.sql.DataFrame with one row for each replica. ``there`` is true if the output held the log
        already, up to the same bound.

    Raises:
        NothingToRestoreError: no replica matches a pattern.
        ConfigError: an option does not fit, or two replicas have one name.
        StoreError: the replicas cannot be listed.
    """
    own = store_options(options, "restore")
    fleet = find_fleet(replicas, own)
    target = Target(sequence=sequence, timestamp=timestamp)
    job = RestoreJob(os.path.abspath(output), own, target, pattern, delta)
    return make_report(spark, run_fleet(spark, fleet, job, progress), job.columns)
