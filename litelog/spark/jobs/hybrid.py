"""Reading what was exported: the table alone, or with the log's tail behind it, as one DataFrame."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from litelog.errors import NothingToRestoreError
from litelog.registry import local_folder, open_store, redact
from litelog.retrying_store import RetryingStore
from litelog.spark.fast import read
from litelog.spark.jobs.manifest import Manifest, list_runs, read_manifest
from litelog.spark.jobs.progress import watching
from litelog.spark.spelling import spell_options
from litelog.spark.store_options import read_store_options, replica_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.spark.jobs.progress import Progress

COLUMNS = ["sequence", "timestamp", "key", "value"]


def exported(spark: Any, target: str, *, options: Mapping[str, object] | None = None) -> Any:
    """A DataFrame of the files that an export's manifests name: exact also while a run is under way.

    Spark reads them by itself: for ``s3://`` it needs its own s3a. NothingToRestoreError where there is no export.
    """
    manifests = read_manifests(target, options)
    return _read_files(spark, target, manifests)


def hybrid(
    spark: Any,
    url: str,
    target: str,
    *,
    options: Mapping[str, object] | None = None,
    target_options: Mapping[str, object] | None = None,
) -> Any:
    """A DataFrame of a log: from the table what that covers, from the replica what lies behind it.

    The columns are sequence, timestamp, key and value. Exact whatever is exported meanwhile: where the table ends is
    told by the manifests that are read, and the log is read from there.
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
    """What Spark SQL answers about the DataFrame of ``hybrid``, as the view ``log``: a JSON object a row.

    The session has that view, in place of one of that name, until it has answered. ``progress`` is told of the table's
    bytes, which the tail's tasks count for as well.
    """
    frame, manifests = _read_both(spark, url, target, options, target_options)
    frame.createOrReplaceTempView("log")
    try:
        with watching(spark, progress, sum(file.bytes for manifest in manifests for file in manifest.files)):
            return [row["line"] for row in spark.sql(sql).selectExpr("to_json(struct(*)) AS line").collect()]
    finally:
        spark.catalog.dropTempView("log")


def _read_both(
    spark: Any,
    url: str,
    target: str,
    options: Mapping[str, object] | None,
    target_options: Mapping[str, object] | None,
) -> tuple[Any, list[Manifest]]:
    manifests = read_manifests(target, options if target_options is None else target_options)
    table = _read_files(spark, target, manifests).select(*COLUMNS)
    tail = read(spark, url, columns=COLUMNS, options={**(options or {}), "startingSequence": manifests[-1].next})
    return table.unionByName(tail), manifests


def read_manifests(target: str, options: Mapping[str, object] | None = None) -> list[Manifest]:
    """All runs that were committed, in order. NothingToRestoreError where there is none."""
    given, _ = read_store_options(spell_options(options))
    stop = threading.Event()
    store = RetryingStore(open_store(replica_url(target), given), stop)
    try:
        _, committed = list_runs(store)
        if not committed:
            raise NothingToRestoreError(f"{redact(target)}: holds no export")
        return [read_manifest(store, run) for run in committed]
    finally:
        stop.set()
        store.close()


def _read_files(spark: Any, target: str, manifests: list[Manifest]) -> Any:
    root = _spark_path(target)
    paths = [f"{root}/{file.path}" for manifest in manifests for file in manifest.files]
    return spark.read.option("basePath", root).parquet(*paths)


def _spark_path(target: str) -> str:
    """The place as Spark's own readers spell it."""
    url = replica_url(target)
    if url.startswith("s3://"):
        return "s3a://" + url.removeprefix("s3://").partition("?")[0].rstrip("/")
    store = open_store(url, {})
    folder = local_folder(store.url)
    store.close()
    return (url if folder is None else f"file://{folder}").rstrip("/")
