"""Restores replicas into folders, and reads the restored files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litelog.errors import LitelogError
from litelog.restore.execution import restore
from litelog.restore.history_plan import Target, find_plan
from tests.builders.replica_builder import FORMAT, client_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.formats import LogFormat
    from litelog.restore.execution import RestoreResult
    from litelog.stores.replica_client import ReplicaClient
    from tests.builders.replica_builder import LogSegment


def files_in(folder: str | Path) -> dict[str, bytes]:
    """The files of a folder, keyed by name."""
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def whole(log: Iterable[LogSegment]) -> dict[str, bytes]:
    """The files of a log."""
    return {segment.name: segment.data for segment in log}


def restore_to(
    client: ReplicaClient,
    output: str | Path,
    target: Target | None = None,
    log_format: LogFormat = FORMAT,
    **options: Any,
) -> RestoreResult:
    """Plan a restore and execute it. By default it restores everything that the replica holds."""
    plan = find_plan(client, target or Target(), log_format)
    return restore(client, plan, str(output), log_format=log_format, **options)


def try_restore(
    objects: dict[str, bytes], folder: str | Path, target: Target | None = None
) -> tuple[dict[str, bytes], RestoreResult] | LitelogError:
    """Restore a replica of these objects into an empty folder, which is empty again afterwards.

    Returns the restored files and the result, or the error. AssertionError if a failed restore leaves files.
    """
    try:
        result = restore_to(client_of(objects), f"{folder}/out", target, parallelism=2)
    except LitelogError as error:
        assert os.listdir(folder) == []
        return error
    found = files_in(f"{folder}/out")
    shutil.rmtree(f"{folder}/out")
    return found, result
