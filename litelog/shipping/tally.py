"""Tallies: an owner remembers acknowledged WAL segments as a few numbers for each index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from litelog.codec.checksum import crc32c

if TYPE_CHECKING:
    from litelog.objects.position import Position

MAX_TALLIES = 256
"""How many log segments' WAL segments are counted. A snapshot, which ends their counting, is due after a hundred."""


@dataclass(frozen=True, slots=True)
class IndexTally:
    """The WAL segments of one index that are durable: what one line of state knows of thousands of names."""

    index: int
    count: int
    crc: int
    """CRC-32C of their offsets and sizes, in order."""

    def add(self, offset: int, size: int) -> IndexTally:
        """With one more, of ``size`` bytes as an object."""
        return IndexTally(self.index, self.count + 1, crc32c(b"%x %d\n" % (offset, size), self.crc))


def add_to_tallies(
    tallies: tuple[IndexTally, ...], position: Position, size: int, snapshot: int | None
) -> tuple[IndexTally, ...]:
    """``tallies`` with a WAL segment that was acknowledged, without those below index ``snapshot``.

    An index whose first WAL segments were not counted, by an earlier release, has no tally.
    """
    kept = tallies if snapshot is None else tuple(tally for tally in tallies if tally.index >= snapshot)
    if position.offset == 0:
        kept = tuple(tally for tally in kept if tally.index < position.index)
        return (*kept, IndexTally(position.index, 0, 0).add(0, size))[-MAX_TALLIES:]
    if kept and kept[-1].index == position.index:
        return (*kept[:-1], kept[-1].add(position.offset, size))
    return kept
