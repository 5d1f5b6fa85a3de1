"""Reads an exported table, alone or followed by the rest of the log, as one DataFrame."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError, NothingToRestoreError
from litelog.spark.jobs.compactions import find_compactions
from litelog.spark.jobs.manifest import ExportedFile, Manifest, list_runs, read_manifest
from litelog.spark.jobs.options import options_of_target, require_records, require_unbounded, store_options
from litelog.spark.jobs.progress import watching
from litelog.spark.jobs.ranges import find_held, require_continued, require_log
from litelog.spark.options import format_options, parse_options, require_uncommitted
from litelog.spark.query.dataframe import read
from litelog.spark.store_options import replica_url
from litelog.stores.registry import local_folder, open_store, redact
from litelog.stores.retrying_store import RetryingStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.spark.jobs.progress import Progress
    from litelog.spark.options import ReadOptions

_WILDCARD = re.compile(r"[\\*?\[\]{}]")
"""Characters that Hadoop treats as a pattern in a path, unless a backslash precedes them."""

COLUMNS = ["sequence", "timestamp", "key", "value"]


def exported(spark: Any, target: str, *, options: Mapping[str, object] | None = None) -> Any:
    """Return a DataFrame of the files that an export's manifests name. It is exact even while an export runs.

    Spark itself reads the files, so ``s3://`` needs its own s3a.

    Args:
        spark: the SparkSession.
        target: URL or folder of the table.
        options: options of the target's store.

    Returns:
        The pyspark.sql.DataFrame.

    Raises:
        NothingToRestoreError: the target holds no export.
        ConfigError: an option does not fit.
        CorruptObjectError: a manifest is damaged.
        StoreError: a request to the store failed.
    """
    return _read_files(spark, target, read_table(target, store_options(options, "the target"))[1])


def hybrid(
    spark: Any,
    url: str,
    target: str,
    *,
    options: Mapping[str, object] | None = None,
    target_options: Mapping[str, object] | None = None,
) -> Any:
    """Return a DataFrame of a log: records up to the table's end from the table, later ones from the replica.

    It is exact even while an export runs: the manifests show where the table ends, and the log is read from there.

    Args:
        spark: the SparkSession.
        url: URL of the replica.
        target: URL or folder of the table.
        options: options of the data source, without bounds.
        target_options: options of the target's store, if they differ.

    Returns:
        The pyspark.sql.DataFrame, with the columns sequence, timestamp, key and value.

    Raises:
        ConfigError: an option does not fit, or the table is of another log.
        DivergedError: the log does not continue the history in the table.
        NothingToRestoreError: the target holds no export, or the replica does not exist.
        CorruptObjectError: an object that planning reads is damaged.
        StoreError: a request to a store failed.
    """
    return _read_both(spark, url, target, options, target_options)[0]


def query(
    spark: Any,
    url: str,
    target: str,
    sql: str,
    *,
    options: Mapping[str, object] | None = None,
    target_options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Run a Spark SQL query on the DataFrame of ``hybrid``, as the view ``log``.

    Until the query is done, this view replaces any other view of that name in the session.

    Args:
        spark: the SparkSession.
        url: URL of the replica.
        target: URL or folder of the table.
        sql: the query.
        options: options of the data source, without bounds.
        target_options: options of the target's store, if they differ.
        progress: called with bytes done and total bytes: those of the table, although tasks for the end of the log
            count as well.

    Returns:
        A JSON object for each row.

    Raises:
        ConfigError, DivergedError, NothingToRestoreError, CorruptObjectError, StoreError: as ``hybrid``.
    """
    frame, files = _read_both(spark, url, target, options, target_options)
    frame.createOrReplaceTempView("log")
    try:
        with watching(spark, progress, sum(file.bytes for file in files)):
            return [row["line"] for row in spark.sql(sql).selectExpr("to_json(struct(*)) AS line").collect()]
    finally:
        spark.catalog.dropTempView("log")


def _read_both(
    spark: Any,
    url: str,
    target: str,
    options: Mapping[str, object] | None,
    target_options: Mapping[str, object] | None,
) -> tuple[Any, list[ExportedFile]]:
    given = {**format_options(options), "path": url}
    reading = parse_options(given)
    require_uncommitted(reading, "a read of an export and a log")
    require_unbounded(reading, "a hybrid is all of a log: filter its DataFrame, with where")
    require_records(reading.mode)
    last, files = read_table(target, options_of_target(target, target_options, reading.store))
    if last.plan.shape.get("schema") is not None:
        raise ConfigError("the table was exported with a schema, so it has no column value: read it with exported")
    continued = _require_continued(reading, last)
    own = {name: value for name, value in given.items() if name.lower() not in ("path", "generation")}
    tail = {**own, "generation": continued, "startingSequence": last.next}
    table = _read_files(spark, target, files).select(*COLUMNS)
    return table.unionByName(read(spark, url, columns=COLUMNS, options=tail)), files


def _require_continued(reading: ReadOptions, last: Manifest) -> str:
    """The replica's generation that continues the last run. Raises ConfigError and DivergedError."""
    stop = threading.Event()
    try:
        held = find_held(reading, stop)
        require_log(held, last.plan.log)
        require_continued(reading, held, last.plan.generation, stop)
    finally:
        stop.set()
    return held.claim.generation


def read_table(target: str, options: Mapping[str, str]) -> tuple[Manifest, list[ExportedFile]]:
    """The manifest of the last run that covers records, and the files of a table. ``options``: as for ``open_store``.

    Raises NothingToRestoreError if no run exists.
    """
    stop = threading.Event()
    store = RetryingStore(open_store(replica_url(target), options), stop)
    try:
        compactions = find_compactions(store)  # before the manifests, as apply says
        _, committed = list_runs(store)
        manifests = [read_manifest(store, run) for run in committed]
    finally:
        stop.set()
        store.close()
    found = [manifest for manifest in manifests if not manifest.is_given_up]
    if not found:
        raise NothingToRestoreError(f"{redact(target)}: has no export")
    if found[-1].plan.shape.get("merge_on") is not None:
        raise ConfigError(f"{redact(target)}: holds the latest row of each key only: read it as a Delta table")
    return found[-1], compactions.apply(found)


def _read_files(spark: Any, target: str, files: list[ExportedFile]) -> Any:
    root = _spark_path(target)
    paths = [_WILDCARD.sub(r"\\\g<0>", f"{root}/{file.path}") for file in files]
    return spark.read.option("basePath", root).parquet(*paths)


def _spark_path(target: str) -> str:
    """The location as Spark's own readers spell it."""
    url = replica_url(target)
    if url.startswith("s3://"):
        return "s3a://" + url.removeprefix("s3://").partition("?")[0].rstrip("/")
    store = open_store(url, {})
    folder = local_folder(store.url)
    store.close()
    return (url if folder is None else f"file://{folder}").rstrip("/")
