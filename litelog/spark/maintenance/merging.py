"""Chooses which log segments become one, and writes that one. Their commits keep their bytes, and their ship times."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING

from litelog.codec.frame_codecs import Compression
from litelog.errors import CorruptObjectError
from litelog.formats.litelog import SEGMENT_HEADER_BYTES, LitelogFormat
from litelog.objects.frame_table import ShipTimes
from litelog.objects.sealed_encoding import FinishedSegment
from litelog.reading.sealed_reader import open_sealed
from litelog.spark.sink.segments import put_finished

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from litelog.codec.frame_codecs import FrameCodec
    from litelog.objects.claim import Claim
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.reading.sealed_reader import OpenedSealed
    from litelog.stores.replica_client import ReplicaClient

RUNS_HELD = 2
"""Decompressed runs of frames that are kept while a log segment is merged, as the reader may go back a little."""


def merged_length(entries: Sequence[SnapshotEntry]) -> int:
    """The length of the log segment that ``entries`` become: only the first one keeps its header."""
    return sum(entry.length for entry in entries) - SEGMENT_HEADER_BYTES * (len(entries) - 1)


def choose_merges(
    entries: Sequence[SnapshotEntry], most_bytes: int, may_merge: Callable[[SnapshotEntry], bool]
) -> list[tuple[SnapshotEntry, ...]]:
    """The log segments of a generation, in order, in groups that become one log segment each; most groups have one.

    A merged log segment has up to ``most_bytes``, and none of those that it replaces has more than half of that. So a
    record is copied a few times in the life of a log, and not at each merge. The last log segment stays, as it shows
    readers where the predecessor ends. ``may_merge`` decides about the others.
    """
    groups: list[tuple[SnapshotEntry, ...]] = [(entry,) for entry in entries[:-1]]
    while True:
        fewer = _merge_once(groups, most_bytes, may_merge)
        if len(fewer) == len(groups):
            return [*groups, *((entry,) for entry in entries[-1:])]
        groups = fewer


def _merge_once(
    groups: Sequence[tuple[SnapshotEntry, ...]], most_bytes: int, may_merge: Callable[[SnapshotEntry], bool]
) -> list[tuple[SnapshotEntry, ...]]:
    merged: list[tuple[SnapshotEntry, ...]] = []
    run: list[tuple[SnapshotEntry, ...]] = []
    for group in groups:
        together = [entry for part in (*run, group) for entry in part]
        fits = all(map(may_merge, group)) and merged_length(together) <= most_bytes
        if run and not (fits and run[-1][-1].next == group[0].first):
            merged += _join(run)
            run = []
        run.append(group)
    return [*merged, *_join(run)]


def _join(run: Sequence[tuple[SnapshotEntry, ...]]) -> list[tuple[SnapshotEntry, ...]]:
    """One group of ``run``; but a group that is larger than all others together stays alone."""
    if len(run) < 2:
        return list(run)
    lengths = [merged_length(group) for group in run]
    largest = lengths.index(max(lengths))
    if 2 * lengths[largest] > sum(lengths):
        return [*_join(run[:largest]), run[largest], *_join(run[largest + 1 :])]
    return [tuple(entry for group in run for entry in group)]


def write_merged(
    client: ReplicaClient,
    claim: Claim,
    index: int,
    entries: Sequence[SnapshotEntry],
    compression: Compression | None = None,
) -> SnapshotEntry:
    """Put the log segment that ``entries`` become, as the sealed segment ``index`` of the claim's generation.

    ``compression``: None for the codec of the first one.

    Memory holds a few frames. Raises CorruptionError for a damaged object, NotFoundError and StoreError.
    """
    merged = MergedBytes(client, entries)
    ends = merged.ends
    times = list(accumulate((entry.shipped_last for entry in entries), max))
    segment = FinishedSegment(
        claim=claim,
        index=index,
        file=entries[0].file,
        length=ends[-1],
        shipped=times[-1],
        marks=ShipTimes(tuple(ends), tuple(times)),
    )
    made = put_finished(client, segment, merged.read, compression=compression or Compression(merged.codec))
    _check(made, entries, ends[-1])
    return made


def _check(made: SnapshotEntry, entries: Sequence[SnapshotEntry], length: int) -> None:
    """Raise CorruptionError unless ``made`` holds all that ``entries`` hold."""
    lows = [entry.lowest for entry in entries if entry.lowest is not None]
    highs = [entry.highest for entry in entries if entry.highest is not None]
    facts = [
        ("bytes", length, made.length),
        ("records", sum(entry.records for entry in entries), made.records),
        ("first sequence", entries[0].first, made.first),
        ("sequence after", entries[-1].next, made.next),
        ("lowest timestamp", min(lows, default=None), made.lowest),
        ("highest timestamp", max(highs, default=None), made.highest),
    ]
    for what, expected, actual in facts:
        if expected != actual:
            raise CorruptObjectError(made.key, f"{what} after a merge", expected, actual)


class MergedBytes:
    """Reads the bytes of consecutive log segments as those of one. Reading forward costs each run of frames once."""

    def __init__(self, client: ReplicaClient, entries: Sequence[SnapshotEntry]) -> None:
        self._client = client
        self._entries = entries
        skipped = [0, *(SEGMENT_HEADER_BYTES for _ in entries[1:])]
        lengths = [entry.length - skip for entry, skip in zip(entries, skipped, strict=True)]
        self._starts = [0, *accumulate(lengths)]
        self._skipped = skipped
        self._opened: tuple[int, OpenedSealed] | None = None
        self._held: deque[tuple[int, int, memoryview]] = deque(maxlen=RUNS_HELD)

    @property
    def ends(self) -> list[int]:
        """The end of each log segment, in bytes."""
        return self._starts[1:]

    @property
    def codec(self) -> FrameCodec:
        """The codec of the first one. Raises as ``read``."""
        return self._open(0).footer.codec

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset`` on; fewer at the end. Raises CorruptionError, NotFoundError, StoreError."""
        pieces: list[memoryview] = []
        while length > 0 and offset < self._starts[-1]:
            number = bisect_right(self._starts, offset) - 1
            start, data = self._run(number, offset - self._starts[number] + self._skipped[number])
            piece = data[start : start + length]
            pieces.append(piece)
            offset, length = offset + len(piece), length - len(piece)
        return b"".join(pieces)

    def _run(self, number: int, at: int) -> tuple[int, memoryview]:
        """The decoded run of frames that holds offset ``at`` of a log segment, and where that is in it."""
        for held, start, data in self._held:
            if held == number and start <= at < start + len(data):
                return at - start, data
        sealed = self._open(number)
        frames = sealed.footer.frames
        run = sealed.read_run(frames.run_of(frames.at_offset(at)), LitelogFormat())
        self._held.append((number, run.start, run.data))
        return at - run.start, run.data

    def _open(self, number: int) -> OpenedSealed:
        if self._opened is None or self._opened[0] != number:
            self._opened = number, open_sealed(self._client, self._entries[number])
        return self._opened[1]
