"""Whole commits of litelog's own format as Arrow arrays: their columns are joined, commit after commit.

For commits with many records: a commit costs a few slices, and Arrow does all the work per record.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.dataclass import dataclass
from litelog.errors import CorruptCommitError
from litelog.formats.columns import MAX_ARROW_BYTES
from litelog.formats.litelog.commit_columns import Bodies
from litelog.formats.litelog.encoding import CHECKSUM_BYTES, FRAME_BYTES, HEADER, KEYED, STAMPED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from litelog.formats.columns import Columns

NO_KEY = struct.pack("<i", -1)


@dataclass(frozen=True, slots=True)
class Commits:
    """Consecutive commits whose headers, checksums and sequences were checked.

    Their contents were checked by the process that wrote and sealed these very bytes.
    """

    name: str
    data: memoryview
    """Bytes of log segment ``name``, from ``offset`` on."""
    offset: int
    positions: list[int]
    """Where each commit begins in ``data``; at least one."""
    first: int
    """The first record's sequence."""
    records: int

    def columns(self) -> Columns:
        """The records. Raises CorruptCommitError if a commit's contents are malformed."""
        return Bodies.check(self.name, self.data, self.offset, self.positions).columns(self.first)


@dataclass(frozen=True, slots=True)
class _Commit:
    """One commit, as its header describes it. Places are in ``run.data``."""

    run: Commits
    at: int
    end: int
    first: int
    count: int
    flags: int
    stamp: int
    value_bytes: int

    @property
    def stamps_at(self) -> int:
        return self.at + HEADER.size

    @property
    def value_lengths_at(self) -> int:
        return self.at + HEADER.size + (8 * self.count if self.flags & STAMPED else 0)

    @property
    def key_lengths_at(self) -> int:
        return self.value_lengths_at + 4 * self.count

    @property
    def keys_at(self) -> int:
        return self.key_lengths_at + (4 * self.count if self.flags & KEYED else 0)

    def check(self, values_at: int) -> None:
        """Check that the values, which begin at ``values_at``, end where the commit does."""
        padding = self.end - CHECKSUM_BYTES - self.value_bytes - values_at
        if not 0 <= padding <= 7:
            raise self.fault("bytes of padding", "0 to 7", padding)

    def fault(self, what: str, expected: object, actual: object) -> CorruptCommitError:
        """The error that reports the commit as malformed."""
        return CorruptCommitError(self.run.name, self.run.offset + self.at, what, expected, actual)


class CommitGatherer:
    """Gathers commits, and yields their records as dictionaries of Arrow arrays, of about ``rows`` records each.

    ``names`` are the columns, as in ``Columns.to_arrow``; columns that are left out cost nothing. An array points into
    the commits' bytes only if it comes from a single commit.
    """

    def __init__(self, names: Sequence[str], rows: int, most_bytes: int) -> None:
        import pyarrow  # noqa: PLC0415  # an extra

        self._arrow = pyarrow
        self._names = names
        self._most_rows, self._most_bytes = rows, most_bytes
        self._held: list[_Commit] = []
        self._rows = self._bytes = 0

    def add(self, commits: Commits) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the (records, arrays) that these commits complete. CorruptCommitError if lengths do not add up."""
        data = commits.data
        for at in commits.positions:
            first, _, count, length, _, flags, value_bytes, stamp = HEADER.unpack_from(data, at)
            total = length + FRAME_BYTES
            if self._held and (self._rows + count > self._most_rows or self._bytes + total > self._most_bytes):
                yield self._take()
            self._held.append(_Commit(commits, at, at + total, first, count, flags, stamp, value_bytes))
            self._rows += count
            self._bytes += total

    def rest(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield what was gathered and not yet yielded."""
        if self._held:
            yield self._take()

    def _take(self) -> tuple[int, dict[str, Any]]:
        held, count = self._held, self._rows
        self._held, self._rows, self._bytes = [], 0, 0
        arrays, names = {}, self._names
        if "sequence" in names:
            arrays["sequence"] = self._arrow.array(_sequences(held))
        if "timestamp" in names:
            parts = [_stamps(commit) for commit in held]
            kind = self._arrow.timestamp("us", tz="UTC")
            arrays["timestamp"] = self._arrow.Array.from_buffers(kind, count, [None, self._join(parts)], null_count=0)
        if "key" in names or "value" in names:
            arrays.update(self._bytes_of(held, count))
        return count, arrays

    def _bytes_of(self, held: list[_Commit], count: int) -> dict[str, Any]:
        """The keys, and the values that follow them."""
        bounds = [0, *accumulate(commit.count for commit in held)]
        key_bytes = [0] * len(held)
        keyed = any(commit.flags & KEYED for commit in held)
        if keyed:
            lengths = np.frombuffer(b"".join([_key_lengths(commit) for commit in held]), "<i4")
            valid = None
            if int(lengths.min()) < 0:
                valid = self._arrow.py_buffer(np.packbits(lengths >= 0, bitorder="little"))
                lengths = np.maximum(lengths, 0)
            ends = _offsets(held, lengths)
            key_bytes = np.diff(ends[bounds]).tolist()
        places = [commit.keys_at + size for commit, size in zip(held, key_bytes, strict=True)]
        for commit, place in zip(held, places, strict=True):
            commit.check(place)
        arrays = {}
        if "key" in self._names:
            arrays["key"] = self._arrow.nulls(count, self._arrow.binary())
            if keyed:
                parts = [commit.run.data[commit.keys_at : place] for commit, place in zip(held, places, strict=True)]
                arrays["key"] = self._binary(count, valid, ends, parts)
        if "value" in self._names:
            ends = _offsets(held, np.frombuffer(b"".join([_value_lengths(commit) for commit in held]), "<u4"))
            for commit, size in zip(held, np.diff(ends[bounds]).tolist(), strict=True):
                if size != commit.value_bytes:
                    raise commit.fault("sum of value lengths", commit.value_bytes, size)
            parts = [
                commit.run.data[place : place + commit.value_bytes] for commit, place in zip(held, places, strict=True)
            ]
            arrays["value"] = self._binary(count, None, ends, parts)
        return arrays

    def _binary(self, count: int, valid: Any, offsets: npt.NDArray[np.int32], parts: list[memoryview]) -> Any:
        buffers = [valid, self._arrow.py_buffer(offsets), self._join(parts)]
        return self._arrow.Array.from_buffers(self._arrow.binary(), count, buffers)

    def _join(self, parts: list[Any]) -> Any:
        return self._arrow.py_buffer(parts[0] if len(parts) == 1 else b"".join(parts))


def _sequences(held: list[_Commit]) -> npt.NDArray[np.int64]:
    runs: list[tuple[int, int]] = []
    for commit in held:
        if runs and runs[-1][1] == commit.first:
            runs[-1] = (runs[-1][0], commit.first + commit.count)
        else:
            runs.append((commit.first, commit.first + commit.count))
    arrays = [np.arange(first, stop, dtype=np.int64) for first, stop in runs]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _stamps(commit: _Commit) -> memoryview | bytes:
    if commit.flags & STAMPED:
        return commit.run.data[commit.stamps_at : commit.stamps_at + 8 * commit.count]
    return struct.pack("<q", commit.stamp) * commit.count


def _value_lengths(commit: _Commit) -> memoryview:
    return commit.run.data[commit.value_lengths_at : commit.value_lengths_at + 4 * commit.count]


def _key_lengths(commit: _Commit) -> memoryview | bytes:
    if commit.flags & KEYED:
        return commit.run.data[commit.key_lengths_at : commit.key_lengths_at + 4 * commit.count]
    return NO_KEY * commit.count


def _offsets(held: list[_Commit], lengths: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Arrow's offsets of entries that lie back to back."""
    if int(lengths.max()) * len(lengths) > MAX_ARROW_BYTES:
        total = int(lengths.sum(dtype=np.int64))
        if total > MAX_ARROW_BYTES:
            stops = list(accumulate(commit.count for commit in held))
            longest = held[bisect_right(stops, int(lengths.argmax()))]
            raise longest.fault("sum of lengths", f"up to {MAX_ARROW_BYTES}", total)
    offsets = np.empty(len(lengths) + 1, np.int32)
    offsets[0] = 0
    np.cumsum(lengths, dtype=np.int32, out=offsets[1:])
    return offsets
