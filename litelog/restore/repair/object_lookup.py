"""What a plan needs to know of single objects, and the look-up of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from litelog.errors import CorruptionError, NotFoundError, ReplicaGapError, UnknownVersionError
from litelog.formats import Expectation
from litelog.objects import wal_segment
from litelog.objects.frame_table import ShipTimes
from litelog.objects.layout import wal_key
from litelog.objects.position import generation
from litelog.objects.sealed_decoding import decode_run
from litelog.reading.fetch import read_verified
from litelog.reading.sealed_reader import open_sealed
from litelog.reading.search import HeaderReader
from litelog.reading.wal_cursor import describe_sealed
from litelog.restore.repair.sources import FallbackBytes, NoFallbackError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.formats import Commit, LogFormat
    from litelog.objects.position import Position
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.restore.repair.sources import FallbackReplicas
    from litelog.stores.replica_client import ReplicaClient

PLANNING_PARALLELISM = 8
"""Concurrent requests for headers: they are small, and wait for the store."""


class Lookup(Protocol):
    """What a plan needs to know of single objects."""

    def headers(self, positions: Sequence[Position]) -> list[WalHeader]:
        """The headers of the WAL segments at ``positions``."""

    def commits(self, header: WalHeader) -> list[Commit]:
        """The commits in the bytes of one WAL segment."""

    def entry(self, header: WalHeader) -> SnapshotEntry:
        """The sealed segment that a WAL segment stands for."""

    def footer(self, entry: SnapshotEntry) -> SealedFooter:
        """A sealed segment's footer."""

    def run_commits(self, entry: SnapshotEntry, footer: SealedFooter, run: range) -> list[Commit]:
        """The commits in a run of frames of a sealed segment."""

    def all_commits(self, entry: SnapshotEntry, why: CorruptionError) -> Iterator[Commit]:
        """Yield what other sources have of the commits of a damaged sealed segment; then raise ``why``."""

    def marks(self, entry: SnapshotEntry) -> ShipTimes:
        """When a log segment was shipped, from its WAL segments if its sealed segment is damaged."""


class ReplicaLookup:
    """Looks objects up in a replica."""

    def __init__(self, client: ReplicaClient, log_format: LogFormat, fallbacks: FallbackReplicas | None = None) -> None:
        """``fallbacks``: the other sources of damaged sealed segments."""
        self._client = client
        self._format = log_format
        self._fallback_bytes = FallbackBytes(client, fallbacks)
        self.headers = HeaderReader(client, PLANNING_PARALLELISM)
        self._entries: dict[Position, SnapshotEntry] = {}

    def commits(self, header: WalHeader) -> list[Commit]:
        position = header.position
        try:
            segment = read_verified(
                lambda: self._client.read_wal_segment(position),
                partial(wal_segment.decode_checked, wal_key(position)),
            )
        except NotFoundError as error:
            raise ReplicaGapError(str(position)) from error
        data = memoryview(segment.data())
        return self._format.commits(header.file, data, header.offset, Expectation(header.first))

    def entry(self, header: WalHeader) -> SnapshotEntry:
        position = header.position
        if position not in self._entries:
            self._entries[position] = describe_sealed(self._client, header)
        return self._entries[position]

    def footer(self, entry: SnapshotEntry) -> SealedFooter:
        try:
            return open_sealed(self._client, entry)[0]
        except NotFoundError as error:
            raise ReplicaGapError(entry.key) from error

    def run_commits(self, entry: SnapshotEntry, footer: SealedFooter, run: range) -> list[Commit]:
        frames = footer.frames
        start, stop = frames.starts[run.start], frames[run.stop - 1].stop
        name = generation(entry.generation)
        try:
            decoded = read_verified(
                lambda: self._client.read_sealed_segment(name, entry.sealed_index, start, stop - start),
                lambda body: decode_run(entry.key, footer, run, body, self._format),
            )
        except NotFoundError as error:
            raise ReplicaGapError(entry.key) from error
        return self._format.commits(entry.file, decoded.data, decoded.start, Expectation(frames.firsts[run.start]))

    def all_commits(self, entry: SnapshotEntry, why: CorruptionError) -> Iterator[Commit]:
        expect = Expectation(entry.first)
        try:
            for chunk in self._fallback_bytes.chunks(entry, 0, entry.length, proven=True):
                yield from self._format.commits(entry.file, chunk.data, chunk.start, expect)
                expect = self._format.scan(entry.path, chunk.data, chunk.start, expect).expectation
        except NoFallbackError:
            raise why from None

    def marks(self, entry: SnapshotEntry) -> ShipTimes:
        try:
            return self.footer(entry).marks
        except (CorruptionError, UnknownVersionError):
            headers = [header for header in self._fallback_bytes.wal_headers(entry) if header.length]
            marks = ShipTimes(tuple(header.end for header in headers), tuple(header.shipped for header in headers))
            if not headers or headers[0].offset or marks.offsets[-1] != entry.length:
                raise
            return marks
