"""Records, next to a replica's state, the error with which shipping ended for good, until shipping succeeds again.

<state folder>/<log>/<replica>/ended.json    its owner writes it, and removes it after the next sync that succeeds
It does not decide what is shipped. Without it, only the process that met the error would know of it.
"""

from __future__ import annotations

import logging
import os
from enum import StrEnum
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, FencedError, SourceSyncError, UnknownVersionError
from litelog.events import fields
from litelog.system.checked_files import NoteFile

if TYPE_CHECKING:
    from litelog.errors import LitelogError
    from litelog.system.clock import Clock

FILE = "ended.json"

_logger = logging.getLogger(__name__)


class EndKind(StrEnum):
    """How shipping ended for good, so that only a person can continue it."""

    FENCED = "fenced"
    """Another owner has the replica."""
    FROZEN = "frozen"
    """Bytes are damaged, or cannot be made durable."""


def find_end(error: LitelogError) -> EndKind | None:
    """Return how shipping ends with ``error``; None if it does not."""
    if isinstance(error, FencedError):
        return EndKind.FENCED
    if isinstance(error, (CorruptionError, UnknownVersionError, SourceSyncError)):
        return EndKind.FROZEN
    return None


@dataclass(frozen=True, slots=True)
class FinalError:
    """The error with which shipping ended."""

    kind: str
    """An ``EndKind``."""
    message: str
    time: int
    """When shipping first ended in this way, in microseconds since 1970."""


class FinalErrorRecord:
    """The record of one replica. One thread at a time uses it."""

    def __init__(self, folder: str, clock: Clock) -> None:
        """``folder``: the replica's state folder."""
        self._file = _file(folder)
        self._clock = clock
        self._found = self._file.read()

    def note(self, error: LitelogError) -> None:
        """Record ``error``, durably, if shipping ends with it. A later error of the same kind keeps the time."""
        kind = find_end(error)
        if kind is None:
            return
        before = self._found
        time = before.time if before is not None and before.kind == kind else self._clock.now()
        found = FinalError(kind.value, str(error), time)
        if found == before:
            return
        self._found = found
        try:
            self._file.write(found)
        except OSError as failure:
            self._warn(failure)

    def clear(self) -> None:
        """Remove the record, durably, if there is one: shipping succeeded."""
        if self._found is None:
            return
        self._found = None
        try:
            self._file.remove()
        except OSError as failure:
            self._warn(failure)

    def _warn(self, failure: OSError) -> None:
        extra = fields("state-not-kept", path=self._file.path)
        _logger.warning("%s: cannot be kept: %s", self._file.path, failure.strerror, extra=extra)


def read_final_error(folder: str) -> FinalError | None:
    """Return the error that a state folder records; None if there is none. A kind that only a newer litelog knows
    counts as none."""
    found = _file(folder).read()
    return found if found is not None and found.kind in set(EndKind) else None


def remove_final_error(folder: str) -> None:
    """Remove what a state folder records, durably. Raises OSError."""
    _file(folder).remove()


def _file(folder: str) -> NoteFile[FinalError]:
    return NoteFile(os.path.join(folder, FILE), FinalError, "the status of a stopped daemon does not say why it ended")
