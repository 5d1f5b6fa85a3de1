"""Saves a replica's state: not too often, and from more than one thread."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from litelog.shipping.archive_state import write_state

if TYPE_CHECKING:
    from litelog.shipping.archive_state import ArchiveState
    from litelog.shipping.archiver import Archiver
    from litelog.shipping.state import ReplicaState, StateFolder
    from litelog.system.clock import Clock

SAVE_SECONDS = 1.0
"""How often positions are saved at most, in seconds. After a crash, positions that were not saved are adopted from the
replica: a put and a GET each."""

_NOTHING = (None, None)


class StateKeeper:
    """Keeps the state of one log and replica, together with its archive's state."""

    def __init__(self, folder: StateFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._lock = threading.Lock()
        self._archive: Archiver | None = None
        self._state: ReplicaState | None = None
        self._saved: tuple[ReplicaState | None, ArchiveState | None] = _NOTHING
        self._saved_at = 0.0
        self._text: tuple[ArchiveState, str] | None = None

    @property
    def state(self) -> ReplicaState | None:
        """The state, with its archive's part as it was read."""
        return self._state

    @state.setter
    def state(self, state: ReplicaState) -> None:
        self._state = state

    @property
    def newest_snapshot(self) -> int | None:
        """The index of the newest snapshot, by the archive's state of now; None if it is not known."""
        archive = self._archive
        return archive.state.snapshot if archive is not None else None

    def take(self, archive: Archiver) -> None:
        """Save that archive's state, too."""
        with self._lock:
            self._archive = archive

    def release(self) -> None:
        """Save nothing until ``take``: the owner writes the state meanwhile."""
        with self._lock:
            self._archive = None

    def save_if_due(self) -> None:
        """Save, if the last save is long enough ago."""
        if self._clock.monotonic() - self._saved_at >= SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Save what changed since the last save. StateError."""
        with self._lock:
            if self._archive is None or self._state is None:
                return
            state = self._state  # read first: an archive may know more than the position, but never less
            archive = self._archive.state
            if (state, archive) == self._saved:
                return
            if self._text is None or self._text[0] is not archive:
                self._text = (archive, write_state(archive))
            kept = replace(state, archive=self._text[1])
            if self._saved != _NOTHING or kept != self._folder.load():  # a start that changes nothing writes nothing
                self._folder.save(kept)
            self._saved = (state, archive)
            self._saved_at = self._clock.monotonic()
