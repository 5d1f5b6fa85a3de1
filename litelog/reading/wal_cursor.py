"""A place in a generation's WAL: checks each object against those before it, and moves past it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from litelog.errors import CorruptObjectError, NotFoundError, ReplicaGapError
from litelog.objects import wal_segment
from litelog.objects.chain import check_run, expectation, next_state, next_state_sealed, state_after
from litelog.objects.layout import sealed_key, wal_key
from litelog.objects.position import Position
from litelog.objects.snapshot_entries import make_entry
from litelog.reading.fetch import confirm_digest, ordered_prefetch, read_verified
from litelog.reading.sealed_reader import BrokenEntryError, SealedStart, read_listed_footer, read_sealed
from litelog.reading.search import read_segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor

    from litelog.formats import Expectation, LogFormat
    from litelog.formats.columns import Columns
    from litelog.objects.chain import ChainState
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader, WalSegment
    from litelog.stores.replica_client import ReplicaClient, WalSegmentInfo


class ShippedBatch(NamedTuple):
    """Records, and the time by which all of them were shipped, in microseconds since 1970; None if unknown."""

    columns: Columns
    shipped: int | None


class WalCursor:
    """Stands after the last WAL segment that was taken. One thread."""

    def __init__(
        self,
        client: ReplicaClient,
        executor: Executor,
        log_format: LogFormat,
        link: ChainState,
        place: Position | None = None,
    ) -> None:
        """``place``: yield nothing before this position."""
        self.link = link
        self.place = place
        self._client = client
        self._executor = executor
        self._format = log_format
        self._ahead: Iterator[tuple[Position, WalSegment | None]] = iter(())
        self._last: Position | None = None
        """The position of the last WAL segment that was taken; None if none was."""

    @classmethod
    def after(
        cls,
        client: ReplicaClient,
        executor: Executor,
        log_format: LogFormat,
        claim: Claim,
        position: Position,
        place: Position | None,
    ) -> WalCursor:
        """Make a cursor after the WAL segment at ``position``, and trust its header. Raises ReplicaGapError if that
        WAL segment is gone."""
        before = read_segment(client, position)
        return cls(client, executor, log_format, state_after(claim, before), place)

    @property
    def slot(self) -> Position:
        """The position of the next WAL segment."""
        return self.link.slot

    def expect(self, listed: Sequence[WalSegmentInfo]) -> None:
        """Read ahead these WAL segments, which come next."""
        jobs = ((info.size, partial(self._read_at, info.position)) for info in listed)
        self._ahead = ordered_prefetch(self._executor, jobs)

    def read(self) -> WalSegment | None:
        """Read the WAL segment at the slot; None if there is none (yet)."""
        for position, segment in self._ahead:
            if position == self.slot and segment is not None:
                return segment
            self._ahead = iter(())
        return self._read_at(self.slot)[1]

    def _read_at(self, position: Position) -> tuple[Position, WalSegment | None]:
        decode = partial(wal_segment.decode, wal_key(position))
        try:
            return position, read_verified(partial(self._client.read_wal_segment, position), decode)
        except NotFoundError:
            return position, None

    def take(self, segment: WalSegment) -> Iterator[ShippedBatch]:
        """Yield the contents of ``segment``, one batch or none, and move past it. If it stands for a sealed segment,
        yield the contents of that. If a check fails, read it once more: the bytes may have changed in transit."""
        if segment.header.sealed is not None:
            yield from self._take_sealed(segment)
            return
        try:
            batch = self._take(segment)
        except CorruptObjectError:
            batch = self._take(read_segment(self._client, segment.header.position))
        if batch is not None:
            yield batch

    def _take(self, segment: WalSegment) -> ShippedBatch | None:
        header = segment.header
        after = next_state(confirm_digest(self._client, self.link, self._last, header), segment, self._format)
        columns = self._decode(segment) if header.length else None
        self.link, self._last = after, header.position
        return None if columns is None else ShippedBatch(columns, header.shipped)

    def _decode(self, segment: WalSegment) -> Columns | None:
        header = segment.header
        data = segment.data()
        expect = expectation(self.link, header)
        scan = self._format.scan(header.path, data, header.offset, expect)
        check_run(header, segment.key, scan, self._format)
        place, offset = self.place, header.offset
        if place is not None:
            if Position(place.generation, header.index, header.end) <= place:
                return None
            if header.position < place:
                data, offset, expect = self._cut(segment, data, expect, place.offset)
            self.place = None
        return self._format.decode(header.path, data, offset, expect)

    def _cut(
        self, segment: WalSegment, data: memoryview, expect: Expectation, offset: int
    ) -> tuple[memoryview, int, Expectation]:
        """Cut off the data before ``offset``, where the generation before ended: a commit ends there in both."""
        head = offset - segment.header.offset
        scan = self._format.scan(segment.header.path, data[:head], segment.header.offset, expect)
        if scan.end != offset:
            raise CorruptObjectError(segment.key, "end of the commit that its predecessor ended with", offset, scan.end)
        return data[head:], offset, scan.expectation

    def _take_sealed(self, segment: WalSegment) -> Iterator[ShippedBatch]:
        header, entry = segment.header, describe_sealed(self._client, segment.header)
        link = confirm_digest(self._client, self.link, self._last, header)
        after = next_state_sealed(link, segment, entry, self._format)
        offset, place = header.offset, self.place
        if place is not None and place.index == header.index:
            offset = max(offset, place.offset)
        if place is None or place.index <= header.index:
            start = SealedStart(min(offset, entry.length))
            try:
                for batch in read_sealed(self._client, self._executor, [entry], self._format, start):
                    self.place = None
                    yield ShippedBatch(batch.columns, header.shipped)
            except BrokenEntryError as error:
                raise error.cause from None
        self.link, self._last = after, header.position


def describe(client: ReplicaClient, header: WalHeader) -> WalHeader | SnapshotEntry:
    """Return the facts about a WAL segment's records: its header or, if it stands for a sealed segment, the entry of
    that. Raises ReplicaGapError if the sealed segment is missing."""
    return header if header.sealed is None else describe_sealed(client, header)


def describe_sealed(client: ReplicaClient, header: WalHeader) -> SnapshotEntry:
    """Return the entry of the sealed segment that ``header`` stands for. Raises ReplicaGapError if it is missing."""
    entry = read_entry(client, header.position.generation, header.index, header)
    if entry is None:
        key = sealed_key(header.position.generation, header.index)
        raise ReplicaGapError(key, f"{wal_key(header.position)}, which stands for it")
    return entry


def read_entry(
    client: ReplicaClient, name: Generation, index: int, header: WalHeader | None = None
) -> SnapshotEntry | None:
    """Make the entry that a snapshot would have for a sealed segment, from its footer; None if it is missing. A listing
    and a GET. Raises CorruptObjectError if it is damaged, or belongs to another log than ``header``."""
    key = sealed_key(name, index)
    info = next(iter(client.sealed_segments(name, index)), None)
    if info is None or info.index != index:
        return None
    try:
        footer = read_listed_footer(client, info)
    except NotFoundError:
        return None
    for what in () if header is None else ("log", "format", "owner"):
        if getattr(footer, what) != getattr(header, what):
            raise CorruptObjectError(key, what, getattr(header, what), getattr(footer, what))
    return make_entry(footer, info.size)
