"""The bytes of one generation in one replica, in terms that all replicas share: names of log segments, and offsets."""

from __future__ import annotations

import threading
from bisect import bisect_right
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from litelog.dataclass import dataclass
from litelog.errors import CorruptionError, CorruptObjectError, NotFoundError, ReplicaGapError, UnknownVersionError
from litelog.objects.frame_table import frames_of
from litelog.reading.contents import list_pieces
from litelog.reading.fetch import ordered_prefetch
from litelog.reading.sealed_reader import open_sealed
from litelog.reading.search import HEADERS_AT_ONCE, HeaderReader, read_segment, read_segment_data
from litelog.reading.wal_cursor import describe_sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader, WalSegment
    from litelog.reading.sealed_reader import OpenedSealed
    from litelog.stores.replica_client import ReplicaClient, WalSegmentInfo

PARALLELISM = 8
"""Concurrent requests for headers."""

GET_BYTES = 8 << 20
"""About how many bytes of the log ``chunks`` reads from a sealed segment with one GET."""

AHEAD_BYTES = 32 << 20
"""The most bytes that ``chunks`` holds ahead of its reader; a single larger WAL segment is held alone."""

_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A place in a log, the same in every replica: after byte ``offset`` of log segment ``file``."""

    order: tuple[object, ...]
    """The format's sort key of ``file``."""
    file: str
    offset: int

    def reaches(self, other: LogPosition) -> bool:
        """Whether the log up to here includes the log up to ``other``."""
        return (self.order, self.offset) >= (other.order, other.offset)


@dataclass(frozen=True, slots=True)
class GenerationFile:
    """One log segment of a history: its index in that history, and the numbers of its WAL segments."""

    name: str
    """Empty if no header states it."""
    index: int
    pieces: range
    entry: SnapshotEntry | None = None
    """Its sealed segment; None without one."""


@dataclass(frozen=True, slots=True)
class ByteRun:
    """Bytes [start, start + len(data)) of a log segment, and their source."""

    start: int
    data: memoryview
    replica: str
    generation: Generation
    crc_total: int | None
    """CRC-32C of the log segment up to the run's end, as its object states it; None if the run ends in an object."""

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class GenerationBytes:
    """The intact bytes of one generation. Shared by threads.

    Skips damaged or missing objects without an error, unless the caller requested them. Raises a StoreError.
    """

    def __init__(
        self,
        client: ReplicaClient,
        claim: Claim,
        log_format: LogFormat,
        pieces: Sequence[WalSegmentInfo] | None = None,
        entries: Sequence[SnapshotEntry] | None = None,
    ) -> None:
        """``pieces``, ``entries``: use only these WAL segments and sealed segments. By default, uses all listed WAL
        segments, and the sealed segments that the newest snapshot names, and finds both when it first needs them."""
        self.claim = claim
        self.format = log_format
        self.url = client.url
        self.client = client
        self._pieces = pieces
        self._entries = entries
        self._opened: dict[str, OpenedSealed] = {}
        """By its key, the sealed segment that was read last."""
        self._headers = HeaderReader(client, PARALLELISM)
        self._files: list[GenerationFile] | None = None
        self._lock = threading.RLock()

    @property
    def pieces(self) -> Sequence[WalSegmentInfo]:
        """The WAL segments, in order."""
        with self._lock:
            if self._pieces is None:
                self._pieces = list(self.client.wal_segments(self.claim.generation))
            return self._pieces

    @property
    def entries(self) -> Sequence[SnapshotEntry]:
        """The sealed segments that its newest snapshot names, in order; none if the snapshot is damaged."""
        with self._lock:
            if self._entries is None:
                try:
                    self._entries = list_pieces(self.client, self.claim).base.entries
                except (CorruptionError, UnknownVersionError):
                    self._entries = ()
            return self._entries

    def header(self, number: int) -> WalHeader | None:
        """The header of the WAL segment of that number; None if it is damaged or missing."""
        with self._lock:
            try:
                return self._headers([self.pieces[number].position])[0]
            except CorruptionError:
                return None

    def files(self) -> list[GenerationFile]:
        """The log segments, in order. The first call makes a small request for each."""
        with self._lock:
            if self._files is None:
                self._files = self._find_files()
            return self._files

    def place_of(self, header: WalHeader) -> LogPosition | None:
        """The place after the bytes of a WAL segment; None if its file name is not a log segment's."""
        order = self.format.segment_order(header.file)
        return None if order is None else LogPosition(order, header.file, header.end)

    def end_of(self, entry: SnapshotEntry) -> LogPosition | None:
        """The place after a sealed segment's bytes; None if its file name is not a log segment's."""
        order = self.format.segment_order(entry.file)
        return None if order is None else LogPosition(order, entry.file, entry.length)

    def find(self, name: str) -> GenerationFile | None:
        """The log segment of that name."""
        return next((file for file in self.files() if file.name == name), None)

    def covering(self, file: GenerationFile, offset: int) -> int | None:
        """The number of the WAL segment that holds the byte at ``offset``; None if none does."""
        starts = [self.pieces[number].position.offset for number in file.pieces]
        at = bisect_right(starts, offset) - 1
        while at > 0 and starts[at] == offset and (header := self.header(file.pieces[at])) and not header.length:
            at -= 1
        return file.pieces[at] if at >= 0 else None

    def finished_size(self, file: GenerationFile) -> int | None:
        """The size of a log segment, in bytes; None if it still grows, or if its end is missing."""
        if file.entry is not None:
            return file.entry.length
        header = self.header(file.pieces[-1])
        return header.end if header is not None and header.final else None

    def read(self, number: int) -> WalSegment:
        """Read a WAL segment, and check its bytes. Raises CorruptObjectError and ReplicaGapError."""
        return read_segment(self.client, self.pieces[number].position)

    def chunks(self, name: str, start: int, stop: int, executor: Executor | None = None) -> Iterator[ByteRun]:
        """Yield bytes [start, stop) of a log segment, from one WAL segment or run of frames at a time.

        ``executor`` reads ahead. Raises ReplicaGapError if bytes are missing, and CorruptObjectError if they are
        damaged.
        """
        file = self.find(name)
        if file is not None and file.entry is not None and start < stop:
            try:
                for chunk in self._sealed_chunks(file.entry, start, stop, executor):
                    yield chunk
                    start = chunk.end
            except (CorruptionError, UnknownVersionError):
                if not file.pieces:
                    raise
        if start < stop:
            yield from self._wal_chunks(name, file, start, stop, executor)

    def _wal_chunks(
        self, name: str, file: GenerationFile | None, start: int, stop: int, executor: Executor | None
    ) -> Iterator[ByteRun]:
        first = None if file is None else self.covering(file, start)
        if file is None or first is None:
            raise ReplicaGapError(f"{self.url}: {name} from offset {start} on")
        numbers = [n for n in range(first, file.pieces.stop) if self.pieces[n].position.offset < stop]
        for segment, body in _in_order(executor, self._reads(numbers, stop)):
            header = segment.header
            if not header.length:
                continue
            if header.file != name or not header.offset <= start < header.end:
                raise _misplaced(name, start, segment)
            end = min(stop, header.end)
            data = body[start - header.offset : end - header.offset]
            total = header.crc_total if end == header.end else None
            yield ByteRun(start, data, self.url, self.claim.generation, total)
            start = end
        if start < stop:
            raise _misplaced(name, start, segment)

    def _reads(
        self, numbers: Sequence[int], stop: int
    ) -> Iterator[tuple[int, Callable[[], tuple[WalSegment, memoryview]]]]:
        starts = [self.pieces[number].position.offset for number in numbers]
        for number, begin, end in zip(numbers, starts, [*starts[1:], stop], strict=True):
            yield max(0, end - begin), partial(self._read_data, number)

    def _read_data(self, number: int) -> tuple[WalSegment, memoryview]:
        return read_segment_data(self.client, self.pieces[number].position)

    def _sealed_chunks(
        self, entry: SnapshotEntry, start: int, stop: int, executor: Executor | None
    ) -> Iterator[ByteRun]:
        if stop > entry.length:
            raise ReplicaGapError(f"{self.url}: {entry.file} from offset {entry.length} on")
        try:
            sealed = self._open(entry)
            frames = sealed.footer.frames
            groups = list(frames.groups(frames.runs(frames.for_offsets(start, stop)), GET_BYTES))
            places = [frames.content_range(frames_of(runs)) for runs in groups]
            reads = (
                (len(place), partial(sealed.read_runs, runs, self.format))
                for runs, place in zip(groups, places, strict=True)
            )
            for place, whole in zip(places, _in_order(executor, reads), strict=True):
                begin, end = max(start, place.start), min(stop, place.stop)
                data = whole[begin - place.start : end - place.start]
                yield ByteRun(begin, data, self.url, self.claim.generation, entry.crc if end == entry.length else None)
        except NotFoundError as error:
            raise ReplicaGapError(entry.key) from error

    def _open(self, entry: SnapshotEntry) -> OpenedSealed:
        with self._lock:
            opened = self._opened.get(entry.key)
        if opened is None:
            opened = open_sealed(self.client, entry)
            with self._lock:
                self._opened = {entry.key: opened}
        return opened

    def _find_files(self) -> list[GenerationFile]:
        sealed = {entry.index: GenerationFile(entry.file, entry.index, range(0), entry) for entry in self.entries}
        found = self._find_wal_files()
        sealed |= {
            file.index: replace(file, name=sealed[file.index].name, entry=sealed[file.index].entry)
            for file in found
            if file.index in sealed
        }
        return [*sealed.values(), *(file for file in found if file.index not in sealed)]

    def _find_wal_files(self) -> list[GenerationFile]:
        numbered = enumerate(piece.position.index for piece in self.pieces)
        groups = [[number for number, _ in group] for _, group in groupby(numbered, key=lambda pair: pair[1])]
        files = []
        for at in range(0, len(groups), HEADERS_AT_ONCE):
            batch = groups[at : at + HEADERS_AT_ONCE]
            self._read_ahead([group[0] for group in batch])
            files += [file for group in batch if (file := self._make_file(group))]
        return files

    def _make_file(self, group: list[int]) -> GenerationFile | None:
        """The log segment that some WAL segments form; None if they only are a terminal."""
        first = next(filter(None, map(self.header, group)), None)
        if first is not None and first.successor is not None:
            return None
        index = self.pieces[group[0]].position.index
        return GenerationFile(
            first.file if first else "", index, range(group[0], group[-1] + 1), self._reconstruct(group)
        )

    def _reconstruct(self, group: list[int]) -> SnapshotEntry | None:
        """The entry of the sealed segment that the last of some WAL segments stands for; None if there is none, or if
        it is damaged."""
        last = self.header(group[-1])
        try:
            return None if last is None or last.sealed is None else describe_sealed(self.client, last)
        except (CorruptionError, UnknownVersionError):
            return None

    def _read_ahead(self, numbers: Sequence[int]) -> None:
        """Read headers concurrently. Ignores a damaged one, which ``header`` finds again."""
        try:
            self._headers([self.pieces[number].position for number in numbers])
        except CorruptionError:
            return


def _in_order(executor: Executor | None, reads: Iterable[tuple[int, Callable[[], _Read]]]) -> Iterator[_Read]:
    """Yield the results of reads in order. ``reads``: as of ``ordered_prefetch``."""
    if executor is None:
        return (read() for _, read in reads)
    return ordered_prefetch(executor, reads, most_bytes=AHEAD_BYTES)


def _misplaced(name: str, start: int, segment: WalSegment) -> CorruptObjectError:
    header = segment.header
    return CorruptObjectError(segment.key, "bytes", f"{name} from {start} on", f"{header.file} to {header.end}")
