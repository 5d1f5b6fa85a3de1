"""Looks up facts about single objects for a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from litelog.errors import NotFoundError, ReplicaGapError
from litelog.formats import Expectation
from litelog.reading.sealed_reader import open_sealed
from litelog.reading.search import HeaderReader, read_segment
from litelog.reading.wal_cursor import describe_sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from litelog.formats import Commit, LogFormat
    from litelog.objects.frame_table import ShipTimes
    from litelog.objects.position import Position
    from litelog.objects.sealed_segment import SealedFooter
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.reading.sealed_reader import OpenedSealed
    from litelog.stores.replica_client import ReplicaClient

PLANNING_PARALLELISM = 8
"""Concurrent requests for headers: they are small, and wait for the store."""


class Lookup(Protocol):
    """Looks up facts about single objects."""

    def headers(self, positions: Sequence[Position]) -> list[WalHeader]:
        """The headers of the WAL segments at ``positions``."""

    def commits(self, header: WalHeader) -> list[Commit]:
        """The commits in the bytes of one WAL segment."""

    def entry(self, header: WalHeader) -> SnapshotEntry:
        """The sealed segment that a WAL segment stands for."""

    def commits_around(
        self, entry: SnapshotEntry, run_of: Callable[[SealedFooter], range]
    ) -> tuple[int, Iterable[Commit]]:
        """Return an offset before a bound, and the commits of a sealed segment from that offset on.

        ``run_of``: returns the run of frames in which the bound lies, from the footer.
        """

    def marks(self, entry: SnapshotEntry) -> ShipTimes:
        """The times at which a log segment was shipped."""


class ReplicaLookup:
    """Looks up objects in a replica."""

    def __init__(self, client: ReplicaClient, log_format: LogFormat, known: WalHeader | None = None) -> None:
        """``known``: a header that was just read."""
        self._client = client
        self._format = log_format
        self.headers = HeaderReader(client, PLANNING_PARALLELISM, known)
        self._entries: dict[Position, SnapshotEntry] = {}

    def commits(self, header: WalHeader) -> list[Commit]:
        segment = read_segment(self._client, header.position)
        data = segment.data()
        return self._format.commits(header.file, data, header.offset, Expectation(header.first))

    def entry(self, header: WalHeader) -> SnapshotEntry:
        position = header.position
        if position not in self._entries:
            self._entries[position] = describe_sealed(self._client, header)
        return self._entries[position]

    def commits_around(self, entry: SnapshotEntry, run_of: Callable[[SealedFooter], range]) -> tuple[int, list[Commit]]:
        sealed = self._open(entry)
        run = run_of(sealed.footer)
        try:
            decoded = sealed.read_run(run, self._format)
        except NotFoundError as error:
            raise ReplicaGapError(entry.key) from error
        expect = Expectation(sealed.footer.frames.firsts[run.start])
        return decoded.start, self._format.commits(entry.file, decoded.data, decoded.start, expect)

    def marks(self, entry: SnapshotEntry) -> ShipTimes:
        return self._open(entry).footer.marks

    def _open(self, entry: SnapshotEntry) -> OpenedSealed:
        try:
            return open_sealed(self._client, entry)
        except NotFoundError as error:
            raise ReplicaGapError(entry.key) from error
