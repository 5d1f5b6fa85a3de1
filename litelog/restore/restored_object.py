"""The result of restoring one object of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litelog.restore.commit_writer import WrittenRun


@dataclass(frozen=True, slots=True)
class RepairedRange:
    """An object that the chosen replica lost, and the source of its bytes."""

    key: str
    """The object's key, or its position; that of the first one if several are missing."""
    reason: str
    file: str | None = None
    """The log segment; None if the object held no bytes of the log."""
    start: int = 0
    """The bytes [start, end) of the log segment."""
    end: int = 0
    replica: str | None = None
    """The URL of the replica that had them; None if no bytes were needed."""
    generation: str | None = None
    """The generation in that replica."""


@dataclass(frozen=True, slots=True)
class RestoredObject:
    """The result for one object of the plan, and for the objects before it that no listing showed."""

    parts: tuple[WrittenRun, ...]
    repaired: tuple[RepairedRange, ...] = ()
    objects: int = 0
    """The number of objects of the chosen replica that were read."""
