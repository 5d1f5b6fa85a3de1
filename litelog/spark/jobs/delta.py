"""Commits an export to a Delta table, each run once: the table's own log records the runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from litelog.errors import ConfigError
from litelog.installation import install_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from litelog.spark.jobs.manifest import Manifest
    from litelog.spark.jobs.table_file import ExportSettings

APPLICATION = "litelog-export"

_STORAGE = {
    "access-key-id": "AWS_ACCESS_KEY_ID",
    "secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "session-token": "AWS_SESSION_TOKEN",
    "endpoint": "AWS_ENDPOINT_URL",
    "region": "AWS_REGION",
}


def require_delta() -> None:
    """Raise ConfigError if deltalake is missing."""
    try:
        import deltalake.transaction  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"table=delta needs deltalake; run: {install_command('delta')}") from error


def delta_holds(url: str, options: Mapping[str, str], run: int) -> bool:
    """Whether a run's files are in the Delta table. Raises ConfigError if deltalake is missing."""
    require_delta()
    from deltalake import DeltaTable  # noqa: PLC0415

    storage = storage_options(options)
    if not DeltaTable.is_deltatable(url, storage):
        return False
    return (DeltaTable(url, storage_options=storage).transaction_version(APPLICATION) or 0) >= run


def commit_delta(url: str, options: Mapping[str, str], manifest: Manifest, settings: ExportSettings) -> None:
    """Add a run's files to the Delta table, unless they are there. Raises ConfigError if deltalake is missing."""
    require_delta()
    from deltalake import DeltaTable  # noqa: PLC0415
    from deltalake.transaction import (  # noqa: PLC0415
        AddAction,
        CommitProperties,
        Transaction,
        create_table_with_add_actions,
    )

    run = manifest.plan.run
    actions: list[Any] = [
        AddAction(
            path=file.path,
            size=file.bytes,
            partition_values=dict(file.partition),
            modification_time=0,
            data_change=True,
            stats=json.dumps(_statistics(file)),
        )
        for file in manifest.files
    ]
    properties = CommitProperties(app_transactions=[Transaction(APPLICATION, run)])
    storage = storage_options(options)
    schema, partition = delta_schema(settings), [settings.partition_by] if settings.partition_by else []
    if not DeltaTable.is_deltatable(url, storage):
        create_table_with_add_actions(
            url,
            schema,
            actions,
            partition_by=partition,
            storage_options=storage,
            commit_properties=properties,
        )
        return
    held = DeltaTable(url, storage_options=storage)
    if (held.transaction_version(APPLICATION) or 0) >= run:
        return
    held.create_write_transaction(actions, "append", schema, partition, commit_properties=properties)


def plan_delta(url: str, options: Mapping[str, str], file_bytes: int) -> tuple[int, int, int]:
    """Estimate what ``compact_delta`` would do: (files that are new, files that they replace, their bytes)."""
    import pyarrow  # noqa: PLC0415 - an extra
    from deltalake import DeltaTable  # noqa: PLC0415

    partitions: dict[str, list[list[int]]] = {}
    actions: Any = DeltaTable(url, storage_options=storage_options(options)).get_add_actions()
    for action in pyarrow.table(actions).to_pylist():
        groups = partitions.setdefault(json.dumps(action.get("partition"), default=str), [[]])
        if action["size_bytes"] >= file_bytes:
            continue
        if sum(groups[-1]) + action["size_bytes"] > file_bytes:
            groups.append([])
        groups[-1].append(action["size_bytes"])
    several = [group for groups in partitions.values() for group in groups if len(group) > 1]
    return len(several), sum(map(len, several)), sum(map(sum, several))


def compact_delta(url: str, options: Mapping[str, str], file_bytes: int) -> tuple[int, int, int]:
    """Run Delta's own compaction. Returns (files that are new, files that they replace, their bytes).

    It is one commit, which changes no rows. Raises ConfigError if another writer of the table was faster.
    """
    from deltalake import DeltaTable  # noqa: PLC0415
    from deltalake.exceptions import CommitFailedError  # noqa: PLC0415

    table = DeltaTable(url, storage_options=storage_options(options))
    try:
        done = table.optimize.compact(target_size=file_bytes)
    except CommitFailedError as error:
        raise ConfigError(f"another writer changed the Delta table: compact it again ({error})") from error
    removed = done["filesRemoved"]
    removed = json.loads(removed) if isinstance(removed, str) else removed
    return done["numFilesAdded"], done["numFilesRemoved"], int(removed["totalSize"])


def _statistics(file: Any) -> dict[str, Any]:
    return {
        "numRecords": file.rows,
        "minValues": {"sequence": file.first},
        "maxValues": {"sequence": file.last},
        "nullCount": {"sequence": 0},
    }


def delta_schema(settings: ExportSettings) -> Any:
    """The columns of the Delta table."""
    import pyarrow  # noqa: PLC0415 - an extra
    from deltalake import Schema  # noqa: PLC0415

    schema = settings.arrow_schema()
    if settings.partition_by:
        schema = schema.append(pyarrow.field(settings.partition_by, pyarrow.string()))
    return Schema.from_arrow(schema)


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options of an S3 store as deltalake spells them."""
    found = {_STORAGE[name]: value for name, value in options.items() if name in _STORAGE}
    if found.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    return found
