"""SmallCommit: the columns of one commit of few records, checked with plain numbers.

A reader at the end of a log gets such a commit at a time. ``Bodies`` checks a run of any size, and takes about 0.1 ms
for the smallest one.
"""

from __future__ import annotations

import struct
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.formats.litelog.encoding import CHECKSUM_BYTES, FRAME_BYTES, HEADER, KEYED, STAMPED

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt

    from litelog.formats.columns import Columns

MOST_RECORDS = 256
"""The number of records up to which plain numbers are faster than arrays; measured."""


@dataclass(frozen=True, slots=True)
class SmallCommit:
    """One commit. Places are in the buffer."""

    data: memoryview
    stamp: int
    """The commit's timestamp."""
    stamps: tuple[int, ...] | None
    """The records' timestamps; None if all have the commit's."""
    value_lengths: tuple[int, ...]
    key_lengths: tuple[int, ...] | None
    """None if the commit has no keys."""
    key_start: int
    """Where the keys begin; the values follow them."""

    @classmethod
    def read(cls, data: memoryview, position: int) -> SmallCommit | None:
        """Read the commit at ``position``, whose header and checksum are right. None if it has too many records, or if
        its columns do not fill the body exactly: ``Bodies`` reports which one is wrong."""
        _, _, count, length, _, flags, value_bytes, stamp = HEADER.unpack_from(data, position)
        if count > MOST_RECORDS:
            return None
        at, stamps, key_lengths, key_bytes = position + HEADER.size, None, None, 0
        if flags & STAMPED:
            stamps = _layout(count, "q").unpack_from(data, at)
            at += 8 * count
        value_lengths = _layout(count, "I").unpack_from(data, at)
        at += 4 * count
        if flags & KEYED:
            key_lengths = _layout(count, "i").unpack_from(data, at)
            key_bytes = sum(each for each in key_lengths if each > 0)
            at += 4 * count
        end = position + length + FRAME_BYTES - CHECKSUM_BYTES
        padding = end - at - key_bytes - value_bytes
        is_right = (
            sum(value_lengths) == value_bytes
            and (stamps is None or stamps[0] == stamp)
            and (key_lengths is None or min(key_lengths) >= -1)
            and 0 <= padding <= 7
            and not any(data[end - padding : end])
        )
        return cls(data, stamp, stamps, value_lengths, key_lengths, at) if is_right else None

    def time_range(self) -> tuple[int, int]:
        """The lowest and the highest record timestamp, microseconds since 1970."""
        return (self.stamp, self.stamp) if self.stamps is None else (min(self.stamps), max(self.stamps))

    def columns(self, first: int) -> Columns:
        """All records; the first one has sequence ``first``."""
        import numpy as np  # noqa: PLC0415 - a daemon only checks

        from litelog.formats.columns import Columns  # noqa: PLC0415 - as above

        count, start = len(self.value_lengths), self.key_start
        key_starts = key_lengths = None
        if self.key_lengths is not None:
            lengths = [max(each, 0) for each in self.key_lengths]
            key_starts, key_lengths = _places(start, lengths), _numbers(self.key_lengths)
            start += sum(lengths)
        return Columns(
            data=self.data,
            sequences=np.arange(first, first + count, dtype=np.int64),
            timestamps=_numbers((self.stamp,) * count if self.stamps is None else self.stamps),
            key_starts=key_starts,
            key_lengths=key_lengths,
            value_starts=_places(start, self.value_lengths),
            value_lengths=_numbers(self.value_lengths),
            runs=_numbers((0,)),
        )


@cache
def _layout(count: int, kind: str) -> struct.Struct:
    """``count`` numbers of one kind, at most MOST_RECORDS."""
    return struct.Struct(f"<{count}{kind}")


def _numbers(numbers: Iterable[int]) -> npt.NDArray[np.int64]:
    import numpy as np  # noqa: PLC0415 - as above

    return np.array(tuple(numbers), np.int64)


def _places(start: int, lengths: Iterable[int]) -> npt.NDArray[np.int64]:
    """Where each entry begins, if they lie back to back from ``start`` on."""
    return _numbers(tuple(accumulate(lengths, initial=start))[:-1])
