"""Finds the fragments of a journal as its brokers persist them, in the journal's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import NothingToRestoreError
from litelog.fragments.cover import find_cover, list_fragments

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.fragments.cover import Span
    from litelog.stores.object_store import ObjectStore

POLL_SECONDS = 2.0
"""Pause between two listings. Brokers persist a fragment after minutes, or once it is large."""

GAP_SECONDS = 60.0
"""How long bytes may be missing before a fragment that is there. Several brokers persist fragments, so a later one may
appear first."""


class JournalFollower:
    """The spans of a journal from an offset on, as their fragments appear. For one thread."""

    def __init__(
        self, store: ObjectStore, monotonic: Callable[[], float], at: int | None = None, patience: float = 0.0
    ) -> None:
        """Begin at the offset ``at``; None: at the first byte that a fragment holds.

        ``monotonic``: seconds from an arbitrary point. ``patience``: for how many seconds what is missing at the first
        listing is waited for.
        """
        self._store, self._monotonic = store, monotonic
        self.at = at
        """The offset after all spans that were found."""
        self._missing: tuple[int, float] | None = None
        """The offset at which bytes are missing, and until when they are waited for."""
        self._patience = patience

    def look(self) -> list[Span]:
        """List the fragments once, and return the spans that follow ``at``.

        They end before missing bytes, unless the wait for these is over. Then the spans leave a gap there.
        Raises ConfigError and StoreError as ``list_fragments``.
        """
        try:
            cover = find_cover(list_fragments(self._store), self.at)
        except NothingToRestoreError:
            return []
        found: list[Span] = []
        for span in cover:
            if self.at is not None and span.start > self.at and self._waits_for(self.at):
                break
            found.append(span)
            self.at = span.stop
        self._patience = GAP_SECONDS
        return found

    def _waits_for(self, at: int) -> bool:
        now = self._monotonic()
        if self._missing is None or self._missing[0] != at:
            self._missing = at, now + self._patience
        return now < self._missing[1]
