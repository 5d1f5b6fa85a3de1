"""Reading only what transactions committed: records of aborted transactions are left out, and so are those after the
first open one.

Only a later marker shows whether a transaction was committed. So records are held back until no transaction before them
is open: up to the last stable offset, as Kafka's consumers read with ``read_committed``.

Specified in litelog/formats/README.md#transactions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from litelog.dataclass import dataclass
from litelog.errors import LitelogError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from litelog.formats.columns import Columns

    Int64s = npt.NDArray[np.int64]

MAX_HELD_BYTES = 256 << 20
"""The most bytes of log that are held back while a transaction is open."""

NO_MARKER, ABORT, COMMIT, OTHER_MARKER = -1, 0, 1, 99
"""The values of ``MARKER``: NO_MARKER, except for a control record, which has its type."""

MARKER, PRODUCER = "marker", "transactionalProducer"
"""The columns that ``KafkaFormat`` has with ``markers``. ``PRODUCER`` is -1 outside of transactions."""


@dataclass(frozen=True, slots=True)
class _Aborted:
    """A producer's aborted transaction: its records lie from ``first`` to ``marker``."""

    producer: int
    first: int
    marker: int


class CommittedRecords:
    """Removes the records of aborted transactions from a stream, and holds back those that are not decided yet."""

    def __init__(self, max_held_bytes: int = MAX_HELD_BYTES) -> None:
        self._most = max_held_bytes
        self._held: list[Columns] = []
        self._open: dict[int, int] = {}
        """The first offset of each open transaction, by its producer."""
        self._aborted: list[_Aborted] = []

    def add(self, columns: Columns) -> Iterator[Columns]:
        """Take the next records, of a format with markers, and yield those that are decided now, without markers.

        Raises LitelogError if records of more than ``max_held_bytes`` are held back.
        """
        self._note(columns)
        self._held.append(columns)
        stable = self.first_open
        while self._held and (stable is None or int(self._held[0].sequences[0]) < stable):
            first = self._held[0]
            number = len(first) if stable is None else first.find(stable)
            if number < len(first):
                self._held[0] = first.slice(number, len(first))
            else:
                del self._held[0]
            decided = self._without_aborted(first.slice(0, number))
            if len(decided):
                yield decided
        self._aborted = [each for each in self._aborted if self._held and each.marker > self._held[0].sequences[0]]
        if sum(each.data.nbytes for each in self._held) > self._most:
            raise LitelogError(
                f"the transaction that begins at offset {stable} is still open after {self._most} bytes of records; "
                f"read with the isolation read_uncommitted, or end before it"
            )

    def follow(self, columns: Columns) -> None:
        """Only note where transactions begin and end. For a pass over the log without ``add``."""
        self._note(columns)
        self._aborted.clear()

    @property
    def first_open(self) -> int | None:
        """The last stable offset: the first one of the transactions that are open; None if none is."""
        return min(self._open.values(), default=None)

    def _note(self, columns: Columns) -> None:
        """Note where transactions begin and end."""
        markers, producers = _numbers(columns, MARKER), _numbers(columns, PRODUCER)
        at = 0
        for number in [*np.flatnonzero((markers == ABORT) | (markers == COMMIT)).tolist(), len(columns)]:
            found, firsts = np.unique(producers[at:number], return_index=True)
            for producer, first in zip(found.tolist(), firsts.tolist(), strict=True):
                if producer >= 0:
                    self._open.setdefault(producer, int(columns.sequences[at + first]))
            at = number + 1
            if number < len(columns):
                producer, sequence = int(producers[number]), int(columns.sequences[number])
                begun = self._open.pop(producer, None)
                if begun is not None and markers[number] == ABORT:
                    self._aborted.append(_Aborted(producer, begun, sequence))

    def _without_aborted(self, columns: Columns) -> Columns:
        """The records that are neither markers nor of aborted transactions, with the columns that the format states."""
        producers = _numbers(columns, PRODUCER)
        keep = _numbers(columns, MARKER) == NO_MARKER
        for each in self._aborted:
            inside = (columns.sequences >= each.first) & (columns.sequences < each.marker)
            keep &= ~(inside & (producers == each.producer))
        kept = columns if keep.all() else columns.take(keep)
        extra = {name: column for name, column in (kept.extra or {}).items() if name not in (MARKER, PRODUCER)}
        return replace(kept, extra=extra)


def _numbers(columns: Columns, name: str) -> Int64s:
    """A column that ``KafkaFormat`` adds."""
    return np.array((columns.extra or {})[name].to_list(), np.int64)
