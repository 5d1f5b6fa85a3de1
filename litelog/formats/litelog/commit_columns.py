"""The columns inside commits of litelog's own format: checked and decoded for a whole run of commits at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError
from litelog.formats.columns import Columns
from litelog.formats.litelog.encoding import CHECKSUM_BYTES, FRAME_BYTES, HEADER, KEYED, STAMPED

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

FEW_RECORDS = 32
"""Up to this mean number of records per commit, one index array is cheaper than a slice per commit; measured."""


@dataclass(frozen=True, slots=True)
class Bodies:
    """The columns of a run of c commits with n records. Places are in the buffer. Arrays have length c unless noted."""

    data: memoryview
    positions: Int64s
    totals: Int64s
    """The size of the whole commit, in bytes."""
    counts: Int64s
    firsts: Int64s
    """How many of the n records precede each commit's first."""
    keyed: npt.NDArray[np.bool_]
    stamped: npt.NDArray[np.bool_]
    stamps: Int64s
    """The commits' timestamps."""
    value_bytes: Int64s
    value_lengths: Int64s
    """n."""
    key_lengths: Int64s | None
    """The key lengths of the keyed commits' records; None if no commit has keys."""
    key_starts: Int64s
    """Where the keys begin; the values follow them."""
    key_bytes: Int64s
    timestamps: Int64s | None
    """The timestamps of the stamped commits' records; None if no commit is stamped."""

    @classmethod
    def check(cls, name: str, data: memoryview, offset: int, positions: list[int]) -> Bodies:
        """Decode the bodies of the commits at ``positions`` (at least one), whose headers and checksums are right.

        Raises CorruptCommitError if the columns do not fill a body exactly.
        """
        at = np.array(positions, np.int64)
        words = np.frombuffer(data, "<i8", count=len(data) // 8)
        word = at >> 3
        packed = words[word + 2]
        counts, totals = packed & 0xFFFF, (packed >> 16 & 0xFFFF_FFFF) + FRAME_BYTES
        flags = packed >> 56
        kinds = int(np.bitwise_or.reduce(flags))
        firsts = np.cumsum(counts) - counts
        value_bytes, stamps = words[word + 3], words[word + 4]
        faults = _Faults(name, offset, at)
        column = at + HEADER.size
        timestamps = None
        stamped = flags & STAMPED != 0
        if kinds & STAMPED:
            timestamps = _gather(words, column[stamped] >> 3, counts[stamped])
            leading = stamps.copy()
            leading[stamped] = timestamps[np.cumsum(counts[stamped]) - counts[stamped]]
            faults.refuse("timestamp", leading, stamps)
            column += 8 * counts * stamped
        value_lengths = _gather(words.view("<u4"), column >> 2, counts)
        faults.refuse("sum of value lengths", value_bytes, np.add.reduceat(value_lengths, firsts))
        column += 4 * counts
        key_lengths, key_bytes = None, np.zeros(len(at), np.int64)
        keyed = flags & KEYED != 0
        if kinds & KEYED:
            key_lengths = _gather(words.view("<i4"), column[keyed] >> 2, counts[keyed])
            key_firsts = np.cumsum(counts[keyed]) - counts[keyed]
            lowest = np.zeros(len(at), np.int64)
            lowest[keyed] = np.minimum(np.minimum.reduceat(key_lengths, key_firsts), 0)
            faults.refuse("lowest key length", np.maximum(lowest, -1), lowest)
            key_bytes[keyed] = np.add.reduceat(np.maximum(key_lengths, 0), key_firsts)
            column += 4 * counts * keyed
        ends = at + totals
        padding = ends - CHECKSUM_BYTES - column - key_bytes - value_bytes
        faults.refuse("bytes of padding", padding & 7, padding)
        faults.refuse("padding", 0, _padding_bits(words, ends, padding))
        return cls(
            data=data,
            positions=at,
            totals=totals,
            counts=counts,
            firsts=firsts,
            keyed=keyed,
            stamped=stamped,
            stamps=stamps,
            value_bytes=value_bytes,
            value_lengths=value_lengths,
            key_lengths=key_lengths,
            key_starts=column,
            key_bytes=key_bytes,
            timestamps=timestamps,
        )

    def timestamp_ranges(self) -> tuple[Int64s, Int64s]:
        """The lowest and the highest record timestamp of each commit, microseconds since 1970."""
        if self.timestamps is None:
            return self.stamps, self.stamps
        lowest, highest = self.stamps.copy(), self.stamps.copy()
        counts = self.counts[self.stamped]
        firsts = np.cumsum(counts) - counts
        lowest[self.stamped] = np.minimum.reduceat(self.timestamps, firsts)
        highest[self.stamped] = np.maximum.reduceat(self.timestamps, firsts)
        return lowest, highest

    def time_range(self) -> tuple[int, int]:
        """The lowest and the highest record timestamp of all commits, microseconds since 1970."""
        lows, highs = self.timestamp_ranges()
        return int(lows.min()), int(highs.max())

    def columns(self, first: int) -> Columns:
        """All records; the first one has sequence ``first``."""
        lengths = self.value_lengths
        timestamps = np.repeat(self.stamps, self.counts)
        if self.timestamps is not None:
            timestamps[np.repeat(self.stamped, self.counts)] = self.timestamps
        key_lengths = key_starts = None
        if self.key_lengths is not None:
            key_lengths = np.full(len(lengths), -1, np.int64)
            key_lengths[np.repeat(self.keyed, self.counts)] = self.key_lengths
            key_starts = _place(np.maximum(key_lengths, 0), self.key_starts, self.key_bytes, self.firsts)
        return Columns(
            data=self.data,
            sequences=np.arange(first, first + len(lengths), dtype=np.int64),
            timestamps=timestamps,
            key_starts=key_starts,
            key_lengths=key_lengths,
            value_starts=_place(lengths, self.key_starts + self.key_bytes, self.value_bytes, self.firsts),
            value_lengths=self.value_lengths,
            runs=self.firsts,
        )


@dataclass(frozen=True, slots=True)
class _Faults:
    """The place of each commit, so that an error can name the first faulty one."""

    name: str
    offset: int
    positions: Int64s

    def refuse(self, what: str, expected: Int64s | int, actual: Int64s) -> None:
        """Raise CorruptCommitError for the first commit whose ``actual`` differs from ``expected``."""
        wrong = actual != expected
        if wrong.any():
            commit = int(wrong.argmax())
            wanted = int(np.broadcast_to(expected, actual.shape)[commit])
            place = self.offset + int(self.positions[commit])
            raise CorruptCommitError(self.name, place, what, wanted, int(actual[commit]))


def _gather(words: npt.NDArray[Any], starts: Int64s, counts: Int64s) -> Int64s:
    """``counts[i]`` words from ``starts[i]`` on, for each commit i, one run after the other."""
    if len(counts) == 1:
        start = int(starts[0])
        only: Int64s = words[start : start + int(counts[0])].astype(np.int64)
        return only
    total = int(counts.sum())
    if total > FEW_RECORDS * len(counts):
        ends = starts + counts
        slices = [words[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        joined: Int64s = np.concatenate(slices, dtype=np.int64)
        return joined
    firsts = np.cumsum(counts) - counts
    index = np.repeat(starts - firsts, counts)
    index += np.arange(total)
    gathered: Int64s = words[index].astype(np.int64)
    return gathered


def _place(lengths: Int64s, starts: Int64s, sizes: Int64s, firsts: Int64s) -> Int64s:
    """Where each entry starts, if the entries of commit i lie back to back in ``sizes[i]`` bytes from ``starts[i]``."""
    places = np.empty(len(lengths), np.int64)
    # Each step is the length of the preceding entry. At a new commit, it is the distance from the last entry before it.
    places[1:] = lengths[:-1]
    places[0] = starts[0]
    into = firsts[1:]
    places[into] += starts[1:] - (starts[:-1] + sizes[:-1])
    return np.cumsum(places, out=places)


def _padding_bits(words: Int64s, ends: Int64s, padding: Int64s) -> Int64s:
    """The 0 to 7 bytes of padding before the checksums of commits that end at ``ends``; 0 if they are zeros."""
    if not padding.any():
        return padding
    last = (ends >> 3) - 1
    before = (words[last] << 32) | (words[last - 1] >> 32 & 0xFFFF_FFFF)  # the eight bytes before the checksum
    bits: Int64s = np.where(padding > 0, before >> (64 - 8 * padding & 63), 0)
    return bits
