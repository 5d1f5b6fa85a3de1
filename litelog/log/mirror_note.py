"""The note in the folder of a mirror: which log it is a copy of. No writer appends to a folder with this note."""

from __future__ import annotations

import os

from litelog.dataclass import dataclass
from litelog.system.checked_files import NoteFile

MIRROR_NAME = ".mirror.json"
"""The name of the note, which is that of no log segment."""


@dataclass(frozen=True, slots=True)
class MirrorNote:
    """The source of a mirror."""

    source: str
    """The URL of the log, without credentials."""
    format: str
    pattern: str | None
    """Which names are log segments, for formats that need a pattern."""
    generation: str
    """The generation in which all that the mirror holds was compared with the source."""


def mirror_note(folder: str) -> NoteFile[MirrorNote]:
    """The note in a folder."""
    loss = "the mirror is compared with its source again"
    return NoteFile(os.path.join(folder, MIRROR_NAME), MirrorNote, loss)


def is_mirror(folder: str) -> bool:
    """Whether a folder is a mirror, also if its note is damaged."""
    return os.path.lexists(os.path.join(folder, MIRROR_NAME))
