"""MirrorPositions: where the mirrors of a served log are durable, as their requests state it.

Specified in litelog/live/README.md#wal-segments.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litelog.objects.position import Position

MAX_MIRRORS = 64
"""How many mirrors of one log are remembered: those that were seen last."""


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """One mirror, at one time."""

    mirror: str
    """The name that it gives itself."""
    position: str
    """The end of what is durable there."""
    lag_seconds: float
    """How long it may have lacked something; 0 while it has all that is durable at the source."""
    seen_seconds: float
    """How long ago its last request began."""


@dataclass(frozen=True, slots=True)
class _Mirror:
    position: Position
    seen: float
    current: float
    """When it was last known to lack nothing, or was first seen."""


class MirrorPositions:
    """The mirrors of one log. Any thread may use it. All times are monotonic seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mirrors: dict[str, _Mirror] = {}

    def note(self, name: str, position: Position, end: Position | None, now: float) -> None:
        """Note that a mirror is durable up to ``position``. ``end``: the end of what is durable at the source."""
        with self._lock:
            known = self._mirrors.pop(name, None)
            is_current = known is None or position == end
            self._mirrors[name] = _Mirror(position, now, now if known is None or is_current else known.current)
            if len(self._mirrors) > MAX_MIRRORS:
                self._mirrors.pop(next(iter(self._mirrors)))

    def status(self, end: Position | None, now: float) -> list[MirrorStatus]:
        """Return the mirrors by name. ``end``: the end of what is durable at the source now; None if unknown."""
        with self._lock:
            mirrors = sorted(self._mirrors.items())
        return [
            MirrorStatus(
                name,
                str(each.position),
                0.0 if each.position == end else round(now - each.current, 3),
                round(now - each.seen, 3),
            )
            for name, each in mirrors
        ]
