"""The job ``export``: a log to partitioned Parquet, a run at a time, each record once however often a run dies.

A run puts its plan beside the table first: the sequences that it covers, cut into ranges. Its tasks write files whose
names and rows follow from the plan alone. A manifest, created only, makes them count. A run that died is done again by
the next one, from its plan, and writes the same files over: so nothing is left over, also for who lists folders.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError
from litelog.registry import open_store
from litelog.retrying_store import RetryingStore
from litelog.spark.jobs.export_task import TIME_PARTITIONS, ExportSettings, RangeExport
from litelog.spark.jobs.iceberg import commit_iceberg, split_name
from litelog.spark.jobs.json_columns import arrow_schema_of
from litelog.spark.jobs.manifest import (
    ExportedFile,
    ExportPlan,
    Manifest,
    commit,
    create_plan,
    list_runs,
    read_manifest,
    read_plan,
)
from litelog.spark.jobs.progress import watching
from litelog.spark.jobs.ranges import cut, find_held, read_plan_of, require_continued
from litelog.spark.options import parse_options
from litelog.spark.schema import log_columns
from litelog.spark.spelling import spell_options
from litelog.spark.store_options import read_store_options, replica_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from litelog.object_store import ObjectStore
    from litelog.spark.jobs.progress import Progress
    from litelog.spark.jobs.ranges import Held
    from litelog.spark.options import ReadOptions
    from litelog.spark.partitions import Partition

TASK_BYTES = 128 << 20
"""What a task exports of the log, uncompressed."""

TABLES = ("parquet", "delta", "iceberg")

COLUMNS = ("sequence", "timestamp", "key", "value")


@dataclass(frozen=True, slots=True)
class Exported:
    """What one call of ``export`` came to."""

    runs: int
    """That were done: two, where one that had died was done again."""
    first: int
    next: int
    """The table holds all records below this sequence, from where it began."""
    rows: int
    """That were written."""
    files: int
    bytes: int


def export(  # noqa: PLR0913 - each is a choice of its own
    spark: Any,
    url: str,
    target: str,
    *,
    partition_by: str | None = None,
    schema: str | None = None,
    lenient: bool = False,
    table: str = "parquet",
    iceberg_table: str | None = None,
    options: Mapping[str, object] | None = None,
    target_options: Mapping[str, object] | None = None,
    task_bytes: int = TASK_BYTES,
    progress: Progress | None = None,
) -> Exported:
    """Add to the table ``target`` all records of the replica ``url`` that it lacks.

    ``partition_by``: ``date`` or ``hour``, of the records' timestamps. ``schema``: values are JSON, and become its
    columns (``"user STRING, amount DOUBLE"``); what is none is an error, or nulls with ``lenient``. ``table``:
    ``parquet``; or ``delta`` (needs deltalake) or ``iceberg`` (needs pyiceberg), whose metadata then tells the table's
    files as well: ``iceberg_table`` is CATALOG.NAMESPACE.TABLE of a catalog that pyiceberg is configured with.
    ``options``: as of the data source; ``target_options``: of the target's store, where they differ. ``progress`` is
    told of bytes, run by run.

    ConfigError; DivergedError where the log no longer continues what the table holds; what reading and writing raise.
    """
    given = spell_options(options)
    reading = parse_options({**given, "path": url})
    settings = ExportSettings(_partition(partition_by), None if schema is None else arrow_schema_of(schema), lenient)
    shape = {"partition_by": partition_by, "schema": schema, "lenient": lenient, "table": _table(table)}
    if table == "iceberg":
        split_name(iceberg_table)
        shape["iceberg_table"] = iceberg_table
    store_given, _ = read_store_options(spell_options(target_options)) if target_options else (reading.store, {})
    stop = threading.Event()
    place = _Target(replica_url(target), dict(store_given))
    store = place.open(stop)
    try:
        job = _Job(spark, reading, place, store, settings, shape, task_bytes, stop, progress)
        return job.run()
    finally:
        stop.set()
        store.close()


@dataclass(frozen=True, slots=True)
class _Target:
    """Where the table is. Its repr shows nothing of it."""

    url: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return "_Target()"

    def open(self, stop: threading.Event) -> ObjectStore:
        return RetryingStore(open_store(self.url, self.options), stop)


class _Job:
    """One call of ``export``."""

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        spark: Any,
        reading: ReadOptions,
        target: _Target,
        store: ObjectStore,
        settings: ExportSettings,
        shape: dict[str, Any],
        task_bytes: int,
        stop: threading.Event,
        progress: Progress | None,
    ) -> None:
        self._spark = spark
        self._reading = reading
        self._target = target
        self._store = store
        self._settings = settings
        self._shape = shape
        self._task_bytes = task_bytes
        self._stop = stop
        self._progress = progress

    def run(self) -> Exported:
        planned, committed = list_runs(self._store)
        newest = read_manifest(self._store, committed[-1]) if committed else None
        if newest is not None:
            self._require_shape(newest.plan)
        held = find_held(self._reading, self._stop)
        if newest is not None:
            self._require_same_history(newest.plan, held)
        first = next_first = newest.next if newest is not None else (self._reading.range.first or self._begin(held))
        done: list[Manifest] = []
        pending = [run for run in planned if run > (committed[-1] if committed else 0)]
        for run in pending:
            plan = read_plan(self._store, run)
            self._require_shape(plan)
            done.append(self._do(plan, held))
            next_first = done[-1].next
        number = max([0, *planned, *committed]) + 1
        bounds = cut(held, next_first, self._task_bytes)
        if len(bounds) > 1:
            claim = held.claim
            plan = create_plan(self._store, ExportPlan(number, claim.log, claim.generation, bounds, self._shape))
            done.append(self._do(plan, held))
        files = [file for manifest in done for file in manifest.files]
        behind = done[-1].next if done else first
        return Exported(
            len(done), first, behind, sum(file.rows for file in files), len(files), sum(file.bytes for file in files)
        )

    def _begin(self, held: Held) -> int:
        """The first sequence that the replica holds."""
        for item in held.items:
            entry = getattr(getattr(item, "piece", None), "entry", None)
            if entry is not None and entry.first is not None:
                return int(entry.first)
            info = getattr(item, "info", None)
            header = None if info is None else held.headers([info.position])[0]
            if header is not None and header.first is not None:
                return int(header.first)
        return 0

    def _do(self, plan: ExportPlan, held: Held) -> Manifest:
        """Do a run, whether it is new or died before."""
        self._require_same_history(plan, held)
        partitions = read_plan_of(held, plan.bounds)
        files = tuple(self._write(plan, partitions, held))
        manifest = Manifest(plan, files)
        if self._shape["table"] == "delta":
            from litelog.spark.jobs.delta import commit_delta  # noqa: PLC0415 - an extra

            commit_delta(self._target.url, self._target.options, manifest, self._settings)
        if self._shape["table"] == "iceberg":
            name = self._shape["iceberg_table"]
            commit_iceberg(name, self._target.url, self._target.options, manifest, self._settings)
        commit(self._store, manifest)
        return manifest

    def _write(self, plan: ExportPlan, partitions: list[tuple[int, Partition]], held: Held) -> Iterator[ExportedFile]:
        """The tasks, and the files that they wrote, in the order of the ranges."""
        columns = log_columns(
            self._reading, has_timestamps=self._has_timestamps(held), has_generations=True, names=list(COLUMNS)
        )
        if self._settings.partition_by is not None and not self._has_timestamps(held):
            raise ConfigError(f"records of the format {held.claim.format} have no timestamp to partition by")
        settings, target, run = self._settings, self._target, plan.run

        def work(batches: Iterable[Any]) -> Iterator[Any]:
            import pyarrow  # noqa: PLC0415 - in the worker

            from litelog.spark.decoding import read_partition  # noqa: PLC0415 - in the worker

            stop = threading.Event()
            store = target.open(stop)
            try:
                for batch in batches:
                    for at in batch.column(0).to_pylist():
                        number, partition = partitions[at]
                        writing = RangeExport(store, settings, f"{run:08x}-{number:06d}")
                        files = writing.write(read_partition(partition, columns))
                        text = json.dumps([_fields(file) for file in files])
                        yield pyarrow.RecordBatch.from_pydict({"number": [number], "files": [text]})
            finally:
                stop.set()
                store.close()

        count = len(partitions)
        rows = self._spark.range(0, count, 1, max(count, 1)).mapInArrow(work, "number bigint, files string")
        size = sum(partition.raw_bytes for _, partition in partitions)
        with watching(self._spark, self._progress, size):
            found = {row["number"]: row["files"] for row in rows.collect()}
        for number in sorted(found):
            yield from (ExportedFile(**fields) for fields in json.loads(found[number]))

    def _has_timestamps(self, held: Held) -> bool:
        from litelog.spark.formats import open_log_format  # noqa: PLC0415

        return open_log_format(held.claim.format, self._reading.pattern).has_timestamps

    def _require_same_history(self, plan: ExportPlan, held: Held) -> None:
        """ConfigError for another log, DivergedError for one that forked behind what was planned."""
        if plan.log != held.claim.log:
            raise ConfigError(f"the table is of log {plan.log}, and {held.url} holds log {held.claim.log}")
        require_continued(self._reading, held, plan.generation, self._stop)

    def _require_shape(self, plan: ExportPlan) -> None:
        for name, value in plan.shape.items():
            if self._shape.get(name) != value:
                raise ConfigError(
                    f"the table was begun with {name}={value!r}, and is asked for with {self._shape.get(name)!r}: "
                    "choose a new target, or what it was begun with"
                )


def _fields(file: ExportedFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in ExportedFile.__slots__}


def _partition(name: str | None) -> str | None:
    if name is not None and name not in TIME_PARTITIONS:
        raise ConfigError(f"partition_by={name!r} must be one of {', '.join(TIME_PARTITIONS)}")
    return name


def _table(kind: str) -> str:
    if kind not in TABLES:
        raise ConfigError(f"table={kind!r} must be one of {', '.join(TABLES)}")
    return kind
