"""What an export has covered: one document a run, created only, beside the files that it names.

TARGET/_litelog/<run:8 hex>.plan.json     what the run will cover, and how: a run that dies is done again just so
TARGET/_litelog/<run:8 hex>.json          what it has covered, and its files: the commit; one bound and no files where
                                          it was given up, and covers nothing

Spark, and whoever lists a table by folders, pass over names that begin with an underscore.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from litelog.errors import CorruptObjectError, ExistsError

if TYPE_CHECKING:
    from litelog.object_store import ObjectStore

VERSION = 1
FOLDER = "_litelog/"
MAX_BYTES = 64 << 20

_NAME = re.compile(r"_litelog/([0-9a-f]{8})(\.plan)?\.json")


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What one run covers: sequences [bounds[0], bounds[-1]), task i those of [bounds[i], bounds[i + 1])."""

    run: int
    log: str
    """The log's id."""
    generation: str
    bounds: tuple[int, ...]
    shape: dict[str, Any]
    """How the rows are laid out: as ExportSettings says. All runs of a target have the same one."""


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file of a table."""

    path: str
    """Relative to the target."""
    rows: int
    bytes: int
    first: int
    """The lowest sequence in it; ``last``: the highest."""
    last: int
    partition: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one run has covered."""

    plan: ExportPlan
    files: tuple[ExportedFile, ...]

    @property
    def next(self) -> int:
        """The sequence that the next run begins with."""
        return self.plan.bounds[-1]

    @property
    def is_given_up(self) -> bool:
        """Whether the run covers nothing, as it could not be done: what was planned instead is another run's."""
        return len(self.plan.bounds) < 2


def list_runs(store: ObjectStore) -> tuple[list[int], list[int]]:
    """(the runs that were planned, those that were committed), ascending. One listing."""
    planned: list[int] = []
    committed: list[int] = []
    for info in store.list(FOLDER):
        match = _NAME.fullmatch(info.key)
        if match is not None:
            (planned if match[2] else committed).append(int(match[1], 16))
    return planned, committed


def read_plan(store: ObjectStore, run: int) -> ExportPlan:
    """The plan of a run. CorruptObjectError, NotFoundError."""
    return _plan(_key(run, ".plan"), _read(store, _key(run, ".plan")))


def read_manifest(store: ObjectStore, run: int) -> Manifest:
    """What a run has covered. CorruptObjectError, NotFoundError."""
    key = _key(run)
    document = _read(store, key)
    try:
        files = tuple(ExportedFile(**fields) for fields in document["files"])
    except (KeyError, TypeError) as error:
        raise CorruptObjectError(key, f"export: {error}") from error
    return Manifest(_plan(key, document), files)


def create_plan(store: ObjectStore, plan: ExportPlan) -> ExportPlan:
    """Put a plan there; the one that is there already, where another process was faster."""
    return plan if _create(store, _key(plan.run, ".plan"), {"plan": asdict(plan)}) else read_plan(store, plan.run)


def commit(store: ObjectStore, manifest: Manifest) -> bool:
    """Put a manifest there: from then on its files count. False where that was done before: by a process that did the
    same run, whose files have the same names and rows."""
    document = {"plan": asdict(manifest.plan), "files": [asdict(file) for file in manifest.files]}
    return _create(store, _key(manifest.plan.run), document)


def _key(run: int, kind: str = "") -> str:
    return f"{FOLDER}{run:08x}{kind}.json"


def _create(store: ObjectStore, key: str, document: dict[str, Any]) -> bool:
    try:
        store.put(key, [json.dumps({"version": VERSION, **document}, indent=1).encode()])
    except ExistsError:
        return False
    return True


def _read(store: ObjectStore, key: str) -> dict[str, Any]:
    with store.open(key) as stream:
        body = stream.read(MAX_BYTES)
    try:
        document = json.loads(body)
        if document["version"] != VERSION:
            raise CorruptObjectError(key, "version of the export", VERSION, document["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptObjectError(key, f"export: {error}") from error
    return dict(document)


def _plan(key: str, document: dict[str, Any]) -> ExportPlan:
    try:
        fields = document["plan"]
        return ExportPlan(**{**fields, "bounds": tuple(fields["bounds"])})
    except (KeyError, TypeError) as error:
        raise CorruptObjectError(key, f"export: {error}") from error
