"""MirrorPositions: where the mirrors of a served log are durable, as their requests state it.

Specified in litelog/live/README.md#mirrors.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.log.mirror_registry import MOST_MIRRORS, RECORD_SECONDS, KnownMirror, MirrorRegistry
from litelog.system.change_signal import ChangeSignal

if TYPE_CHECKING:
    from litelog.objects.position import Position


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """One mirror, at one time."""

    mirror: str
    """The name that it gives itself."""
    position: str
    """The end of what is durable there."""
    next: int | None
    """The sequence after the last record that is durable there; None if that is not known."""
    lag_seconds: float
    """How long it may have lacked something; 0 while it has all that is durable at the source."""
    seen_seconds: float
    """How long ago its last request began."""


@dataclass(frozen=True, slots=True)
class MirrorPlace:
    """The position that a mirror's request states, and what the source knows about it."""

    position: Position
    next: int | None
    """The sequence after the last record before it; None if it is not known."""
    history: int
    """The history of the source's buffer at that time."""
    is_current: bool
    """Whether it is the end of what is durable at the source."""


@dataclass(frozen=True, slots=True)
class _Mirror:
    place: MirrorPlace
    seen: float
    current: float
    """When it was last known to lack nothing, or was first seen."""


class MirrorPositions:
    """The mirrors of one log. Any thread may use it. All times are monotonic seconds."""

    def __init__(self, registry: MirrorRegistry) -> None:
        """``registry``: where truncation reads which log segments the mirrors lack."""
        self._registry = registry
        self._lock = threading.Lock()
        self._mirrors: dict[str, _Mirror] = {}
        self._recording = threading.Lock()
        self._recorded: dict[str, tuple[str, int, float]] = {}
        """By mirror: the generation and index of the place that was recorded last, and when that was."""
        self._failures: dict[str, str] = {}
        """By mirror: why its place could not be recorded, as long as that lasts."""
        self.changes = ChangeSignal()
        """Reports each place that is noted."""

    def note(self, name: str, place: MirrorPlace, now: float) -> None:
        """Note that a mirror is durable up to ``place``."""
        with self._lock:
            known = self._mirrors.pop(name, None)
            is_current = known is None or place.is_current
            self._mirrors[name] = _Mirror(place, now, now if known is None or is_current else known.current)
            if len(self._mirrors) > MOST_MIRRORS:
                self._mirrors.pop(next(iter(self._mirrors)))
        self.changes.notify()

    def is_due(self, name: str, position: Position, now: float) -> bool:
        """Whether the registry should record that the mirror is at ``position``: it is in another log segment than
        before, or that was a while ago."""
        recorded = self._recorded.get(name)
        if recorded is None or recorded[:2] != (position.generation, position.index):
            return True
        return now - recorded[2] >= RECORD_SECONDS

    def record(self, name: str, position: Position, file: str, seen: int, now: float) -> None:
        """Record durably in which log segment the mirror's end lies. ``seen``: microseconds since 1970. Raises
        MirrorRegistryError."""
        with self._recording:
            self._registry.put(KnownMirror(name, file, seen))
            self._recorded[name] = (str(position.generation), position.index, now)
            self._failures.pop(name, None)
            while len(self._recorded) > MOST_MIRRORS:
                self._recorded.pop(next(iter(self._recorded)))

    def fail_to_record(self, name: str, cause: str) -> bool:
        """Note why a mirror's place could not be recorded. Returns whether that is worth a message: it is another
        cause than before, or the place was recorded since."""
        with self._recording:
            is_new = self._failures.pop(name, None) != cause
            self._failures[name] = cause
            while len(self._failures) > MOST_MIRRORS:
                self._failures.pop(next(iter(self._failures)))
            return is_new

    def find_next(self, history: int) -> int | None:
        """The highest sequence before which a mirror has all records durably, in the history that the buffer has now.
        None if no mirror is known there."""
        with self._lock:
            places = [each.place for each in self._mirrors.values() if each.place.history == history]
        return max((place.next for place in places if place.next is not None), default=None)

    def status(self, end: Position | None, now: float) -> list[MirrorStatus]:
        """Return the mirrors by name. ``end``: the end of what is durable at the source now; None if unknown."""
        with self._lock:
            mirrors = sorted(self._mirrors.items())
        return [
            MirrorStatus(
                name,
                str(each.place.position),
                each.place.next,
                0.0 if each.place.position == end else round(now - each.current, 3),
                round(now - each.seen, 3),
            )
            for name, each in mirrors
        ]
