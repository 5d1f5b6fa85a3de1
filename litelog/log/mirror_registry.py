"""Records, next to the daemon's state, which mirrors a log has, and which log segments each of them still lacks.

<state folder>/<log>/mirrors.json

The daemon that serves the log writes it, so that truncation waits for the mirrors after a restart, too. A file that
cannot be read counts as "no mirrors": they come again, and replicas hold all that is truncated.
"""

from __future__ import annotations

import os
from dataclasses import asdict

from litelog.dataclass import dataclass
from litelog.errors import LogError
from litelog.system.checked_files import NoteFile, write_checked
from litelog.system.private_files import make_private

MOST_MIRRORS = 64
"""How many mirrors of one log are recorded: those that were seen last."""

RECORD_SECONDS = 60.0
"""How often the daemon records at least that a mirror was seen."""

_FILE = "mirrors.json"


class MirrorRegistryError(LogError):
    """The record of a log's mirrors cannot be written."""


@dataclass(frozen=True, slots=True)
class KnownMirror:
    """A mirror, as its last request stated where it is durable."""

    name: str
    """The name that it gives itself."""
    file: str
    """The log segment in which its durable end lies: it holds all log segments before that one. Empty if it lacks more
    than the log's folder holds."""
    seen: int
    """When it stated that, in microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class _Mirrors:
    mirrors: tuple[KnownMirror, ...]


class MirrorRegistry:
    """The mirrors of one log. One thread at a time writes; any thread and process reads."""

    def __init__(self, folder: str) -> None:
        """``folder``: the log's state folder."""
        self._folder = folder
        self._path = os.path.join(folder, _FILE)
        self._note = NoteFile(self._path, _Mirrors, "truncation waits for no mirror until its next request")

    def read(self) -> tuple[KnownMirror, ...]:
        """Return the mirrors; the most recently seen mirror is last."""
        found = self._note.read()
        return () if found is None else found.mirrors

    def put(self, mirror: KnownMirror) -> None:
        """Record durably where a mirror is. Raises MirrorRegistryError."""
        others = [each for each in self.read() if each.name != mirror.name]
        mirrors = (*others, mirror)[-MOST_MIRRORS:]
        try:
            make_private(self._folder)
            write_checked(self._path, asdict(_Mirrors(mirrors)))
        except OSError as error:
            raise MirrorRegistryError(f"{self._path}: cannot be written: {error.strerror}") from error
