"""The job ``export``: a log to partitioned Parquet, a run at a time, each record once however often a run dies.

A run puts its plan beside the table first: the sequences that it covers, cut into ranges. Its tasks write files whose
names and rows follow from the plan alone. A manifest, created only, makes them count. A run that died is done again by
the next one, from its plan, and writes the same files over: so nothing is left over, also for who lists folders. One
that can no longer be done so is given up (``export_runs``), and its files are removed.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError, NothingToRestoreError
from litelog.spark.jobs.export_runs import find_begin, find_runs, give_up, remove_files, require_wanted
from litelog.spark.jobs.export_task import TIME_PARTITIONS, ExportSettings, RangeExport, Target
from litelog.spark.jobs.json_columns import arrow_schema_of
from litelog.spark.jobs.manifest import ExportedFile, ExportPlan, Manifest, commit, create_plan
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
from litelog.spark.jobs.tables import check_table, commit_table, table_holds
from litelog.spark.options import Range, parse_options
from litelog.spark.scan.schema import log_columns
from litelog.spark.spelling import spell_options
from litelog.spark.store_options import replica_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from litelog.spark.jobs.progress import Progress
    from litelog.spark.jobs.ranges import Held
    from litelog.spark.options import ReadOptions
    from litelog.spark.scan.partitions import Partition
    from litelog.stores.object_store import ObjectStore

TASK_BYTES = 128 << 20
"""What a task exports of the log, uncompressed."""

KEPT_COLUMNS = ("sequence", "timestamp", "key")
"""Those of a log that every table has."""

COLUMNS = (*KEPT_COLUMNS, "value")


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
    ``options``: as of the data source, but for its bounds: ``startingSequence`` is what a new table begins with, and
    all others are refused. ``target_options``: of the target's store, where they differ. ``progress`` is told of bytes,
    run by run.

    ConfigError; DivergedError where the log no longer continues what the table holds; TruncatedError where the replica
    lacks what follows, unless ``failOnDataLoss=false`` leaves it out; what reading and writing raise.
    """
    given = spell_options(options)
    reading = parse_options({**given, "path": url})
    taken = [*KEPT_COLUMNS, *([] if partition_by is None else [partition_by])]
    values = None if schema is None else arrow_schema_of(schema, taken, lenient=lenient)
    settings = ExportSettings(_partition(partition_by), values, lenient)
    reason = "an export covers all of a log, run by run: it can only begin later, with startingSequence"
    require_unbounded(reading.range, reason, but="startingSequence")
    require_records(reading.mode)
    shape = {"partition_by": partition_by, "schema": schema, "lenient": lenient, **check_table(table, iceberg_table)}
    stop = threading.Event()
    place = Target(replica_url(target), dict(options_of_target(target, target_options, reading.store)))
    store = place.open(stop)
    try:
        job = _Job(spark, reading, place, store, settings, shape, task_bytes, stop, progress)
        return job.run()
    finally:
        stop.set()
        store.close()


class _Job:
    """One call of ``export``."""

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        spark: Any,
        reading: ReadOptions,
        target: Target,
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

    def _begin(self, held: Held) -> int:
        """The sequence that a new table begins with."""
        return (first_held(held) or 0) if self._start is None else self._start

    def _can_do(self, plan: ExportPlan, held: Held, *, is_first: bool) -> bool:
        """Whether a run that died can be done as it was planned; False where another one is to take its place.

        That is so where nothing was exported yet and something else is asked for now, and where data may be lost and
        is. All else raises: ConfigError, DivergedError, TruncatedError.
        """
        if is_first and not self._is_asked_for(plan, held):
            return False
        self._require_shape(plan)
        self._require_same_history(plan, held)
        if first_held(held) is None:
            raise NothingToRestoreError(
                f"{held.url}: holds no record, and run {plan.run} is planned: choose a new target"
            )
        return require_start(self._reading, held, plan.bounds[0]) == plan.bounds[0]

    def _is_asked_for(self, plan: ExportPlan, held: Held) -> bool:
        first, begin = plan.bounds[0], first_held(held)
        begins = first == self._start if self._start is not None else begin is None or first <= begin
        shape = all(self._shape.get(name) == value for name, value in plan.shape.items())
        return shape and begins and plan.log == held.claim.log

    def _give_up(self, plan: ExportPlan) -> None:
        if table_holds(self._store, self._target.url, self._target.options, plan):
            raise ConfigError(
                f"run {plan.run} can no longer be done as planned, and is in the {plan.shape['table']} table already: "
                "choose a new target"
            )
        give_up(self._store, plan)

    def _do(self, plan: ExportPlan, held: Held) -> Manifest:
        """Do a run, whether it is new or died before."""
        self._require_same_history(plan, held)
        partitions = read_plan_of(held, plan.bounds)
        manifest = Manifest(plan, tuple(self._write(plan, partitions, held)))
        require_wanted(self._store, plan.run)
        commit_table(self._target.url, self._target.options, manifest, self._settings)
        if not commit(self._store, manifest):
            require_wanted(self._store, plan.run)
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

    def _has_timestamps(self, held: Held) -> bool:
        from litelog.spark.scan.task import open_log_format  # noqa: PLC0415

        return open_log_format(held.claim.format, self._reading.pattern).has_timestamps

    def _require_same_history(self, plan: ExportPlan, held: Held) -> None:
        """ConfigError for another log, DivergedError for one that forked behind what was planned."""
        require_log(held, plan.log)
        require_continued(self._reading, held, plan.generation, self._stop)

    def _require_begin(self) -> None:
        """ConfigError for a start that is not the one that the table has."""
        if self._start is not None and self._start != (begin := find_begin(self._store)):
            raise ConfigError(
                f"startingSequence={self._start} is of a first export, and this table begins with {begin}: leave it "
                "out, or choose a new target"
            )

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
