"""The job ``export``: writes a log to partitioned Parquet, run by run, each record once even if runs die.

A run first puts its plan next to the table: the sequences that it covers, cut into ranges. Its tasks write files whose
names and rows depend on the plan alone. A manifest, which can be created only once, makes the files count. If a run
dies, the next one repeats it from its plan and overwrites the same files. So no file is left over, even for readers
that list folders. A run that can no longer be repeated is given up (``manifest``), and its files are removed.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, NothingToRestoreError
from litelog.spark.jobs.delta import commit_delta, delta_holds, require_delta
from litelog.spark.jobs.delta_merge import merge, merge_holds
from litelog.spark.jobs.export_task import TIME_PARTITIONS, ExportTarget, RangeExport
from litelog.spark.jobs.iceberg import commit_iceberg, iceberg_holds, require_iceberg, split_name
from litelog.spark.jobs.json_columns import arrow_schema_of
from litelog.spark.jobs.latest_rows import check_merge
from litelog.spark.jobs.manifest import (
    ExportedFile,
    ExportPlan,
    Manifest,
    commit,
    create_plan,
    find_begin,
    find_runs,
    give_up,
    remove_files,
    require_wanted,
)
from litelog.spark.jobs.options import options_of_target, require_records, require_unbounded
from litelog.spark.jobs.progress import watching
from litelog.spark.jobs.ranges import (
    cut,
    find_held,
    first_held,
    read_plan_of,
    require_continued,
    require_log,
    require_start,
)
from litelog.spark.jobs.table_file import ExportSettings
from litelog.spark.options import Range, format_options, parse_options, require_uncommitted
from litelog.spark.scan.schema import log_columns
from litelog.spark.store_options import replica_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from litelog.spark.jobs.progress import Progress
    from litelog.spark.jobs.ranges import GenerationContent
    from litelog.spark.options import ReadOptions
    from litelog.spark.scan.partitions import Partition
    from litelog.stores.object_store import ObjectStore


TABLES = ("parquet", "delta", "iceberg")


def check_table(kind: str, iceberg_table: str | None) -> dict[str, Any]:
    """Return the table's part of an export's shape. Raises ConfigError, also if a package for the kind is missing."""
    if kind not in TABLES:
        raise ConfigError(f"table={kind!r} must be one of {', '.join(TABLES)}")
    if kind == "delta":
        require_delta()
    if kind != "iceberg":
        return {"table": kind}
    split_name(iceberg_table)
    require_iceberg()
    return {"table": kind, "iceberg_table": iceberg_table}


def commit_table(url: str, options: Mapping[str, str], manifest: Manifest, settings: ExportSettings) -> None:
    """Add a run's files to the table's own metadata, if it has any, unless they are in it."""
    shape = manifest.plan.shape
    if shape["table"] == "delta" and settings.merge_on is None:
        commit_delta(url, options, manifest, settings)
    if shape["table"] == "iceberg":
        commit_iceberg(shape["iceberg_table"], url, options, manifest, settings)


def table_holds(store: ObjectStore, url: str, options: Mapping[str, str], plan: ExportPlan) -> bool:
    """Whether the table's own metadata names a run's files, even without a manifest."""
    if plan.shape["table"] == "delta" and next(iter(store.list("_delta_log/")), None) is not None:
        return (merge_holds if plan.shape.get("merge_on") else delta_holds)(url, options, plan.run)
    return plan.shape["table"] == "iceberg" and iceberg_holds(plan.shape["iceberg_table"], url, options, plan.run)


TASK_BYTES = 128 << 20
"""Uncompressed bytes of the log that one task exports."""

EVOLVING = {("partition_by", "iceberg")}
"""The settings that later runs may change, by the kind of table. Other readers of a folder or a Delta table allow no
change."""

KEPT_COLUMNS = ("sequence", "timestamp", "key")
"""The columns of a log that every table has."""

COLUMNS = (*KEPT_COLUMNS, "value")


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of one call of ``export``."""

    runs: int
    """Runs that were done: two if this call also repeated a run that had died."""
    first: int
    next: int
    """The table holds all records below this sequence, from its first one on."""
    rows: int
    """Rows that were written."""
    files: int
    bytes: int


def export(  # noqa: PLR0913 - each is a separate choice
    spark: Any,
    url: str,
    target: str,
    *,
    partition_by: str | None = None,
    schema: str | None = None,
    lenient: bool = False,
    table: str = "parquet",
    iceberg_table: str | None = None,
    merge_on: str | None = None,
    options: Mapping[str, object] | None = None,
    target_options: Mapping[str, object] | None = None,
    task_bytes: int = TASK_BYTES,
    progress: Progress | None = None,
) -> Exported:
    """Add to the table ``target`` all records of the replica ``url`` that it lacks.

    Args:
        spark: the SparkSession.
        url: URL of the replica.
        target: URL or folder of the table.
        partition_by: ``date`` or ``hour``, of the records' timestamps; None: no partitions. Later runs to an Iceberg
            table may change it, for their files.
        schema: columns to parse from values, which are JSON (``"user STRING, amount DOUBLE"``).
        lenient: make the columns null if a value does not fit ``schema``, instead of raising MalformedJsonError.
        table: ``parquet``, ``delta`` (needs deltalake) or ``iceberg`` (needs pyiceberg). The last two also list the
            files in the table's metadata.
        iceberg_table: CATALOG.NAMESPACE.TABLE, in a catalog for which pyiceberg is configured.
        merge_on: of a ``delta`` table: keep only the latest row for each value of this column, ``key`` or one of
            ``schema``. Records without a value are not in the table.
        options: options of the data source. ``startingSequence`` sets where a new table begins; other bounds are
            refused.
        target_options: options of the target's store, if they differ.
        task_bytes: uncompressed bytes of the log that one task exports.
        progress: called with bytes done and total bytes, in each run.

    Returns:
        What was exported.

    Raises:
        ConfigError: an option does not fit, or does not match the existing table.
        DivergedError: the log no longer continues the history in the table.
        TruncatedError, ReplicaGapError: the next records or an object are missing, and ``failOnDataLoss`` is set.
        NothingToRestoreError: the replica does not exist or is empty.
        CorruptionError: an object of the replica or of the export is damaged, or a value does not fit ``schema``.
        StoreError: a request to a store failed.
    """
    reading = _parse_reading(url, options)
    settings = parse_settings(partition_by, schema, merge_on, lenient=lenient)
    shape = _shape_of(settings, schema, check_table(table, iceberg_table))
    stop = threading.Event()
    place = ExportTarget(replica_url(target), dict(options_of_target(target, target_options, reading.store)))
    store = place.open(stop)
    try:
        return _Job(spark, reading, place, store, settings, shape, task_bytes, stop, progress).run()
    finally:
        stop.set()
        store.close()


def _parse_reading(url: str, options: Mapping[str, object] | None) -> ReadOptions:
    """Parse how to read the replica. Raises ConfigError for bounds that an export does not take."""
    reading = parse_options({**format_options(options), "path": url})
    require_uncommitted(reading, "an export")
    reason = "an export covers all of a log, run by run; only startingSequence can make it begin later"
    require_unbounded(reading, reason, but="startingSequence")
    require_records(reading.mode)
    return reading


def parse_settings(
    partition_by: str | None, schema: str | None, merge_on: str | None, *, lenient: bool
) -> ExportSettings:
    """Parse the layout of rows, as ``export`` takes it. Raises ConfigError."""
    taken = [*KEPT_COLUMNS, *([] if partition_by is None else [partition_by])]
    values = None if schema is None else arrow_schema_of(schema, taken, lenient=lenient)
    return ExportSettings(_partition(partition_by), values, lenient, merge_on)


def _shape_of(settings: ExportSettings, schema: str | None, table: dict[str, Any]) -> dict[str, Any]:
    """The settings that all runs into one table share. Raises ConfigError if the table cannot be merged into."""
    partition_by, merge_on = settings.partition_by, settings.merge_on
    shape = {"partition_by": partition_by, "schema": schema, "lenient": settings.lenient, **table}
    if merge_on is None:
        return shape
    check_merge(merge_on, table["table"], partition_by, settings.arrow_schema().names)
    return {**shape, "merge_on": merge_on}


class _Job:
    """One call of ``export``."""

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        spark: Any,
        reading: ReadOptions,
        target: ExportTarget,
        store: ObjectStore,
        settings: ExportSettings,
        shape: dict[str, Any],
        task_bytes: int,
        stop: threading.Event,
        progress: Progress | None,
    ) -> None:
        self._spark = spark
        self._start = reading.range.first
        self._reading = replace(reading, range=Range())
        self._target = target
        self._store = store
        self._settings = settings
        self._shape = shape
        self._task_bytes = task_bytes
        self._stop = stop
        self._progress = progress

    def run(self) -> Exported:
        runs = find_runs(self._store)
        if runs.newest is not None:
            self._require_shape(runs.newest.plan)
        held = find_held(self._reading, self._stop)
        if runs.newest is not None:
            self._require_same_history(runs.newest.plan, held)
            self._require_begin()
        if runs.given_up:
            remove_files(self._store, runs.given_up)
        done: list[Manifest] = []
        following = None if runs.newest is None else runs.newest.next
        for plan in runs.pending:
            if not self._can_do(plan, held, is_first=following is None):
                for one in (one for one in runs.pending if one.run >= plan.run):
                    self._give_up(one)
                break
            done.append(self._do(plan, held))
            following = done[-1].next
        first = self._begin(held) if following is None else following
        bounds = cut(held, require_start(self._reading, held, first), self._task_bytes)
        if len(bounds) > 1:
            claim = held.claim
            made = ExportPlan(runs.unused, claim.log, claim.generation, bounds, self._shape)
            plan = create_plan(self._store, made)
            self._require_shape(plan)
            done.append(self._do(plan, held))
        files = [file for manifest in done for file in manifest.files]
        return Exported(
            len(done),
            done[0].plan.bounds[0] if done else first,
            done[-1].next if done else first,
            sum(file.rows for file in files),
            len(files),
            sum(file.bytes for file in files),
        )

    def _begin(self, held: GenerationContent) -> int:
        """The sequence at which a new table begins."""
        return (first_held(held) or 0) if self._start is None else self._start

    def _can_do(self, plan: ExportPlan, held: GenerationContent, *, is_first: bool) -> bool:
        """Whether a run that died can be repeated as planned. Returns False if another run must replace it.

        Another run replaces it if nothing was exported yet and the request has changed, or if data is lost and
        ``failOnDataLoss`` is off. In all other cases raises ConfigError, DivergedError or TruncatedError.
        """
        if is_first and not self._is_asked_for(plan, held):
            return False
        self._require_shape(plan)
        self._require_same_history(plan, held)
        if first_held(held) is None:
            raise NothingToRestoreError(
                f"{held.url}: has no records, but run {plan.run} is planned: choose a new target"
            )
        return require_start(self._reading, held, plan.bounds[0]) == plan.bounds[0]

    def _is_asked_for(self, plan: ExportPlan, held: GenerationContent) -> bool:
        first, begin = plan.bounds[0], first_held(held)
        begins = first == self._start if self._start is not None else begin is None or first <= begin
        shape = all(self._shape.get(name) == plan.shape.get(name) for name in {*plan.shape, *self._shape})
        return shape and begins and plan.log == held.claim.log

    def _give_up(self, plan: ExportPlan) -> None:
        if table_holds(self._store, self._target.url, self._target.options, plan):
            raise ConfigError(
                f"run {plan.run} can no longer be done as planned, and is in the {plan.shape['table']} table already: "
                "choose a new target"
            )
        give_up(self._store, plan)

    def _do(self, plan: ExportPlan, held: GenerationContent) -> Manifest:
        """Do a run, or repeat a dead one."""
        self._require_same_history(plan, held)
        partitions = read_plan_of(held, plan.bounds)
        settings = replace(self._settings, partition_by=plan.shape["partition_by"])
        manifest = Manifest(plan, tuple(self._write(plan, partitions, held, settings)))
        require_wanted(self._store, plan.run)
        commit_table(self._target.url, self._target.options, manifest, settings)
        if settings.merge_on is not None:
            merge(self._store, self._target.url, self._target.options, plan, manifest.files, settings)
        is_kept = settings.merge_on is None
        if not commit(self._store, manifest if is_kept else replace(manifest, files=())):
            require_wanted(self._store, plan.run)
        return manifest

    def _write(
        self,
        plan: ExportPlan,
        partitions: list[tuple[int, Partition]],
        held: GenerationContent,
        settings: ExportSettings,
    ) -> Iterator[ExportedFile]:
        """Run the tasks, and yield the files that they wrote, in the order of the ranges."""
        columns = log_columns(
            self._reading, has_timestamps=self._has_timestamps(held), has_generations=True, names=list(COLUMNS)
        )
        if settings.partition_by is not None and not self._has_timestamps(held):
            raise ConfigError(f"records of the format {held.claim.format} have no timestamp to partition by")
        target, run = self._target, plan.run

        def work(batches: Iterable[Any]) -> Iterator[Any]:
            import pyarrow  # noqa: PLC0415 - in the worker

            from litelog.spark.scan.decoding import read_partition  # noqa: PLC0415 - in the worker

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

    def _has_timestamps(self, held: GenerationContent) -> bool:
        from litelog.spark.scan.task import open_log_format  # noqa: PLC0415

        return open_log_format(held.claim.format, self._reading.pattern).has_timestamps

    def _require_same_history(self, plan: ExportPlan, held: GenerationContent) -> None:
        """Raise ConfigError for another log, and DivergedError for a log that forked after the plan was made."""
        require_log(held, plan.log)
        require_continued(self._reading, held, plan.generation, self._stop)

    def _require_begin(self) -> None:
        """Raise ConfigError if the requested start is not the table's."""
        if self._start is not None and self._start != (begin := find_begin(self._store)):
            raise ConfigError(
                f"startingSequence={self._start} works for a first export only, and this table begins with {begin}: "
                "leave it out, or choose a new target"
            )

    def _require_shape(self, plan: ExportPlan) -> None:
        for name in dict.fromkeys([*plan.shape, *self._shape]):
            value = plan.shape.get(name)
            if self._shape.get(name) != value and (name, plan.shape["table"]) not in EVOLVING:
                raise ConfigError(
                    f"the table was begun with {name}={value!r}, not with {self._shape.get(name)!r}: "
                    "use the value that it was begun with, or choose a new target"
                )


def _fields(file: ExportedFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in ExportedFile.__slots__}


def _partition(name: str | None) -> str | None:
    if name is not None and name not in TIME_PARTITIONS:
        raise ConfigError(f"partition_by={name!r} must be one of {', '.join(TIME_PARTITIONS)}")
    return name
