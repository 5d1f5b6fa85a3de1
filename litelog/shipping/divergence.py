"""Remembers, next to a replica's state, that its log was rewound or rewritten, until a person has dismissed that.

<state folder>/<log>/<replica>/diverged.json    the newest generation that diverged; its owner writes it
<state folder>/<log>/<replica>/dismissed.json   a generation that is no longer a warning; ``litelog dismiss`` writes it
Neither decides what is shipped. A file that cannot be read counts as missing.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from litelog.codec.decoding import build
from litelog.events import fields
from litelog.objects.claim import Relation
from litelog.system.private_files import read_json, write_private

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


class DivergenceRecord:
    """The record of one replica. One thread at a time writes it; any thread reads ``open``."""

    def __init__(self, folder: str) -> None:
        """``folder``: the replica's state folder."""
        self._folder = folder
        self.open = read_divergence(folder)
        """The newest divergence; None if there is none, or it was dismissed."""

    def note(self, claim: Claim, sequence: int | None) -> None:
        """Record the beginning of a generation, unless it does not diverge. ``sequence``: as in ``Divergence``."""
        if claim.relation is not Relation.DIVERGED:
            return
        found = Divergence(claim.generation, claim.predecessor or "", claim.time, claim.reason or "", sequence)
        kept = _read(self._folder)
        if kept is not None and kept.generation == found.generation:
            return  # it was resumed
        self.open = found
        path = os.path.join(self._folder, FILE)
        try:
            write_private(path, json.dumps(asdict(found)).encode(), durable=False)
        except OSError as error:
            extra = fields("state-not-kept", path=path)
            _logger.warning("%s: cannot be kept: %s", path, error.strerror, extra=extra)

    def look(self) -> None:
        """Read whether the divergence was dismissed since. It costs a read only while there is one."""
        found = self.open
        if found is not None and _read_dismissed(self._folder) == found.generation and self.open is found:
            self.open = None


def read_divergence(folder: str) -> Divergence | None:
    """Return the divergence that a state folder records; None if there is none, or it was dismissed."""
    found = _read(folder)
    return None if found is None or _read_dismissed(folder) == found.generation else found


def dismiss(folder: str) -> Divergence | None:
    """Dismiss the divergence that a state folder records, durably. Return it; None if there is none. OSError."""
    found = read_divergence(folder)
    if found is not None:
        body = json.dumps({"generation": found.generation}).encode()
        write_private(os.path.join(folder, DISMISSED_FILE), body)
    return found


def _read(folder: str) -> Divergence | None:
    try:
        return build(Divergence, read_json(os.path.join(folder, FILE)))
    except (OSError, ValueError):
        return None


def _read_dismissed(folder: str) -> str | None:
    try:
        return str(read_json(os.path.join(folder, DISMISSED_FILE))["generation"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
