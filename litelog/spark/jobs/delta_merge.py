"""Merges the runs of an export into a Delta table that holds the latest row of each key, each run once.

A task reduces its range to one row for each key, in a file that readers of the table do not see. The driver merges the
files in the order of their ranges, each in one commit that records it. A row replaces only a row of a lower sequence.
So each version of the table is the log up to some sequence, and a file that is merged again changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError, NotFoundError, StoreError
from litelog.spark.jobs.delta import delta_schema, storage_options
from litelog.spark.jobs.manifest import MERGED, is_committed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from litelog.spark.jobs.manifest import ExportedFile, ExportPlan
    from litelog.spark.jobs.table_file import ExportSettings
    from litelog.stores.object_store import ObjectStore

APPLICATION = "litelog-merge"

FILE_BITS = 20
"""How many bits of the version of a file's commit hold the number of its range. The bits above hold the run."""

ATTEMPTS = 20
"""How often in a row a commit may fail because other writers of the table were faster."""


def merge_holds(url: str, options: Mapping[str, str], run: int) -> bool:
    """Whether any file of a run is in the Delta table."""
    from deltalake import DeltaTable  # noqa: PLC0415 - an extra

    storage = storage_options(options)
    if not DeltaTable.is_deltatable(url, storage):
        return False
    version = DeltaTable(url, storage_options=storage).transaction_version(APPLICATION) or 0
    return version >> FILE_BITS >= run


def merge(
    store: ObjectStore,
    url: str,
    options: Mapping[str, str],
    plan: ExportPlan,
    files: Iterable[ExportedFile],
    settings: ExportSettings,
) -> None:
    """Merge the files of a run into the Delta table at ``url``, in their order, and delete them.

    Creates a missing table. Ends early if another process has done the run.

    Raises:
        ConfigError: Other writers of the table were faster in each attempt.
        StoreError: A file cannot be read.
    """
    from deltalake import DeltaTable  # noqa: PLC0415 - an extra

    DeltaTable.create(url, delta_schema(settings), mode="ignore", storage_options=storage_options(options))
    keys = [file.path for file in files]
    for key in keys:
        try:
            _merge_file(store, url, options, plan, key, str(settings.merge_on))
        except NotFoundError:
            if not is_committed(store, plan.run):
                raise
            return
    store.delete(keys)


def _merge_file(
    store: ObjectStore, url: str, options: Mapping[str, str], plan: ExportPlan, key: str, merge_on: str
) -> None:
    from deltalake import DeltaTable  # noqa: PLC0415 - an extra
    from deltalake.exceptions import CommitFailedError  # noqa: PLC0415
    from deltalake.transaction import CommitProperties, Transaction  # noqa: PLC0415

    version = plan.run << FILE_BITS | int(key.removeprefix(MERGED).partition("-")[2].partition(".")[0])
    source: Any = None
    for attempt in range(ATTEMPTS):
        table = DeltaTable(url, storage_options=storage_options(options))
        if (table.transaction_version(APPLICATION) or 0) >= version:
            return
        source = _read(store, key) if source is None else source
        properties = CommitProperties(app_transactions=[Transaction(APPLICATION, version)])
        merging = table.merge(
            source,
            f'target."{merge_on}" = source."{merge_on}"',
            source_alias="source",
            target_alias="target",
            commit_properties=properties,
        )
        merging = merging.when_matched_update_all(predicate="source.sequence > target.sequence")
        try:
            merging.when_not_matched_insert_all().execute()
        except CommitFailedError as error:
            if attempt + 1 == ATTEMPTS:
                raise ConfigError(f"other writers change the Delta table in every attempt: {error}") from error
        else:
            return


def _read(store: ObjectStore, key: str) -> Any:
    import pyarrow  # noqa: PLC0415 - an extra
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    with store.open(key) as stream:
        try:
            return parquet.read_table(pyarrow.BufferReader(stream.read()))
        except OSError as error:
            raise StoreError("read", key, str(error)) from error
