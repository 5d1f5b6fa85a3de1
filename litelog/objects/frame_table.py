"""The frames in a sealed segment's footer, and the times when its bytes were shipped: columns, and searches in them.

A frame ends where a commit ends. The exception is a run of commits that no frame can hold: one commit above
MAX_FRAME_BYTES, with the bytes that were read after it. It is cut inside a commit, and its frames form a **run**, which
``inner`` shows; they are decoded together. The first frame of a run describes all its commits. The other frames say 0
records, and the sequence that follows the run.

Specified in litelog/objects/README.md#frame-table.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from litelog.codec.decoding import MOST
from litelog.codec.json_columns import (
    Column,
    Gapped,
    read_differences,
    read_gapped,
    read_plain,
    write_column,
    write_differences,
    write_gapped,
)
from litelog.codec.lz4_frames import MAX_FRAME_BYTES
from litelog.dataclass import dataclass
from litelog.formats import LARGEST_COMMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_FRAMES = 1 << 20
"""The most frames in a sealed segment: a log segment of a TiB."""

FRAME_VALUES = 10
"""How many JSON values a frame takes: one in each column that is written, if no column is packed."""

MAX_MARKS = 4 << 20
"""The most marks in a sealed segment: a log segment that grew for 48 days, every second."""

MAX_RUN_BYTES = LARGEST_COMMIT_BYTES + MAX_FRAME_BYTES
"""The most bytes that a reader decodes at a time: any commit, and the bytes that were read after it."""

MAX_STORED_BYTES = MAX_FRAME_BYTES + (64 << 10)
"""The most bytes that a compressed frame takes: its content uncompressed, and the overhead of LZ4."""


class SealedFrame(NamedTuple):
    """One frame: bytes [offset, offset + length) of the log segment, in bytes [start, start + size) of the object."""

    start: int
    size: int
    offset: int
    length: int
    first: int
    """The first record's sequence. If no record starts in the frame: the sequence that comes next (0: none)."""
    records: int
    """How many records start in the frame, or, for a run's first frame, in the whole run."""
    lowest: int | None
    """The lowest record timestamp, in microseconds since 1970; None without one."""
    highest: int | None
    crc: int
    """CRC-32C of the uncompressed bytes."""
    checksum: int
    """The checksum of the uncompressed bytes with which the frame ends, as its codec makes it. It ties bytes from
    another source to the footer, and so to the digest there. CRC-32C cannot: bytes that end with their own CRC-32C, as
    commits do, always have the same one."""
    stored: int
    """CRC-32C of the frame as it lies in the object. It ties the frame to the footer before it is decompressed."""

    @property
    def stop(self) -> int:
        """The position after it in the object."""
        return self.start + self.size

    @property
    def end(self) -> int:
        """The offset after it in the log segment."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class FrameTable:
    """All frames in order, as columns of the same length. SealedFrame describes the columns."""

    starts: Column
    sizes: Column
    offsets: Column
    lengths: Column
    firsts: Column
    records: Column
    lowests: Gapped
    highests: Gapped
    crcs: Column
    checksums: Column
    stored: Column
    inner: Column = ()
    """The numbers of the frames that end inside a commit, ascending."""

    @classmethod
    def of(cls, frames: Sequence[SealedFrame], inner: Sequence[int] = ()) -> FrameTable:
        """The table of consecutive frames, which start at 0."""
        columns: list[Any] = [*zip(*frames, strict=True)] or [()] * len(SealedFrame._fields)
        return cls(**dict(zip(cls.__slots__, [*columns, tuple(inner)], strict=True)))

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, number: int) -> SealedFrame:
        return SealedFrame(
            self.starts[number],
            self.sizes[number],
            self.offsets[number],
            self.lengths[number],
            self.firsts[number],
            self.records[number],
            self.lowests[number],
            self.highests[number],
            self.crcs[number],
            self.checksums[number],
            self.stored[number],
        )

    def stored_range(self, frames: range) -> range:
        """The bytes of the object in which consecutive ``frames`` lie."""
        if not frames:
            return range(0)
        last = frames.stop - 1
        return range(self.starts[frames.start], self.starts[last] + self.sizes[last])

    def content_range(self, frames: range) -> range:
        """The bytes of the log segment that consecutive ``frames`` hold."""
        if not frames:
            return range(0)
        last = frames.stop - 1
        return range(self.offsets[frames.start], self.offsets[last] + self.lengths[last])

    def stored_part(self, body: memoryview, frames: range, run: range) -> memoryview:
        """The bytes of ``run`` in ``body``, which holds ``frames`` as they lie in the object."""
        first, part = self.stored_range(frames).start, self.stored_range(run)
        return body[part.start - first : part.stop - first]

    def runs(self, frames: range | None = None) -> Iterator[range]:
        """The runs that contain ``frames`` (default: all), in order. Most runs have one frame."""
        number, stop = (0, len(self)) if frames is None else (frames.start, frames.stop)
        while number < stop:
            run = self.run_of(number)
            yield run
            number = run.stop

    def run_of(self, number: int) -> range:
        """The frames that are decoded together with frame ``number``."""
        if not self.inner:
            return range(number, number + 1)
        start, stop = number, number + 1
        while start and self._is_inner(start - 1):
            start -= 1
        while self._is_inner(stop - 1):
            stop += 1
        return range(start, stop)

    def groups(self, runs: Iterable[range], most_bytes: int, most_stored: int | None = None) -> Iterator[list[range]]:
        """``runs`` joined if they lie back to back, up to ``most_bytes`` of the log and ``most_stored`` bytes of the
        object (None: any number). A longer run stays alone."""
        group: list[range] = []
        total = stored = 0
        for run in runs:
            size = len(self.content_range(run))
            more = 0 if most_stored is None else len(self.stored_range(run))
            is_full = total + size > most_bytes or (most_stored is not None and stored + more > most_stored)
            if group and (is_full or run.start != group[-1].stop):
                yield group
                group, total, stored = [], 0, 0
            group.append(run)
            total, stored = total + size, stored + more
        if group:
            yield group

    def at_offset(self, offset: int) -> int:
        """The frame that holds the byte at ``offset``. Raises IndexError for an offset after the end."""
        number = bisect_right(self.offsets, offset) - 1
        if offset < 0 or not self.sizes or offset >= self.offsets[-1] + self.lengths[-1]:
            raise IndexError(f"no byte at offset {offset}")
        return number

    def at_sequence(self, sequence: int) -> int:
        """The frame that holds the record with ``sequence``. If no record has it: the frame of the last record before
        it, or 0 if it precedes all. A frame in which no record starts counts as part of the one before."""
        number = max(0, bisect_right(self.firsts, sequence) - 1)
        while number and not self.records[number]:
            number -= 1
        return number

    def for_offsets(self, start: int, stop: int) -> range:
        """The frames to decode, in whole runs, for bytes [start, stop); may be empty."""
        end = self.offsets[-1] + self.lengths[-1] if self.sizes else 0
        start, stop = max(0, start), min(stop, end)
        if start >= stop:
            return range(0)
        return range(self.run_of(self.at_offset(start)).start, self.run_of(self.at_offset(stop - 1)).stop)

    def for_timestamps(self, lowest: int, highest: int) -> list[range]:
        """The runs, in order, that may hold records with timestamps from ``lowest`` to ``highest``, both inclusive."""
        return [
            self.run_of(number)
            for number, (low, high) in enumerate(zip(self.lowests, self.highests, strict=True))
            if low is not None and high is not None and low <= highest and high >= lowest
        ]

    def to_json(self) -> dict[str, object]:
        """The columns as JSON."""
        return {
            "sizes": write_column(self.sizes),
            "lengths": write_column(self.lengths),
            "firsts": write_differences(self.firsts),
            "records": write_column(self.records),
            "lowests": write_gapped(self.lowests),
            "highests": write_gapped(self.highests),
            "crcs": write_column(self.crcs),
            "checksums": write_column(self.checksums),
            "stored": write_column(self.stored),
            "inner": write_differences(self.inner),
        }

    @classmethod
    def from_json(cls, written: object) -> FrameTable:
        """The table that ``to_json`` wrote. Raises ValueError for anything else."""
        if not isinstance(written, dict):
            raise ValueError("frames are not a table")
        sizes = read_plain("sizes", written.get("sizes"))
        count = len(sizes)
        _require(count <= MAX_FRAMES, f"{count} frames are over the limit")
        lengths = read_plain("lengths", written.get("lengths"), count)
        for name, column, limit in (("size", sizes, MAX_STORED_BYTES), ("length", lengths, MAX_FRAME_BYTES)):
            _require(not count or 0 < min(column) <= max(column) <= limit, f"a frame's {name} is out of range")
        table = cls(
            starts=(0, *accumulate(sizes))[:count],
            sizes=sizes,
            offsets=(0, *accumulate(lengths))[:count],
            lengths=lengths,
            firsts=read_differences("firsts", written.get("firsts"), count),
            records=read_plain("records", written.get("records"), count),
            lowests=read_gapped("lowests", written.get("lowests"), count),
            highests=read_gapped("highests", written.get("highests"), count),
            crcs=read_plain("crcs", written.get("crcs"), count),
            checksums=read_plain("checksums", written.get("checksums"), count),
            stored=read_plain("stored", written.get("stored"), count),
            inner=read_differences("inner", written.get("inner")),
        )
        table._check()
        return table

    def _check(self) -> None:
        _require(_rises(self.firsts, by=0), "the frames' first sequences go back")
        _require(not self.firsts or self.firsts[0] >= 0, "a frame's first sequence is below 0")
        _require(not self.records or min(self.records) >= 0, "a frame has fewer than 0 records")
        for what, column in (("CRC-32C", self.crcs), ("content checksum", self.checksums), ("stored", self.stored)):
            _require(all(0 <= value < 1 << 32 for value in column), f"a frame's {what} is out of range")
        for low, high in zip(self.lowests, self.highests, strict=True):
            good = low is None if high is None else low is not None and low <= high
            _require(good, "a frame's timestamps are not a range")
        if not self.inner:
            return
        rising = _rises((-1, *self.inner), by=1)
        _require(rising and self.inner[-1] < len(self) - 1, "the frames that end inside a commit are out of range")
        for run in self.runs():
            size = len(self.content_range(run))
            _require(size <= MAX_RUN_BYTES, f"a run of frames holds {size} bytes")
            _require(not any(self.records[run.start + 1 : run.stop]), "records start inside a run of frames")

    def _is_inner(self, number: int) -> bool:
        at = bisect_left(self.inner, number)
        return at < len(self.inner) and self.inner[at] == number


def frames_of(runs: Sequence[range]) -> range:
    """The frames of runs that lie back to back; empty without a run."""
    return range(runs[0].start, runs[-1].stop) if runs else range(0)


@dataclass(frozen=True, slots=True)
class ShipTimes:
    """When bytes were shipped: those before ``offsets[i]`` by ``times[i]``, in microseconds since 1970."""

    offsets: Column
    """Strictly rising; the last one is the log segment's length."""
    times: Column
    """They never go back."""
    exact: bool = True
    """Whether each shipped WAL segment has a mark. If not, bytes may have been shipped earlier than the marks say."""

    def offset_at(self, time: int) -> int:
        """How many bytes were certainly shipped at ``time``, in microseconds since 1970."""
        number = bisect_right(self.times, time)
        return self.offsets[number - 1] if number else 0

    def through(self, length: int, time: int) -> ShipTimes:
        """These marks; if they end before ``length``, with one more for the rest, shipped at ``time``."""
        if self.offsets and self.offsets[-1] >= length:
            return self
        return ShipTimes((*self.offsets, length), (*self.times, max(time, *self.times[-1:], 0)), self.exact)

    def to_json(self) -> dict[str, object]:
        """The columns as JSON."""
        return {"offsets": write_differences(self.offsets), "times": write_differences(self.times), "exact": self.exact}

    @classmethod
    def from_json(cls, written: object, length: int) -> ShipTimes:
        """The marks that ``to_json`` wrote for a log segment of ``length`` bytes. ValueError for anything else."""
        if not isinstance(written, dict) or not isinstance(written.get("exact"), bool):
            raise ValueError("marks are not a table")
        offsets = read_differences("offsets of marks", written.get("offsets"))
        marks = cls(offsets, read_differences("times of marks", written.get("times"), len(offsets)), written["exact"])
        marks.check(length)
        return marks

    def check(self, length: int) -> None:
        """Raise ValueError if they are not in order, or do not end at ``length``."""
        _require(0 < len(self.offsets) <= MAX_MARKS, f"there are {len(self.offsets)} marks")
        _require(len(self.offsets) == len(self.times), "offsets and times of marks differ in number")
        _require(self.times[-1] < MOST, "a mark's time is out of range")
        rising = self.offsets == (0,) if length == 0 else _rises((0, *self.offsets), by=1)
        _require(rising and _rises((0, *self.times), by=0), "marks are out of order")
        _require(self.offsets[-1] == length, f"marks end at {self.offsets[-1]}, not at {length}")


def _rises(column: Column, by: int) -> bool:
    """Whether each value is at least ``by`` more than the one before it."""
    return all(after - before >= by for before, after in pairwise(column))


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise ValueError(reason)
