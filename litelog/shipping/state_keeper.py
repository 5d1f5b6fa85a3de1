"""Saves a replica's state, at most once a second, from several threads."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litelog.shipping.archive_state import ArchiveState
    from litelog.shipping.archiver import Archiver
    from litelog.shipping.state import Running, StateFolder
    from litelog.system.clock import Clock

SAVE_SECONDS = 1.0
"""The least seconds between two saves of a position. After a crash, the owner adopts WAL segments that its state does
not know: that takes a PUT and a GET each."""


class StateKeeper:
    """Keeps the state of one generation, together with its archive's state."""

    def __init__(self, folder: StateFolder, clock: Clock, state: Running) -> None:
        self._folder = folder
        self._clock = clock
        self._lock = threading.Lock()
        self._archive: Archiver | None = None
        self.state = state
        """The state, with its archive's part as it was read."""
        self._saved: tuple[Running, ArchiveState] | None = None
        self._saved_at = 0.0

    @property
    def newest_snapshot(self) -> int | None:
        """The index of the newest snapshot, as the archive knows it now; None if it is not known."""
        archive = self._archive
        return archive.state.snapshot if archive is not None else None

    @property
    def known(self) -> tuple[Running, ArchiveState | None]:
        """The shipped position, and what is sealed now; None for the latter once another generation begins."""
        state, archive = self.state, self._archive  # in this order: an archive may know more, but never less
        return state, archive.state if archive is not None else None

    def take(self, archive: Archiver) -> None:
        """Save that archive's state, too."""
        with self._lock:
            self._archive = archive

    def release(self) -> None:
        """Save nothing more: the owner writes the state, for another generation."""
        with self._lock:
            self._archive = None

    def save_if_due(self) -> None:
        """Save, if the last save is long enough ago."""
        if self._clock.monotonic() - self._saved_at >= SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Save what changed since the last save. Raises StateError."""
        with self._lock:
            if self._archive is None:
                return
            state = self.state  # read first: an archive may know more than the position, but never less
            archive = self._archive.state
            if (state, archive) == self._saved:
                return
            kept = replace(state, archive=archive)
            if self._saved is not None or kept != self._folder.load():  # a start that changes nothing writes nothing
                self._folder.save(kept)
            self._saved = (state, archive)
            self._saved_at = self._clock.monotonic()
