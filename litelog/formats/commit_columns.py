"""The columns inside our format's commits: checked and decoded for a whole run of commits at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.errors import CorruptCommitError
from litelog.formats.columns import Columns
from litelog.formats.encoding import BLOCK_BYTES, FIXED_BYTES, FRAME_BYTES, HEADER, KEYED, STAMPED

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

FEW_RECORDS = 32
"""Up to so many records a commit (on average) one index array is cheaper than a slice per commit; measured."""

_FIXED_BYTES = np.array(FIXED_BYTES, np.int64)


@dataclass(frozen=True, slots=True)
class Bodies:
    """The columns of a run of c commits with n records. Places are in the buffer; arrays of c but where it says n."""

    data: memoryview
    positions: Int64s
    totals: Int64s
    """Bytes of the whole commit."""
    counts: Int64s
    keyed: npt.NDArray[np.bool_]
    stamped: npt.NDArray[np.bool_]
    stamps: Int64s
    """The commits' timestamps."""
    value_bytes: Int64s
    value_lengths: Int64s
    """n."""
    key_lengths: Int64s | None
    """Those of the keyed commits' records; None if there are none."""
    key_starts: Int64s
    """Where the keys begin, and behind them the values."""
    key_bytes: Int64s
    timestamps: Int64s | None
    """Those of the stamped commits' records; None if there are none."""

    @classmethod
    def check(cls, name: str, data: memoryview, offset: int, positions: list[int]) -> Bodies:
        """The bodies of the commits at ``positions`` (at least one), whose headers and checksums hold.

        CorruptCommitError where the columns do not fill the body exactly.
        """
        at = np.array(positions, np.int64)
        words = np.frombuffer(data, "<i8", count=len(data) // 8)
        word = at >> 3
        packed = words[word + 2]
        counts, lengths = packed & 0xFFFF, packed >> 16 & 0xFFFF_FFFF
        flags = packed >> 56
        keyed, stamped = flags & KEYED != 0, flags & STAMPED != 0
        value_bytes, stamps = words[word + 3], words[word + 4]
        column = at + HEADER.size + 8 * counts * stamped
        value_lengths = _gather(words.view("<u4"), column >> 2, counts)
        firsts = np.cumsum(counts) - counts
        faults = _Faults(name, offset, at)
        faults.refuse("sum of value lengths", value_bytes, np.add.reduceat(value_lengths, firsts))
        keys = column + 4 * counts * (1 + keyed)
        key_bytes = np.zeros(len(at), np.int64)
        key_lengths = None
        if keyed.any():
            key_lengths = _gather(words.view("<i4"), (column + 4 * counts)[keyed] >> 2, counts[keyed])
            key_firsts = np.cumsum(counts[keyed]) - counts[keyed]
            lowest = np.zeros(len(at), np.int64)
            lowest[keyed] = np.minimum(np.minimum.reduceat(key_lengths, key_firsts), 0)
            faults.refuse("lowest key length", np.maximum(lowest, -1), lowest)
            key_bytes[keyed] = np.add.reduceat(np.maximum(key_lengths, 0), key_firsts)
        padding = lengths - BLOCK_BYTES - counts * _FIXED_BYTES[flags] - value_bytes - key_bytes
        faults.refuse("bytes of padding", padding & 7, padding)
        totals = lengths + FRAME_BYTES
        faults.refuse("padding", 0, _padding_bits(words, at + totals, padding))
        timestamps = None
        if stamped.any():
            timestamps = _gather(words, (at[stamped] + HEADER.size) >> 3, counts[stamped])
            leading = stamps.copy()
            leading[stamped] = timestamps[np.cumsum(counts[stamped]) - counts[stamped]]
            faults.refuse("timestamp", leading, stamps)
        return cls(
            data=data,
            positions=at,
            totals=totals,
            counts=counts,
            keyed=keyed,
            stamped=stamped,
            stamps=stamps,
            value_bytes=value_bytes,
            value_lengths=value_lengths,
            key_lengths=key_lengths,
            key_starts=keys,
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

    def columns(self, first: int) -> Columns:
        """All records, the first of which has sequence ``first``."""
        lengths = self.value_lengths
        timestamps = np.repeat(self.stamps, self.counts)
        if self.timestamps is not None:
            timestamps[np.repeat(self.stamped, self.counts)] = self.timestamps
        key_lengths = key_starts = None
        if self.key_lengths is not None:
            key_lengths = np.full(len(lengths), -1, np.int64)
            key_lengths[np.repeat(self.keyed, self.counts)] = self.key_lengths
            key_starts = _place(np.maximum(key_lengths, 0), self.key_starts, self.key_bytes, self.counts)
        return Columns(
            data=self.data,
            sequences=np.arange(first, first + len(lengths), dtype=np.int64),
            timestamps=timestamps,
            key_starts=key_starts,
            key_lengths=key_lengths,
            value_starts=_place(lengths, self.key_starts + self.key_bytes, self.value_bytes, self.counts),
            value_lengths=self.value_lengths,
            runs=np.cumsum(self.counts) - self.counts,
        )


@dataclass(frozen=True, slots=True)
class _Faults:
    """Where faults lie, to name the first."""

    name: str
    offset: int
    positions: Int64s

    def refuse(self, what: str, expected: Int64s | int, actual: Int64s) -> None:
        """CorruptCommitError for the first commit whose ``actual`` is not as ``expected``."""
        wrong = actual != expected
        if wrong.any():
            commit = int(wrong.argmax())
            wanted = int(np.broadcast_to(expected, actual.shape)[commit])
            place = self.offset + int(self.positions[commit])
            raise CorruptCommitError(self.name, place, what, wanted, int(actual[commit]))


def _gather(words: npt.NDArray[Any], starts: Int64s, counts: Int64s) -> Int64s:
    """``counts[i]`` words from ``starts[i]`` on, for each commit i, one behind the other."""
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


def _place(lengths: Int64s, starts: Int64s, sizes: Int64s, counts: Int64s) -> Int64s:
    """Where each entry starts, if those of commit i lie back to back in ``sizes[i]`` bytes from ``starts[i]`` on."""
    firsts = np.cumsum(counts) - counts
    places = np.empty(len(lengths), np.int64)
    # Each step is the length of the entry before; into a commit, it is the way from the last commit's last entry.
    places[1:] = lengths[:-1]
    places[0] = starts[0]
    into = firsts[1:]
    places[into] += starts[1:] - (starts[:-1] + sizes[:-1])
    return np.cumsum(places, out=places)


def _padding_bits(words: Int64s, ends: Int64s, padding: Int64s) -> Int64s:
    """The 0 to 7 bytes of padding before the checksums of commits that end at ``ends``, 0 if they are."""
    last = (ends >> 3) - 1
    before = (words[last] << 32) | (words[last - 1] >> 32 & 0xFFFF_FFFF)  # the eight bytes before the checksum
    bits: Int64s = np.where(padding > 0, before >> (64 - 8 * padding & 63), 0)
    return bits
