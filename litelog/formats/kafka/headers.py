"""The headers of Kafka's records, as a column: found for all records at once, and copied on request.

header: varint length of the key (at least 0) | key | varint length of the value (-1 null) | value
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.dataclass import dataclass
from litelog.formats.extra_columns import ColumnType
from litelog.formats.kafka.varints import LONGEST, NULL, Varints

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow

    Int64s = npt.NDArray[np.int64]

MAX_HEADERS = 1 << 16
"""The most headers of one record. Kafka itself has no limit."""

_ZERO = bytes(8)


@dataclass(frozen=True, slots=True)
class HeadersColumn:
    """The headers of n records, by their places in ``data``."""

    data: memoryview
    firsts: Int64s
    """The number of each record's first header among all headers; length n."""
    counts: Int64s
    """How many headers each record has; length n."""
    key_starts: Int64s
    key_lengths: Int64s
    value_starts: Int64s
    value_lengths: Int64s
    """-1 for null."""

    @classmethod
    def empty(cls, count: int) -> HeadersColumn:
        """The column of ``count`` records without headers."""
        none, zeros = np.empty(0, np.int64), np.ndarray((count,), np.int64, _ZERO, strides=(0,))
        return cls(memoryview(b""), zeros, zeros, none, none, none, none)

    def slice(self, start: int, stop: int) -> HeadersColumn:
        return replace(self, firsts=self.firsts[start:stop], counts=self.counts[start:stop])

    def take(self, chosen: Int64s) -> HeadersColumn:
        return replace(self, firsts=self.firsts[chosen], counts=self.counts[chosen])

    def to_list(self) -> list[Any]:
        found: list[Any] = [None] * len(self.counts)
        for number in np.flatnonzero(self.counts).tolist():
            first = int(self.firsts[number])
            found[number] = [self._pair(each) for each in range(first, first + int(self.counts[number]))]
        return found

    def _pair(self, number: int) -> tuple[str, bytes | None]:
        key, value = int(self.key_starts[number]), int(self.value_starts[number])
        length = int(self.value_lengths[number])
        text = str(self.data[key : key + int(self.key_lengths[number])], "utf-8", "replace")
        return text, None if length < 0 else bytes(self.data[value : value + length])

    def to_arrow(self) -> pyarrow.Array:
        import pyarrow  # noqa: PLC0415  # an extra

        pairs = [
            None if each is None else [dict(zip(("key", "value"), pair, strict=True)) for pair in each]
            for each in self.to_list()
        ]
        return pyarrow.array(pairs, ColumnType.HEADERS.arrow())


def find_headers(data: memoryview, counts: Int64s, starts: Int64s, ends: Int64s) -> tuple[HeadersColumn, Int64s]:
    """Find the headers of n records, which lie in ``data``.

    Args:
        data: A buffer.
        counts: How many headers each record has.
        starts: Where they begin. It means nothing for a record without headers.
        ends: Where the record ends, and they with it.

    Returns:
        The column, and the numbers of the records whose headers do not fill their bytes exactly.
    """
    keyed = np.flatnonzero(counts)
    if not len(keyed):
        return HeadersColumn.empty(len(counts)), keyed
    if int(counts.max()) > MAX_HEADERS:
        return HeadersColumn.empty(len(counts)), np.flatnonzero(counts > MAX_HEADERS)
    varints = Varints.up_to(int(ends[keyed[-1]]), data)
    active, at = keyed, starts[keyed]
    good = np.ones(len(counts), np.bool_)
    parts: list[tuple[Int64s, ...]] = []
    for number in range(int(counts.max())):
        still = counts[active] > number
        good[active[~still]] &= at[~still] == ends[active[~still]]
        active, at = active[still], at[still]
        stops = ends[active]
        key_lengths, key_starts = varints.read_any(np.minimum(at, stops))
        value_at = np.minimum(key_starts + (key_lengths >> 1 & LONGEST), stops)
        value_lengths, value_starts = varints.read_any(value_at)
        at = np.minimum(value_starts + (value_lengths >> 1 & LONGEST), stops)
        fits = (value_starts + (value_lengths >> 1 & LONGEST) <= stops) & (
            key_starts + (key_lengths >> 1 & LONGEST) < stops
        )
        fits &= (key_lengths | value_lengths) >> 32 == 0
        good[active] &= fits & (key_lengths & 1 == 0) & ((value_lengths & 1 == 0) | (value_lengths == NULL))
        lengths = np.where(value_lengths == NULL, -1, value_lengths >> 1)
        parts.append((active, key_starts, key_lengths >> 1, value_starts, lengths))
    good[active] &= at == ends[active]
    owners, *columns = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(owners, kind="stable")
    firsts = np.cumsum(counts) - counts
    return HeadersColumn(data, firsts, counts, *(column[order] for column in columns)), np.flatnonzero(~good)
