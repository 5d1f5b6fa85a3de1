"""When the bytes of log segments were shipped, as it happens: a few bytes for each WAL segment, in memory."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from litelog.objects.frame_table import Marks

if TYPE_CHECKING:
    from litelog.objects.wal_segment import WalHeader

NO_MARKS = Marks((), (), exact=False)


class MarkLog:
    """The marks of the log segments that are not sealed yet."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[array[int], array[int], bool]] = {}

    def add(self, header: WalHeader) -> None:
        """Take note of a WAL segment that is durable. Those before the first that is told of an index are lost."""
        if header.offset == 0 or header.index not in self._kept:
            self._kept[header.index] = (array("q"), array("q"), header.offset == 0)
        offsets, times, _ = self._kept[header.index]
        if header.length:
            offsets.append(header.end)
            times.append(header.shipped)

    def of(self, index: int) -> Marks:
        """The marks of an index."""
        if index not in self._kept:
            return NO_MARKS
        offsets, times, exact = self._kept[index]
        return Marks(tuple(offsets), tuple(times), exact)

    def drop(self, index: int) -> None:
        """Forget those of an index, which is sealed."""
        self._kept.pop(index, None)
