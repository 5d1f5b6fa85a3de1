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
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from litelog.codec.decoding import build
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
    """What is done to a log's folder, in this order."""

    removed: tuple[str, ...]
    """Log segments that are removed, from the last one to the first."""
    placed: tuple[str, ...]
    """Files that are moved there from the folder with the new files."""


def write_steps(folder: str, steps: RepairSteps) -> None:
    """Write down the steps of a repair whose new files and backups are durable. Raises OSError."""
    write_checked(os.path.join(folder, BACKUPS, STEPS), asdict(steps))


def complete_repair(folder: str) -> bool:
    """Carry out the steps that a repair has written down. Return whether there were any.

    Raises:
        SourceError: The file with the steps is damaged.
        OSError: A step failed: it can be tried again.
    """
    root = os.path.join(folder, BACKUPS)
    path = os.path.join(root, STEPS)
    try:
        steps = build(RepairSteps, read_checked(path))
        names = [*steps.removed, *steps.placed]
        if any(os.path.basename(name) != name or name.startswith(".") for name in names):
            raise ValueError("a name in it is a path")
    except FileNotFoundError:
        return False
    except ValueError as error:
        what = (
            f"{path}: cannot be used: {error}; each log segment is as it was, or repaired: remove that file, and repair"
        )
        raise SourceError(what) from error
    for name in steps.removed:
        for other in (*_indexes_of(name), name):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, other))
    for name in steps.placed:
        with suppress(FileNotFoundError):  # it was placed before
            os.rename(os.path.join(root, NEW, name), os.path.join(folder, name))
    sync_folder(folder)
    os.unlink(path)
    sync_folder(root)
    shutil.rmtree(os.path.join(root, NEW), ignore_errors=True)
    return True


def _indexes_of(name: str) -> Iterator[str]:
    """The indexes next to a log segment: another one may get its name."""
    stem, suffix = os.path.splitext(name)
    return (stem + each for each in INDEX_SUFFIXES if each != suffix)
