"""The compactions of an exported table: a plan for each, and a document for each of its groups of files.

TARGET/_litelog/compacted/<number:8 hex>.plan.json         the plan: groups of files, and the file that replaces each. A
                                                           compaction that dies is repeated exactly as planned
TARGET/_litelog/compacted/<number:8 hex>-<group:6>.json    a group is done: from now on readers of manifests read its
                                                           new file. It names no file if the group was given up

Each document can be created only once. Documents of older compactions than the newest belong to finished ones.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING

from litelog.codec.decoding import naming, require_fields
from litelog.dataclass import dataclass
from litelog.objects.fields import refuse
from litelog.spark.jobs.manifest import (
    FOLDER,
    MAX_FILES,
    ExportedFile,
    create_document,
    file_of,
    path_of,
    read_document,
    read_fields,
    require_list,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.spark.jobs.manifest import Manifest
    from litelog.stores.object_store import ObjectStore

COMPACTED = f"{FOLDER}compacted/"

_NAME = re.compile(r"_litelog/compacted/([0-9a-f]{8})(?:\.plan|-([0-9]{6}))\.json")


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition of a table that one file replaces."""

    files: tuple[ExportedFile, ...]
    """In the order of their sequences."""
    path: str
    """The new file, relative to the target. It sorts after ``files``."""

    @property
    def rows(self) -> int:
        """The rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The files that one compaction replaces."""

    number: int
    groups: tuple[FileGroup, ...]


@dataclass(frozen=True, slots=True)
class GroupReplacement:
    """A group that is done: one file replaces several. Both are empty if the group was given up."""

    removed: tuple[str, ...]
    added: tuple[ExportedFile, ...]


@dataclass(frozen=True, slots=True)
class Compactions:
    """The compactions that one listing shows."""

    newest: CompactionPlan | None
    done: dict[tuple[int, int], GroupReplacement]
    """By the number of the compaction and that of the group, ascending."""

    @property
    def unused(self) -> int:
        """The number of the next compaction."""
        return 1 if self.newest is None else self.newest.number + 1

    @property
    def pending(self) -> list[int]:
        """The groups of the newest plan that are not done."""
        plan = self.newest
        return [] if plan is None else [at for at in range(len(plan.groups)) if (plan.number, at) not in self.done]

    def apply(self, manifests: Iterable[Manifest]) -> list[ExportedFile]:
        """The files of a table: those of its runs, without those that others have replaced, in their order.

        Read the manifests after the compactions. Then they include the run of each replaced file.
        """
        files = {file.path: file for manifest in manifests for file in manifest.files}
        for replacement in self.done.values():
            for path in replacement.removed:
                files.pop(path, None)
            files.update((file.path, file) for file in replacement.added)
        return sorted(files.values(), key=lambda file: (file.first, file.path))


def find_compactions(store: ObjectStore) -> Compactions:
    """Find the compactions of a table: a listing, and a request for each group. Raises CorruptObjectError."""
    planned: list[int] = []
    done: dict[tuple[int, int], GroupReplacement] = {}
    for info in store.list(COMPACTED):
        match = _NAME.fullmatch(info.key)
        if match is None:
            continue
        if match[2] is None:
            planned.append(int(match[1], 16))
        else:
            done[int(match[1], 16), int(match[2])] = _read_replacement(store, info.key)
    newest = None if not planned else read_compaction(store, max(planned))
    return Compactions(newest, dict(sorted(done.items())))


def read_compaction(store: ObjectStore, number: int) -> CompactionPlan:
    """Read the plan of a compaction. Raises CorruptObjectError and NotFoundError."""
    key = f"{COMPACTED}{number:08x}.plan.json"
    body = read_document(store, key)
    with naming(key, "compaction"):
        groups = require_list("groups", read_fields(key, body).get("groups"))
        return CompactionPlan(number, tuple(map(_group, groups)))


def create_compaction(store: ObjectStore, plan: CompactionPlan) -> CompactionPlan:
    """Create a plan. Returns the existing plan of that number if another process was faster."""
    document = {"groups": [asdict(group) for group in plan.groups]}
    made = create_document(store, f"{COMPACTED}{plan.number:08x}.plan.json", document)
    return plan if made else read_compaction(store, plan.number)


def is_replaced(store: ObjectStore, number: int, group: int) -> bool:
    """Whether a group is done or given up."""
    key = _key(number, group)
    return any(info.key == key for info in store.list(key))


def replace_group(store: ObjectStore, number: int, group: int, replacement: GroupReplacement) -> bool:
    """Record that a group is done. Returns False if that is recorded already."""
    added = [asdict(file) for file in replacement.added]
    return create_document(store, _key(number, group), {"removed": list(replacement.removed), "added": added})


def _key(number: int, group: int) -> str:
    return f"{COMPACTED}{number:08x}-{group:06d}.json"


def _read_replacement(store: ObjectStore, key: str) -> GroupReplacement:
    body = read_document(store, key)
    with naming(key, "compaction"):
        fields = read_fields(key, body)
        removed = tuple(path_of(path) for path in require_list("removed", fields.get("removed")))
        return GroupReplacement(removed, tuple(file_of(each) for each in require_list("added", fields.get("added"))))


def _group(value: object) -> FileGroup:
    fields = require_fields(value)
    files = tuple(file_of(each) for each in require_list("files", fields.get("files")))
    if not files:
        refuse("files", files)
    return FileGroup(files, path_of(fields.get("path")))


def plan_groups(files: Iterable[ExportedFile], file_bytes: int, newest: int, number: int) -> CompactionPlan:
    """Group files that follow each other in a partition to new ones of up to ``file_bytes``.

    Args:
        files: Files of a table, in the order of their sequences.
        file_bytes: Bytes of a new file, at most. Files of more than three quarters of it stay as they are.
        newest: The newest run of the table.
        number: The number of this compaction. With ``newest`` it makes names that sort after all of ``files``.

    Returns:
        The plan, possibly without groups.
    """
    folders: dict[str, list[list[ExportedFile]]] = {}
    for file in files:
        head, slash, _ = file.path.rpartition("/")
        groups = folders.setdefault(head + slash, [[]])
        if 4 * file.bytes > 3 * file_bytes:
            groups.append([])
            continue
        if sum(held.bytes for held in groups[-1]) + file.bytes > file_bytes:
            groups.append([])
        groups[-1].append(file)
    several = [(folder, group) for folder, groups in folders.items() for group in groups if len(group) > 1]
    named = (
        FileGroup(tuple(group), f"{folder}{newest:08x}-c{number:08x}-{at:06d}.parquet")
        for at, (folder, group) in enumerate(several[:MAX_FILES])
    )
    return CompactionPlan(number, tuple(named))
