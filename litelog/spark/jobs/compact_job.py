"""The job ``compact``: replaces small files of an exported table by larger ones, while others read and export.

A compaction first puts its plan next to the table, as an export does. If it dies, the next one repeats it as planned.
Delta and Iceberg tables change by one commit of their own, and keep the old files for older versions. In a plain
Parquet table the tasks swap the files of each group (``compact_task``).
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass
from litelog.errors import ConfigError, NothingToRestoreError
from litelog.spark.jobs.compact_task import MARK, GroupCompaction
from litelog.spark.jobs.compactions import (
    GroupReplacement,
    create_compaction,
    find_compactions,
    plan_groups,
    replace_group,
)
from litelog.spark.jobs.delta import compact_delta, plan_delta
from litelog.spark.jobs.export_job import check_table, parse_settings
from litelog.spark.jobs.export_task import ExportTarget
from litelog.spark.jobs.iceberg import current_files, replace_files
from litelog.spark.jobs.local_tasks import LocalTasks
from litelog.spark.jobs.manifest import ExportedFile, file_of, list_runs, read_manifest
from litelog.spark.jobs.options import store_options
from litelog.spark.store_options import replica_url
from litelog.stores.registry import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from litelog.spark.jobs.compactions import CompactionPlan, Compactions
    from litelog.spark.jobs.progress import Progress
    from litelog.stores.object_store import ObjectStore

FILE_BYTES = 128 << 20
"""Bytes of a file that replaces others, at most."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of one call of ``compact``; of a dry run, what one would do."""

    table: str
    """``parquet``, ``delta`` or ``iceberg``."""
    groups: int
    """Files that are new."""
    files: int
    """Files that they replace."""
    bytes: int
    """Bytes of the replaced files."""


def compact(
    target: str,
    *,
    file_bytes: int = FILE_BYTES,
    dry_run: bool = False,
    target_options: Mapping[str, object] | None = None,
    spark: Any = None,
    progress: Progress | None = None,
) -> Compacted:
    """Replace small files of the exported table ``target`` by larger ones with the same rows.

    In a plain Parquet table the files of the newest run stay until the next one, as a task of its export may still
    write them.

    Args:
        target: URL or folder of the table.
        file_bytes: bytes of a new file, at most. Files of more than three quarters of it stay as they are.
        dry_run: only plan.
        target_options: options of the target's store.
        spark: the SparkSession whose tasks write the files; None: this process does, as always for Delta.
        progress: called with bytes done and total bytes, of files that this process replaces.

    Returns:
        What was compacted, including what an earlier call left unfinished.

    Raises:
        NothingToRestoreError: the target holds no export.
        ConfigError: an option does not fit, or a package for the table is missing.
        CorruptObjectError: a document or a file of the table is damaged.
        StoreError: a request to the store failed.
    """
    if file_bytes < 1:
        raise ConfigError(f"file_bytes={file_bytes} must be positive")
    stop = threading.Event()
    place = ExportTarget(replica_url(target), store_options(target_options, "the target"))
    store = place.open(stop)
    try:
        shown = progress if spark is None else None  # tasks cannot call it
        return _Compaction(spark or LocalTasks(), place, store, file_bytes, shown).run(dry_run=dry_run)
    finally:
        stop.set()
        store.close()


class _Compaction:
    """One call of ``compact``."""

    def __init__(
        self, spark: Any, target: ExportTarget, store: ObjectStore, file_bytes: int, progress: Progress | None
    ) -> None:
        self._spark = spark
        self._target = target
        self._store = store
        self._file_bytes = file_bytes
        self._progress = progress
        self._compactions = find_compactions(store)  # before the manifests: see Compactions.apply
        committed = [read_manifest(store, run) for run in list_runs(store)[1]]
        self._manifests = [manifest for manifest in committed if not manifest.is_given_up]
        if not self._manifests:
            raise NothingToRestoreError(f"{redact(target.url)}: has no export")
        shape = self._manifests[-1].plan.shape
        self._table = str(shape["table"])
        self._name = shape.get("iceberg_table")
        check_table(self._table, self._name)
        # rows are not split into partitions: they stay in the folder of their partition
        self._settings = parse_settings(None, shape["schema"], shape.get("merge_on"), lenient=shape["lenient"])

    def run(self, *, dry_run: bool) -> Compacted:
        if self._table == "delta":
            compact_or_plan = plan_delta if dry_run else compact_delta
            return Compacted("delta", *compact_or_plan(self._target.url, self._target.options, self._file_bytes))
        before = self._compactions
        left = [before.newest.groups[at] for at in before.pending] if before.newest is not None else []
        if not dry_run:
            if before.newest is not None and left:
                self._do(before.newest)
            self._sweep(before := find_compactions(self._store))
        plan = self._plan(before)
        if not dry_run and plan.groups:
            plan = create_compaction(self._store, plan)
            self._do(plan)
        groups = (*left, *plan.groups)
        count = sum(len(group.files) for group in groups)
        return Compacted(self._table, len(groups), count, sum(group.bytes for group in groups))

    def _plan(self, compactions: Compactions) -> CompactionPlan:
        """The next plan. That of a dry run leaves out files of the groups that are not done yet."""
        files: Iterable[ExportedFile] = compactions.apply(self._manifests)
        if self._table == "iceberg":
            held = current_files(self._name, self._target.url, self._target.options)
            files = [file for file in files if file.path in held]
        else:
            fresh = {file.path for file in self._manifests[-1].files}
            files = [file for file in files if file.path not in fresh]
        if compactions.newest is not None:
            waiting = {file.path for at in compactions.pending for file in compactions.newest.groups[at].files}
            files = [file for file in files if file.path not in waiting]
        return plan_groups(files, self._file_bytes, self._manifests[-1].plan.run, compactions.unused)

    def _do(self, plan: CompactionPlan) -> None:
        """Do a compaction, or the rest of a dead one."""
        made = dict(self._write(plan))
        if self._table != "iceberg" or not made:
            return
        removed = [file.path for at in made for file in plan.groups[at].files]
        added = [file.path for file in made.values()]
        done = replace_files(self._name, self._target.url, self._target.options, plan.number, removed, added)
        for at, file in made.items():
            old = tuple(one.path for one in plan.groups[at].files)
            replace_group(
                self._store, plan.number, at, GroupReplacement(old, (file,)) if done else GroupReplacement((), ())
            )
        if not done:
            self._store.delete(added)

    def _write(self, plan: CompactionPlan) -> Iterator[tuple[int, ExportedFile]]:
        """Run the tasks. Yields the groups that were not done, with their new files."""
        target, swaps = self._target, self._table == "parquet"
        works = [GroupCompaction(plan.number, at, group, self._settings, swaps) for at, group in enumerate(plan.groups)]

        progress, total = self._progress, sum(group.bytes for group in plan.groups)

        def work(batches: Iterable[Any]) -> Iterator[Any]:
            import pyarrow  # noqa: PLC0415 - in the worker

            stop = threading.Event()
            store = target.open(stop)
            try:
                for batch in batches:
                    for at in batch.column(0).to_pylist():
                        file = works[at].run(store)
                        if progress is not None:
                            progress(sum(group.bytes for group in plan.groups[: at + 1]), total)
                        text = json.dumps(None if file is None else asdict(file))
                        yield pyarrow.RecordBatch.from_pydict({"at": [at], "file": [text]})
            finally:
                stop.set()
                store.close()

        rows = self._spark.range(0, len(works), 1, max(len(works), 1)).mapInArrow(work, "at bigint, file string")
        for row in sorted(rows.collect(), key=lambda row: row["at"]):
            if row["file"] != "null":
                yield row["at"], file_of(json.loads(row["file"]))

    def _sweep(self, compactions: Compactions) -> None:
        """Delete the files that processes left when they died after a group was done. Costs a listing of the table."""
        if self._table != "parquet" or not compactions.done:
            return
        removed = {path for replacement in compactions.done.values() for path in replacement.removed}
        added = {file.path.removesuffix(".parquet") for one in compactions.done.values() for file in one.added}
        keys = [info.key for info in self._store.list("")]
        self._store.delete([key for key in keys if key in removed])
        self._store.delete([key for key in keys if key.endswith(MARK) and key.removesuffix(MARK) in added])
