"""The runs of an export: two documents for each run, created only once, next to the files that they name.

TARGET/_litelog/<run:8 hex>.plan.json     the plan: which sequences the run will cover, and how. A run that dies is
                                          repeated exactly as planned
TARGET/_litelog/<run:8 hex>.json          the manifest, which is the commit: the covered sequences, and the files. One
                                          bound and no files if the run was given up

A run that cannot be done as planned is given up: its manifest says that it covers nothing. Like every manifest, it can
be created only once. So a run is either done or given up, even if several processes work on it.

Spark, and other readers that list a table by folders, skip names that begin with an underscore.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any

from litelog.codec.decoding import JsonLimits, abbreviate, naming, parse_json, require_fields
from litelog.dataclass import dataclass
from litelog.errors import ConfigError, CorruptObjectError, ExistsError, NotFoundError
from litelog.objects.fields import COUNT, SEQUENCE, refuse, text
from litelog.objects.position import Generation, generation

if TYPE_CHECKING:
    from collections.abc import Collection

    from litelog.stores.object_store import ObjectStore


VERSION = 1
FOLDER = "_litelog/"

MERGED = f"{FOLDER}merge/"
"""The folder of files that are merged into a table and then deleted."""

MAX_FILES = 1 << 18
"""The most files that one run writes, and the most ranges that it is cut into."""

LIMITS = JsonLimits(
    size=64 << 20,
    values=10 * MAX_FILES,  # a bound: a file has six fields, including an object with one field
    texts=12 * MAX_FILES,
    containers=2 * MAX_FILES + 100,
    depth=4,
)
"""The most bytes in a document."""

_LESS = "partition by date, or not at all"

_NAME = re.compile(r"_litelog/([0-9a-f]{8})(\.plan)?\.json")


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The plan of one run. It covers sequences [bounds[0], bounds[-1]); task i covers [bounds[i], bounds[i + 1])."""

    run: int
    log: str
    """The log's id."""
    generation: Generation
    bounds: tuple[int, ...]
    shape: dict[str, Any]
    """The layout of rows, see ExportSettings. All runs of a target have the same one."""


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file of a table."""

    path: str
    """Relative to the target."""
    rows: int
    bytes: int
    first: int
    """The lowest sequence in it; ``last`` is the highest."""
    last: int
    partition: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The commit of one run."""

    plan: ExportPlan
    files: tuple[ExportedFile, ...]

    @property
    def next(self) -> int:
        """The sequence at which the next run begins."""
        return self.plan.bounds[-1]

    @property
    def is_given_up(self) -> bool:
        """Whether the run covers nothing because it could not be done. Another run then covers its records."""
        return len(self.plan.bounds) < 2


def list_runs(store: ObjectStore) -> tuple[list[int], list[int]]:
    """Return (planned runs, committed runs), each ascending. Costs one listing."""
    planned: list[int] = []
    committed: list[int] = []
    for info in store.list(FOLDER):
        match = _NAME.fullmatch(info.key)
        if match is not None:
            (planned if match[2] else committed).append(int(match[1], 16))
    return planned, committed


def read_plan(store: ObjectStore, run: int) -> ExportPlan:
    """Read the plan of a run. Raises CorruptObjectError and NotFoundError."""
    key = _key(run, ".plan")
    body = read_document(store, key)
    with naming(key, "export"):
        return _plan(run, read_fields(key, body).get("plan"))


def read_manifest(store: ObjectStore, run: int) -> Manifest:
    """Read the manifest of a run. Raises CorruptObjectError and NotFoundError."""
    key = _key(run)
    body = read_document(store, key)
    with naming(key, "export"):
        fields = read_fields(key, body)
        files = tuple(file_of(each) for each in require_list("files", fields.get("files")))
        return Manifest(_plan(run, fields.get("plan")), files)


def create_plan(store: ObjectStore, plan: ExportPlan) -> ExportPlan:
    """Create a plan. Returns the existing plan instead if another process was faster.

    Raises ConfigError for a plan that is too large to be read again.
    """
    return plan if _create(store, _key(plan.run, ".plan"), {"plan": asdict(plan)}) else read_plan(store, plan.run)


def commit(store: ObjectStore, manifest: Manifest) -> bool:
    """Create a manifest, which makes the run's files count.

    Returns False if it exists: another process did the same run, and its files have the same names and rows. Raises
    ConfigError for a manifest that is too large to be read again.
    """
    document = {"plan": asdict(manifest.plan), "files": [asdict(file) for file in manifest.files]}
    return _create(store, _key(manifest.plan.run), document)


def _key(run: int, kind: str = "") -> str:
    return f"{FOLDER}{run:08x}{kind}.json"


def _create(store: ObjectStore, key: str, document: dict[str, Any]) -> bool:
    if max(len(document.get("files", ())), len(document["plan"]["bounds"])) > MAX_FILES:
        raise ConfigError(f"this run of the export needs more than {MAX_FILES:,} files or ranges: {_LESS}")
    return create_document(store, key, document)


def create_document(store: ObjectStore, key: str, document: dict[str, Any]) -> bool:
    """Create a document of an export. Returns False if it exists. Raises ConfigError if it is too large to be read."""
    body = json.dumps({"version": VERSION, **document}, indent=1).encode()
    if len(body) > LIMITS.size:
        raise ConfigError(f"{key}: would have more than {LIMITS.size >> 20} MiB: {_LESS}")
    try:
        store.put(key, [body])
    except ExistsError:
        return False
    return True


def read_document(store: ObjectStore, key: str) -> bytes:
    """Read a document, at most one byte more than the limit. Raises NotFoundError."""
    with store.open(key) as stream:
        return stream.read(LIMITS.size + 1)


def read_fields(key: str, body: bytes) -> dict[str, Any]:
    """The fields of a document. Raises CorruptObjectError for another version, and ValueError for an invalid one."""
    fields = require_fields(parse_json(body, LIMITS))
    version = fields.get("version")
    if type(version) is not int or version != VERSION:
        raise CorruptObjectError(key, "version of the export", VERSION, abbreviate(version))
    return fields


def _plan(run: int, value: object) -> ExportPlan:
    fields = _require_names(value, ExportPlan.__slots__)
    bounds = [SEQUENCE("bounds", bound) for bound in require_list("bounds", fields["bounds"])]
    if not bounds or bounds != sorted(bounds):
        refuse("bounds", bounds)
    if type(fields["run"]) is not int or fields["run"] != run:
        refuse("run", fields["run"])
    shape = require_fields(fields["shape"])
    for name, held in shape.items():
        if held is not None and not isinstance(held, bool):
            text(name, held)
    log, name = text("log", fields["log"]), text("generation", fields["generation"])
    return ExportPlan(run, log, generation(name), tuple(bounds), shape)


def file_of(value: object) -> ExportedFile:
    """The file that a JSON object describes. Raises ValueError."""
    fields = _require_names(value, ExportedFile.__slots__)
    path = path_of(fields["path"])
    partition = {name: text(name, held) for name, held in require_fields(fields["partition"]).items()}
    rows, size = COUNT("rows", fields["rows"]), COUNT("bytes", fields["bytes"])
    first, last = (SEQUENCE(name, fields[name]) for name in ("first", "last"))
    return ExportedFile(path, rows, size, first, last, partition)


def path_of(value: object) -> str:
    """The path of a file below the target. Raises ValueError."""
    path = text("path", value)
    if any(part in {"", ".", ".."} for part in path.split("/")):  # the path would leave the table
        refuse("path", path)
    return path


def require_list(name: str, value: object) -> list[Any]:
    """The JSON list. Raises ValueError for anything else."""
    if not isinstance(value, list) or len(value) > MAX_FILES:
        refuse(name, value)
    return value


def _require_names(value: object, names: Collection[str]) -> dict[str, Any]:
    """The JSON object, if it has exactly these fields."""
    fields = require_fields(value)
    if fields.keys() != set(names):
        refuse("fields", sorted(fields))
    return fields


_FILE = re.compile(r"(?:(?:[^_/][^/]*|_litelog/merge)/)?([0-9a-f]{8})-[0-9]{6}\.parquet")
"""A file that a task writes, and its run: see ``export_task``."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs that one listing shows."""

    newest: Manifest | None
    """The last run that covers any records."""
    pending: tuple[ExportPlan, ...]
    """The runs that were planned after it, and are neither committed nor given up."""
    given_up: tuple[int, ...]
    """The runs after it that were given up."""
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


def is_committed(store: ObjectStore, run: int) -> bool:
    """Whether a run is done or given up. Raises CorruptObjectError."""
    try:
        read_manifest(store, run)
    except NotFoundError:
        return False
    return True


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
