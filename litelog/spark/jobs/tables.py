"""The kinds of tables that an export writes: plain Parquet, or tables whose own metadata records the runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError
from litelog.spark.jobs.delta import commit_delta, delta_holds, require_delta
from litelog.spark.jobs.iceberg import commit_iceberg, iceberg_holds, require_iceberg, split_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.spark.jobs.export_task import ExportSettings
    from litelog.spark.jobs.manifest import ExportPlan, Manifest
    from litelog.stores.object_store import ObjectStore

TABLES = ("parquet", "delta", "iceberg")


def check_table(kind: str, iceberg_table: str | None) -> dict[str, Any]:
    """The table's part of an export's shape. Raises ConfigError, also if a package that the kind needs is missing."""
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
    if shape["table"] == "delta":
        commit_delta(url, options, manifest, settings)
    if shape["table"] == "iceberg":
        commit_iceberg(shape["iceberg_table"], url, options, manifest, settings)


def table_holds(store: ObjectStore, url: str, options: Mapping[str, str], plan: ExportPlan) -> bool:
    """Whether the table's own metadata names a run's files, even without a manifest."""
    if plan.shape["table"] == "delta" and next(iter(store.list("_delta_log/")), None) is not None:
        return delta_holds(url, options, plan.run)
    return plan.shape["table"] == "iceberg" and iceberg_holds(plan.shape["iceberg_table"], url, options, plan.run)
