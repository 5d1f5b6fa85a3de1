"""The records inside Kafka's batches: found and decoded for a whole run of batches at once.

record: varint length | i8 attributes | varint time delta | varint offset delta | varint key length (-1 null) | key
        | varint value length (-1 null) | value | varint n headers | n times: varint length, key, varint length, value

Only a record's length shows where the next one begins, so a walk takes a step for each record. Instead, records are
decoded wherever one may begin: between two zero bytes a short varint apart, which are the number of headers of the
record before it and its own attributes. What was found is proven afterwards. It is the chain of records if each one
ends where the next one begins, from a batch's first byte to its last, and if there are as many as the batch states. A
batch for which that fails is walked: its records have headers, or hold many zeros.

Specified in litelog/formats/README.md#kafka.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from litelog.formats.kafka.varints import LONGEST, NULL, Varints, signed, take

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

BLOCK_BYTES = 1 << 20
"""About as many bytes are decoded at a time, so that the arrays stay in the processor's cache; measured."""

GUESS_BYTES = 128 << 10
"""As many bytes are searched at a time for places where a record may begin; measured."""

MIN_RECORD_BYTES = 7

MAX_CANDIDATES = 4
"""Up to this many places a record, decoding wherever a record may begin is cheaper than a walk; measured."""

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
        data: A buffer with at least PADDING bytes after the last record.
        begins: Where each batch's records begin; ascending.
        ends: Where they end.
        counts: How many records each batch states, at least one.

    Returns:
        The records, and the numbers of the batches that are not a chain of the stated number of records. The records
        of those batches are left out.
    """
    short = np.flatnonzero(ends - begins < MIN_RECORD_BYTES * counts)
    if len(short):
        return Records.join([]), short.tolist()
    bytes_ = np.frombuffer(data, np.uint8)
    varints = Varints(data)
    parts: list[Records] = []
    malformed: list[int] = []
    at = 0
    while at < len(counts):
        stop = max(at + 1, int(np.searchsorted(ends, begins[at] + BLOCK_BYTES)))
        block = slice(at, stop)
        found, bad = _find_in_block(bytes_, varints, begins[block], ends[block], counts[block])
        parts.append(found)
        malformed += (bad + at).tolist()
        at = stop
    return Records.join(parts), malformed


def _find_in_block(
    bytes_: npt.NDArray[np.uint8], varints: Varints, begins: Int64s, ends: Int64s, counts: Int64s
) -> tuple[Records, Int64s]:
    """The records of neighbouring batches, and which of the batches are malformed."""
    starts = _guess_starts(bytes_, begins, ends)
    total = int(counts.sum())
    left = np.arange(len(counts))
    parts = []
    if total <= len(starts) <= MAX_CANDIDATES * total:
        found = decode(varints, starts)
        whole = _find_chains(found, begins, ends, counts)
        if len(found) == total and whole.all():
            return found, left[:0]
        parts.append(found.take(_lie_in(found.starts, begins[whole], ends[whole])))
        left = left[~whole]
    begins, ends, counts = begins[left], ends[left], counts[left]
    steps = [walk(varints, *bounds) for bounds in zip(begins.tolist(), ends.tolist(), strict=True)]
    found = decode(varints, np.concatenate(steps))
    whole = _find_chains(found, begins, ends, counts)
    parts.append(found.take(_lie_in(found.starts, begins[whole], ends[whole])))
    found = Records.join(parts)
    return (found if len(parts) == 1 else found.take(np.argsort(found.starts, kind="stable"))), left[~whole]


def _guess_starts(bytes_: npt.NDArray[np.uint8], begins: Int64s, ends: Int64s) -> Int64s:
    """Where records without headers may begin: at each of ``begins``, and where an even length of one or two bytes lies
    between zeros and leads to another zero."""
    low, high = int(begins[0]), int(ends[-1])
    between = np.empty(max(0, high - low - 3), np.bool_)
    for at in range(0, len(between), GUESS_BYTES):
        zeros = bytes_[low + at : min(low + at + GUESS_BYTES + 3, high)] == 0
        part = between[at : at + GUESS_BYTES]
        np.logical_or(zeros[3:], zeros[2:-1], out=part)
        part &= zeros[:-3]
    # There is no record before a batch's first one, and none in the header between two batches.
    for end, begin in zip((ends[:-1] - (low + 1)).tolist(), (begins[1:] - (low + 1)).tolist(), strict=True):
        between[end:begin] = False
        between[begin] = True
    starts = np.concatenate([begins[:1], np.flatnonzero(between) + (low + 1)])
    first, second = bytes_[starts], bytes_[starts + 1]
    likely = (first & 1 == 0) & ((second == 0) == (first < 0x80)) & (second < 0x80) & (first | second >= 2)
    last = starts + (second != 0) + ((first & 0x7F) >> 1) + (second.astype(np.int64) << 6)
    likely &= bytes_[np.minimum(last, len(bytes_) - 1)] == 0
    if not likely.all():
        likely[np.searchsorted(starts, begins)] = True
        starts = starts[likely]
    found: Int64s = starts
    return found


def walk(varints: Varints, at: int, end: int) -> Int64s:
    """Where the records between ``at`` and ``end`` begin, step by step, by their lengths."""
    starts: list[int] = []
    found, data = starts.append, varints.data
    while at < end:
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
    return np.array(starts, np.int64)


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


def _find_chains(found: Records, begins: Int64s, ends: Int64s, counts: Int64s) -> Bools:
    """Whether each batch is a chain of as many records as it states, from its first byte to its last."""
    if not len(found):
        return np.zeros(len(begins), np.bool_)
    linked = found.starts[1:] == found.ends[:-1]
    firsts = np.cumsum(counts) - counts
    if len(found) == int(counts.sum()):  # as nearly always: all of them are
        linked[firsts[1:] - 1] = True
        bounds = np.array_equal(found.starts[firsts], begins) and np.array_equal(found.ends[firsts + counts - 1], ends)
        if bounds and linked.all():
            return np.ones(len(begins), np.bool_)
        linked = found.starts[1:] == found.ends[:-1]
    first, stop = np.searchsorted(found.starts, begins), np.searchsorted(found.starts, ends)
    whole = stop - first == counts
    edge, last = np.minimum(first, len(found) - 1), np.maximum(stop - 1, 0)
    whole &= (found.starts[edge] == begins) & (found.ends[last] == ends)
    breaks = np.zeros(len(found), np.int64)
    np.cumsum(~linked, out=breaks[1:])
    # From the batch's first record to its last there is no place at which one does not follow the other.
    chained: Bools = whole & (breaks[last] == breaks[edge])
    return chained


def _lie_in(starts: Int64s, begins: Int64s, ends: Int64s) -> Bools:
    """Whether each start lies in one of the ranges, which ascend."""
    if not len(begins):
        return np.zeros(len(starts), np.bool_)
    at = np.searchsorted(begins, starts, side="right") - 1
    inside: Bools = (at >= 0) & (starts < ends[np.maximum(at, 0)])
    return inside
