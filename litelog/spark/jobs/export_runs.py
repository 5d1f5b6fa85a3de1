"""Finds the runs of an export: those that are committed, planned or given up.

A run that cannot be done as planned is given up: its manifest says that it covers nothing. Like every manifest, it can
be created only once. So a run is either done or given up, even if several processes work on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, NotFoundError
from litelog.spark.jobs.manifest import Manifest, commit, list_runs, read_manifest, read_plan

if TYPE_CHECKING:
    from collections.abc import Collection

    from litelog.spark.jobs.manifest import ExportPlan
    from litelog.stores.object_store import ObjectStore

_FILE = re.compile(r"(?:[^_/][^/]*/)?([0-9a-f]{8})-[0-9]{6}\.parquet")
"""A file that a task writes, and its run: see ``export_task``."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs that one listing shows."""

    newest: Manifest | None
    """The last run that covers any records."""
    pending: tuple[ExportPlan, ...]
    """Planned after it, and neither committed nor given up."""
    given_up: tuple[int, ...]
    """Given up after the newest one."""
    unused: int
    """The number of the next run."""


def find_runs(store: ObjectStore) -> Runs:
    """Find the runs of a target. Raises CorruptObjectError."""
    planned, committed = list_runs(store)
    newest: Manifest | None = None
    given_up: list[int] = []
    for run in reversed(committed):
        manifest = read_manifest(store, run)
        if not manifest.is_given_up:
            newest = manifest
            break
        given_up.append(run)
    pending = tuple(read_plan(store, run) for run in planned if run > max(committed, default=0))
    return Runs(newest, pending, tuple(given_up), max([0, *planned, *committed]) + 1)


def find_begin(store: ObjectStore) -> int:
    """The sequence at which a table begins. The table must have a run that covers records."""
    _, committed = list_runs(store)
    manifests = (read_manifest(store, run) for run in committed)
    return next(manifest.plan.bounds[0] for manifest in manifests if not manifest.is_given_up)


def give_up(store: ObjectStore, plan: ExportPlan) -> None:
    """Commit that a run covers nothing, and remove its files. Raises ConfigError if another process has finished it."""
    manifest = Manifest(replace(plan, bounds=plan.bounds[:1]), ())
    if not commit(store, manifest) and not read_manifest(store, plan.run).is_given_up:
        raise ConfigError(f"another process has just finished run {plan.run} of this export: start it again")
    remove_files(store, [plan.run])


def require_wanted(store: ObjectStore, run: int) -> None:
    """Raise ConfigError for a run that was given up: another process has different plans for the target."""
    try:
        manifest = read_manifest(store, run)
    except NotFoundError:
        return
    if manifest.is_given_up:
        raise ConfigError(f"another export to this target has given up run {run}, which runs here: start again")


def remove_files(store: ObjectStore, runs: Collection[int]) -> None:
    """Remove files of runs that were given up, for readers that list folders. Costs one listing of the table."""
    found = ((info.key, _FILE.fullmatch(info.key)) for info in store.list(""))
    store.delete([key for key, match in found if match is not None and int(match[1], 16) in runs])
