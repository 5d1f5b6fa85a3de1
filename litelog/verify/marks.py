"""The marks in a sealed segment's footer, compared with when the WAL segments beside it say that they were shipped."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, StoreError
from litelog.objects.position import generation

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.objects.frame_table import Marks
    from litelog.objects.position import Generation
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.verify.sealed_read import SealedReader


class MarkChecks:
    """Judges the marks of one generation's sealed segments by its WAL segments, which come in order."""

    def __init__(
        self,
        name: Generation,
        known: Callable[[int], SnapshotEntry | None],
        reader: SealedReader,
        against: Callable[[SnapshotEntry, str], None],
    ) -> None:
        """``known``: what is sealed of a log segment, by its index. ``against`` is told of what does not fit."""
        self._name = name
        self._known = known
        self._reader = reader
        self._against = against
        self._index = -1
        self._entry: SnapshotEntry | None = None
        self._marks: Marks | None = None

    def judge(self, key: str, header: WalHeader) -> None:
        """Compare a WAL segment's time with the mark for its bytes, where they are sealed, too.

        Exact marks have one for each WAL segment. Others may only say that bytes were shipped later than they were:
        a restore to a time would else bring bytes that were not shipped by then.
        """
        if not header.length:
            return
        if header.index != self._index:
            self._open(header.index)
        if self._marks is None or self._entry is None:
            return
        at = bisect_right(self._marks.offsets, header.offset)
        if at == len(self._marks.offsets):
            return  # behind its end: the last one's length tells
        end, time = self._marks.offsets[at], self._marks.times[at]
        if (self._marks.exact and (end, time) != (header.end, header.shipped)) or time < header.shipped:
            what = f"marks bytes {header.offset} to {end} as shipped at {time}; {key} holds those to {header.end}"
            self._against(self._entry, f"{what}, shipped at {header.shipped}")

    def _open(self, index: int) -> None:
        """Read the marks of an index; one footer is held at a time. What cannot be read is named by who judges that."""
        self._index, self._marks = index, None
        self._entry = entry = self._known(index)
        if entry is None or (entry.generation, entry.sealed_index) != (self._name, index):
            return
        try:
            self._marks = self._reader.footer(generation(entry.generation), index).marks
        except (CorruptionError, StoreError):
            return
