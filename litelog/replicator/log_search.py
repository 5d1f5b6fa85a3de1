"""When the folders that contain logs are searched: at intervals, soon after an event, and again after failures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litelog.config import Config
    from litelog.replicator.discovery import LogDiscovery
    from litelog.replicator.run_state import RunState
    from litelog.system.inotify import Watcher

RETRY_SECONDS = 5.0
"""How many seconds pass before opening is retried, if no folder is watched."""

SEARCH_SPACING = 0.1
"""The least seconds between two searches for logs, no matter how many events arrive."""


class LogSearch:
    """Schedules the searches, and watches the folders. Everything except ``search`` is called under the run state's
    lock; ``search`` runs in one thread at a time."""

    def __init__(self, run_state: RunState, watcher: Watcher) -> None:
        self._run_state = run_state
        self._watcher = watcher
        self._due = 0.0
        self._running = False
        self._searched_at = 0.0
        self._event_pending = False
        """Whether an event came from a folder since the last search began."""
        self._hint = self._see_hint  # one object: it identifies a watch

    def begin(self, now: float) -> bool:
        """Begin a search if one is due, and none is running. Return whether it is to run now."""
        if self._running or now < self._due:
            return False
        self._running = True
        return True

    @property
    def due(self) -> float:
        """When to ``begin`` the next search, in monotonic seconds; infinity while one is running."""
        return math.inf if self._running else self._due

    def search(self, discovery: LogDiscovery) -> tuple[bool, bool]:
        """Search for logs, and again if a folder was found that was not watched during its search. Return whether the
        logs have changed, and whether events report all further changes."""
        self._event_pending = False
        found, watched = False, True
        armed: set[str] | None = None
        while armed is None or not armed.issuperset(discovery.watched_folders()):
            armed = set(discovery.watched_folders())
            for folder in armed:
                watched = self._watcher.arm(folder, self._hint) and watched
            found = discovery.look(all_of_them=False) or found
        return found, watched

    def end(self, begun: float, config: Config, *, watched: bool) -> None:
        """Schedule the search after the one that began at ``begun``."""
        self._searched_at = begun
        intervals = [folder.poll_interval for folder in config.folders if folder.watch]
        spacing = (2 if watched else 1) * min(intervals, default=RETRY_SECONDS)
        self._due = begun + (SEARCH_SPACING if self._event_pending else spacing)
        self._running = False

    def _see_hint(self) -> None:
        """Something changed in a folder that contains logs."""
        with self._run_state.changed:
            self._event_pending = True
            self._due = min(self._due, self._searched_at + SEARCH_SPACING)
            self._run_state.wake_by(self._due)
