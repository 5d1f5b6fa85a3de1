"""The objects of a replica as retention sees them: what each is, and why it stays."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from litelog.objects.layout import sealed_key, snapshot_key, wal_key

if TYPE_CHECKING:
    from litelog.objects.position import Generation, Position


class Kind(StrEnum):
    """What an object is."""

    SNAPSHOT = "snapshot"
    SEALED = "sealed segment"
    WAL = "WAL segment"


class Why(StrEnum):
    """Why an object stays."""

    NEWEST = "the newest snapshot, or named by it"
    WINDOW = "a point that is kept needs it"
    LAST = "the last WAL segment of its generation, or the one that ended it"
    UNKNOWN = "a snapshot that cannot be read may name it"
    OTHERS = "another isolated owner's snapshot names it, or may"


class Removal(NamedTuple):
    """An object that goes. ``number`` is its index, ``position`` a WAL segment's."""

    kind: Kind
    size: int
    generation: Generation
    number: int
    position: Position | None = None

    @property
    def key(self) -> str:
        """The object's."""
        if self.position is not None:
            return wal_key(self.position)
        return (snapshot_key if self.kind is Kind.SNAPSHOT else sealed_key)(self.generation, self.number)
