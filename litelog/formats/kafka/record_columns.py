"""The records inside Kafka's batches: found and decoded for a whole run of batches at once.

record: varint length | i8 attributes | varint time delta | varint offset delta | varint key length (-1 null) | key
        | varint value length (-1 null) | value | varint n headers | n times: varint length, key, varint length, value

Only a record's length shows where the next one begins. So all batches are walked side by side: one step goes from a
record to the next one in every batch, or over a row of records of one size. Where records begin, their fields are
decoded for all of them at once.

Specified in litelog/formats/README.md#kafka.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from litelog.dataclass import dataclass
from litelog.formats.kafka.varints import LONGEST, NULL, Varints, signed, take
from litelog.native import walks

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

BLOCK_RECORDS = 1 << 13
"""As many records are decoded at a time, so that the arrays stay in the processor's cache; measured."""

FEW_BATCHES = 8
"""Fewer batches than this are walked one after the other: that is cheaper than steps side by side; measured."""

STEPS = 32
"""After this number of steps side by side, records are compared with those after them again."""

MIN_ALIKE, MOST_ALIKE = 4, 256
"""Records of one size are found at once, if a batch has at least MIN_ALIKE of them in a row, and up to MOST_ALIKE."""

MIN_RECORD_BYTES = 7

_BYTE, _BYTE_MASK = np.uint64(8), np.uint64(0xFF)


@dataclass(frozen=True, slots=True)
class Records:
    """n records, by their places in the buffer. All arrays have length n."""

    starts: Int64s
    ends: Int64s
    time_deltas: Int64s
    """From their batch's base timestamp, in milliseconds."""
    offset_deltas: Int64s
    """From their batch's base offset."""
    key_starts: Int64s
    key_lengths: Int64s
    """-1 for null."""
    value_starts: Int64s
    value_lengths: Int64s
    """-1 for null."""
    header_starts: Int64s
    """Where the headers begin, after their number."""
    header_counts: Int64s

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, chosen: Int64s | Bools) -> Records:
        """The chosen records."""
        return Records(*(getattr(self, name)[chosen] for name in _FIELDS))

    def unpacked(self) -> Records:
        """The records with their numbers decoded from varints' raw bits."""
        return replace(
            self,
            time_deltas=signed(self.time_deltas),
            offset_deltas=self.offset_deltas >> 1,
            key_lengths=signed(self.key_lengths),
            value_lengths=signed(self.value_lengths),
            header_counts=self.header_counts >> 1,
        )

    @classmethod
    def join(cls, parts: list[Records]) -> Records:
        """The records of all parts, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        none = np.empty(0, np.int64)
        return cls(*(np.concatenate([none, *(getattr(part, name) for part in parts)]) for name in _FIELDS))


_FIELDS = [field.name for field in fields(Records)]


def find_records(data: memoryview, begins: Int64s, ends: Int64s, counts: Int64s) -> tuple[Records, list[int]]:
    """Find the records of batches, whose records lie from ``begins`` to ``ends`` in ``data``.

    Args:
        data: A buffer.
        begins: Where each batch's records begin; ascending.
        ends: Where they end.
        counts: How many records each batch states, at least one.

    Returns:
        The records, and the numbers of the batches that are not a chain of the stated number of records. If there are
        any, the records are not all there.
    """
    short = np.flatnonzero(ends - begins < MIN_RECORD_BYTES * counts)
    if len(short):
        return Records.join([]), short.tolist()
    columns = walks.find_records(data, begins, ends, counts)
    if columns is not None:
        return Records(*columns), []
    # Without the library, and if it is not sure: only this code says what is malformed.
    varints = Varints.up_to(int(ends[-1]), data)
    starts, malformed = find_starts(varints, begins, ends, counts)
    if malformed:
        return Records.join([]), malformed
    blocks = [decode(varints, starts[at : at + BLOCK_RECORDS]) for at in range(0, len(starts), BLOCK_RECORDS)]
    records = Records.join(blocks)
    if len(records) < len(starts):
        bad = np.isin(starts, records.starts, invert=True)
        return records, np.unique(np.searchsorted(begins, starts[bad], side="right") - 1).tolist()
    return records, []


def find_starts(varints: Varints, begins: Int64s, ends: Int64s, counts: Int64s) -> tuple[Int64s, list[int]]:
    """Where each record begins, one batch after the other, and the numbers of the batches that are not chains."""
    firsts = np.cumsum(counts) - counts
    starts = np.empty(int(counts.sum()), np.int64)
    reached = np.full(len(counts), -1, np.int64)
    walkers = _Walkers(varints, np.arange(len(counts)), begins.copy(), firsts.copy(), counts.copy())
    reach = MOST_ALIKE
    while len(walkers.numbers):
        if reach > 1:
            alike = walkers.leap(starts, min(reach, max(2, BLOCK_RECORDS // len(walkers.numbers))))
            reach = 1 if alike < MIN_ALIKE else min(2 * int(alike), MOST_ALIKE)
        elif len(walkers.numbers) < FEW_BATCHES:
            break
        else:
            walkers.step(starts, STEPS)
            reach = 2 * MIN_ALIKE
        walkers.drop(reached)
    malformed = []
    for number in np.flatnonzero(reached != ends).tolist():
        found, end = walk(varints.data, int(begins[number]), int(ends[number]), int(counts[number]))
        if len(found) != counts[number] or end != ends[number]:
            malformed.append(number)
        else:
            starts[firsts[number] : firsts[number] + len(found)] = found
    return starts, malformed


@dataclass(slots=True)
class _Walkers:
    """The batches whose records are walked side by side, in arrays of one length."""

    varints: Varints
    numbers: Int64s
    """The batches' numbers."""
    places: Int64s
    """Where the next record of each begins."""
    slots: Int64s
    """That record's number among all records."""
    left: Int64s
    """How many records of each are to come, at least one."""

    @property
    def end(self) -> int:
        """Where walkers stop that leave the buffer: after the end of all batches."""
        return self.varints.end + 1

    def step(self, starts: Int64s, steps: int) -> None:
        """Walk over up to ``steps`` records of each batch."""
        pairs, end, places, slots = self.varints.pairs, self.end, self.places, self.slots
        most = min(steps, int(self.left.min()))
        for _ in range(most):
            starts[slots] = places
            places += RECORD_BYTES[pairs[places]]
            np.minimum(places, end, out=places)
            slots += 1
        self.left -= most

    def leap(self, starts: Int64s, reach: int) -> float:
        """Walk over the records of each batch that have the same size as its next one, up to ``reach`` of them.
        Return their mean number."""
        heads = self.varints.pairs[self.places]
        steps = np.arange(reach)
        grid = self.places[:, None] + RECORD_BYTES[heads].astype(np.int64)[:, None] * steps
        np.minimum(grid, self.end, out=grid)
        other = self.varints.pairs[grid] != heads[:, None]
        alike = np.where(other.any(axis=1), other.argmax(axis=1), reach)
        alike = np.minimum(np.minimum(alike + 1, reach), self.left)  # the first other one begins there, too
        inside = steps < alike[:, None]
        starts[(self.slots[:, None] + steps)[inside]] = grid[inside]
        last = grid[np.arange(len(grid)), alike - 1]
        self.places = np.minimum(last + RECORD_BYTES[self.varints.pairs[last]], self.end)
        self.slots += alike
        self.left -= alike
        return float(alike.mean())

    def drop(self, reached: Int64s) -> None:
        """Drop the batches without another record, and note in ``reached`` where each of them stopped."""
        more = self.left > 0
        if not more.all():
            reached[self.numbers[~more]] = self.places[~more]
            self.numbers, self.places = self.numbers[more], self.places[more]
            self.slots, self.left = self.slots[more], self.left[more]


def walk(data: memoryview, at: int, end: int, most: int) -> tuple[list[int], int]:
    """Where the records of one batch begin, up to ``most``, and where the last one ends."""
    starts: list[int] = []
    found = starts.append
    while at < end and len(starts) < most:
        found(at)
        size = data[at]
        at += 1
        shift = 7
        if size >= 0x80:
            size &= 0x7F
            while shift <= 28:
                more = data[at]
                at += 1
                size |= (more & 0x7F) << shift
                if more < 0x80:
                    break
                shift += 7
        if size & 1:  # a negative length
            break
        at += size >> 1
    return starts, at


def decode(varints: Varints, starts: Int64s) -> Records:
    """Decode the records that may begin at ``starts``. Leaves out those whose fields do not fit into their length."""
    rare = np.zeros(len(starts), np.bool_)
    words = varints.words(starts)
    lengths, at = take(words, starts, rare)
    ends = at + (lengths >> 1 & LONGEST)
    attributes = (words & _BYTE_MASK).view(np.int64)
    words >>= _BYTE
    times, at = take(words, at + 1, rare)
    offsets, at = take(words, at, rare)
    rare |= at - starts > 8  # the word did not hold them all
    words = varints.words(at)
    key_lengths, key_starts = take(words, at, rare)
    if len(starts) and int(key_lengths.min()) == int(key_lengths.max()) == NULL:
        value_lengths, value_starts = take(words, key_starts, rare)
    else:
        value_lengths, value_starts = varints.read(_skip(key_starts, key_lengths, ends), rare)
    counts, header_starts = _read_counts(varints, _skip(value_starts, value_lengths, ends), rare)
    columns = (ends, times, offsets, key_starts, key_lengths, value_starts, value_lengths, header_starts, counts)
    every = (lengths, attributes, *columns)
    rare &= (lengths & 1 == 0) & (ends <= varints.end)
    if rare.any():
        which = np.flatnonzero(rare)
        for column, values in zip(every, _decode_any(varints, starts[which]), strict=True):
            column[which] = values
    good = (lengths & 1 == 0) & (attributes == 0) & (ends <= varints.end) & (header_starts <= ends)
    good &= ((counts == 0) & (header_starts == ends)) | ((counts > 0) & (counts <= ends - header_starts))
    good &= (key_lengths & 1 == 0) | (key_lengths == NULL)
    good &= (value_lengths & 1 == 0) | (value_lengths == NULL)
    good &= (offsets | counts) & 1 == 0
    good &= (lengths | offsets | key_lengths | value_lengths | counts) >> 32 == 0
    found = Records(starts, *columns)
    if not good.all():
        found = found.take(good)
    return found.unpacked()


def _decode_any(varints: Varints, starts: Int64s) -> tuple[Int64s, ...]:
    """Lengths, attributes and columns, as in ``decode``, for records with varints of any length."""
    lengths, at = varints.read_any(starts)
    ends = at + (lengths >> 1 & LONGEST)
    attributes = varints.bytes[np.minimum(at, varints.end)].astype(np.int64)
    times, at = varints.read_any(at + 1)
    offsets, at = varints.read_any(at)
    key_lengths, key_starts = varints.read_any(at)
    value_lengths, value_starts = varints.read_any(_skip(key_starts, key_lengths, ends))
    counts, header_starts = varints.read_any(_skip(value_starts, value_lengths, ends))
    columns = (ends, times, offsets, key_starts, key_lengths, value_starts, value_lengths, header_starts, counts)
    return lengths, attributes, *columns


def _read_counts(varints: Varints, places: Int64s, rare: Bools) -> tuple[Int64s, Int64s]:
    """The raw numbers of headers: rarely more than a byte."""
    counts = varints.bytes[np.minimum(places, varints.end)]
    rare |= counts >= 0x80
    return counts.astype(np.int64), places + 1


def _skip(starts: Int64s, lengths: Int64s, ends: Int64s) -> Int64s:
    """The places after the entries of these raw lengths, but no further than their records."""
    return np.minimum(starts + (lengths >> 1 & LONGEST), ends)


def _record_bytes() -> npt.NDArray[np.uint16]:
    """The size of a record by its first two bytes: its length, and the varint that states it. 0 if that has more
    bytes, or states a negative length."""
    first, second = np.arange(1 << 16) & 0xFF, np.arange(1 << 16) >> 8
    long = np.where(second < 0x80, 2 + ((first & 0x7F) >> 1) + (second << 6), 0)
    return np.where(first & 1, 0, np.where(first < 0x80, 1 + (first >> 1), long)).astype(np.uint16)


RECORD_BYTES = _record_bytes()
