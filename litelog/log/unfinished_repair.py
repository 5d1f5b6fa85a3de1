"""Completes a repair of a log that was killed while it put its files in place.

A repair writes all new files to ``.damaged/new``, and keeps what it replaces. Then it writes down its steps, in one
small file. Until that file is there, nothing has changed. Once it is there, the steps are carried out to the end: by
the repair itself, by the next one, or by the log's writer when it starts. Each step may be repeated.

The caller holds the writer's lock.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from litelog.codec.decoding import build
from litelog.dataclass import dataclass
from litelog.errors import SourceError
from litelog.formats.capabilities import INDEX_SUFFIXES
from litelog.system.checked_files import read_checked, write_checked
from litelog.system.files import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKUPS = ".damaged"
"""The folder in the log's folder that holds a folder of replaced files for each repair."""

NEW = "new"
"""The folder in it with the new files."""

STEPS = "steps.json"
"""The file in it with the steps."""


@dataclass(frozen=True, slots=True)
class RepairSteps:
    """The changes to a log's folder, in this order."""

    removed: tuple[str, ...]
    """Log segments that are removed, from the last one to the first."""
    placed: tuple[str, ...]
    """Files that are moved there from the folder with the new files."""
    sizes: tuple[int, ...] = ()
    """The size of each of these files in the log's folder when the steps were written down; -1 if there was none."""

    @property
    def names(self) -> tuple[str, ...]:
        """All files of the log that the steps change."""
        return (*self.removed, *self.placed)


def write_steps(folder: str, steps: RepairSteps) -> None:
    """Write down the steps of a repair whose new files and backups are durable. Raises OSError."""
    sizes = tuple(_size(os.path.join(folder, name)) for name in steps.names)
    write_checked(os.path.join(folder, BACKUPS, STEPS), asdict(replace(steps, sizes=sizes)))


def read_steps(folder: str) -> RepairSteps | None:
    """The steps that a repair has written down, and not all carried out; None if there are none.

    Raises:
        SourceError: The file with the steps is damaged, or a log segment has changed since.
        OSError: The file cannot be read.
    """
    path = os.path.join(folder, BACKUPS, STEPS)
    try:
        steps = build(RepairSteps, read_checked(path))
        if any(os.path.basename(name) != name or name.startswith(".") for name in steps.names):
            raise ValueError("a name in it is a path")
        _require_unchanged(folder, steps)
    except FileNotFoundError:
        return None
    except ValueError as error:
        what = (
            f"{path}: cannot be used: {error}; each log segment is as it was, or repaired: remove that file, and repair"
        )
        raise SourceError(what) from error
    return steps


def _require_unchanged(folder: str, steps: RepairSteps) -> None:
    """Raise ValueError if a file that is still to be changed has another size than before."""
    if len(steps.sizes) != len(steps.names):
        raise ValueError("it has not one size for each name")
    for name, before in zip(steps.names, steps.sizes, strict=True):
        found = _size(os.path.join(folder, name))
        is_carried_out = name in steps.placed and _size(os.path.join(folder, BACKUPS, NEW, name)) < 0
        if not is_carried_out and found != before and not (name in steps.removed and found < 0):
            raise ValueError(f"{name} has changed since: {before} bytes then, {found} now")


def _size(path: str) -> int:
    """The size of a file in bytes; -1 if there is none. Raises OSError."""
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except FileNotFoundError:
        return -1


def remove_steps(folder: str) -> None:
    """Remove the steps of a repair, if there are any, so that no program carries them out. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, BACKUPS, STEPS))
        sync_folder(os.path.join(folder, BACKUPS))


def complete_repair(folder: str) -> bool:
    """Carry out the steps that a repair has written down. Return whether there were any.

    Raises:
        SourceError: As ``read_steps``.
        OSError: A step failed: it can be tried again.
    """
    root = os.path.join(folder, BACKUPS)
    steps = read_steps(folder)
    if steps is None:
        return False
    for name in steps.removed:
        for other in (*_indexes_of(name), name):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, other))
    for name in steps.placed:
        with suppress(FileNotFoundError):  # it was placed before
            os.rename(os.path.join(root, NEW, name), os.path.join(folder, name))
    sync_folder(folder)
    os.unlink(os.path.join(root, STEPS))
    sync_folder(root)
    shutil.rmtree(os.path.join(root, NEW), ignore_errors=True)
    return True


def _indexes_of(name: str) -> Iterator[str]:
    """The indexes next to a log segment: another one may get its name."""
    stem, suffix = os.path.splitext(name)
    return (stem + each for each in INDEX_SUFFIXES if each != suffix)
