"""Tallies: an owner records acknowledged WAL segments as a few numbers for each index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c

if TYPE_CHECKING:
    from litelog.objects.position import Position

MAX_TALLIES = 256
"""How many log segments have their WAL segments counted. A snapshot, which ends the count, is due after a hundred."""


@dataclass(frozen=True, slots=True)
class IndexTally:
    """The durable WAL segments of one index: a few numbers stand for thousands of names."""

    index: int
    count: int
    crc: int
    """CRC-32C of their offsets and sizes, in order."""

    def add(self, offset: int, size: int) -> IndexTally:
        """Return the tally with one more WAL segment, whose object has ``size`` bytes."""
        return IndexTally(self.index, self.count + 1, crc32c(b"%x %d\n" % (offset, size), self.crc))


def add_to_tallies(
    tallies: tuple[IndexTally, ...], position: Position, size: int, snapshot: int | None
) -> tuple[IndexTally, ...]:
    """Return ``tallies`` with an acknowledged WAL segment, without those below index ``snapshot``.

    An index whose first WAL segments an earlier release did not count has no tally.
    """
    kept = tallies if snapshot is None else tuple(tally for tally in tallies if tally.index >= snapshot)
    if position.offset == 0:
        kept = tuple(tally for tally in kept if tally.index < position.index)
        return (*kept, IndexTally(position.index, 0, 0).add(0, size))[-MAX_TALLIES:]
    if kept and kept[-1].index == position.index:
        return (*kept[:-1], kept[-1].add(position.offset, size))
    return kept
