"""Records, next to a replica's state, that its log was rewound or rewritten, until a person dismisses that.

<state folder>/<log>/<replica>/diverged.json    the newest generation that diverged; its owner writes it
<state folder>/<log>/<replica>/dismissed.json   a generation whose warning a person has dismissed; ``litelog dismiss``
writes it Neither decides what is shipped. A file that cannot be read counts as missing, and is logged.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.events import fields
from litelog.objects.claim import Relation
from litelog.system.checked_files import NoteFile

if TYPE_CHECKING:
    from litelog.objects.claim import Claim

FILE = "diverged.json"
DISMISSED_FILE = "dismissed.json"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Divergence:
    """A generation whose log no longer holds what its predecessor had shipped."""

    generation: str
    predecessor: str
    """It still holds what was shipped, until retention deletes it. Empty if it is not known."""
    time: int
    """When the generation was claimed, in microseconds since 1970."""
    reason: str
    sequence: int | None = None
    """The sequence after the last record that was acknowledged before; None if it is not known."""


@dataclass(frozen=True, slots=True)
class _Dismissal:
    generation: str


class DivergenceRecord:
    """The record of one replica. One thread at a time writes it; any thread reads ``open``."""

    def __init__(self, folder: str) -> None:
        """``folder``: the replica's state folder."""
        self._file, self._dismissed = _found_file(folder), _dismissed_file(folder)
        self.open = _read_open(self._file, self._dismissed)
        """The newest divergence; None if there is none, or it was dismissed."""

    def note(self, claim: Claim, sequence: int | None, *, is_usual: bool = False) -> None:
        """Record the beginning of a generation, unless it does not diverge.

        Args:
            claim: The generation's claim.
            sequence: As in ``Divergence``.
            is_usual: The log's writer rewrites its log regularly and loses nothing, so litelog does not warn.
        """
        if claim.relation is not Relation.DIVERGED:
            return
        found = Divergence(claim.generation, claim.predecessor or "", claim.time, claim.reason or "", sequence)
        kept = self._file.read()
        if kept is not None and kept.generation == found.generation:
            return  # it was resumed
        self.open = None if is_usual else found
        try:
            if is_usual:
                self._dismissed.write(_Dismissal(found.generation))
            self._file.write(found)
        except OSError as error:
            extra = fields("state-not-kept", path=self._file.path)
            _logger.warning("%s: cannot be kept: %s", self._file.path, error.strerror, extra=extra)

    def look(self) -> None:
        """Read whether the divergence was dismissed since. It costs a read only while there is one."""
        found = self.open
        if found is not None and _is_dismissed(found, self._dismissed) and self.open is found:
            self.open = None


def read_divergence(folder: str) -> Divergence | None:
    """Return the divergence that a state folder records; None if there is none, or it was dismissed."""
    return _read_open(_found_file(folder), _dismissed_file(folder))


def dismiss(folder: str) -> Divergence | None:
    """Dismiss the divergence that a state folder records, durably. Return it; None if there is none. Raises OSError."""
    found = read_divergence(folder)
    if found is not None:
        _dismissed_file(folder).write(_Dismissal(found.generation))
    return found


def _found_file(folder: str) -> NoteFile[Divergence]:
    return NoteFile(os.path.join(folder, FILE), Divergence, "the log counts as never rewound or rewritten")


def _dismissed_file(folder: str) -> NoteFile[_Dismissal]:
    return NoteFile(os.path.join(folder, DISMISSED_FILE), _Dismissal, "no warning counts as dismissed")


def _read_open(file: NoteFile[Divergence], dismissed: NoteFile[_Dismissal]) -> Divergence | None:
    found = file.read()
    return None if found is None or _is_dismissed(found, dismissed) else found


def _is_dismissed(found: Divergence, dismissed: NoteFile[_Dismissal]) -> bool:
    last = dismissed.read()
    return last is not None and last.generation == found.generation
