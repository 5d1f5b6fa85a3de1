"""What a plan must know of single objects, and how it is looked up."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from litelog import wal_segment
from litelog.errors import NotFoundError, ReplicaGapError
from litelog.formats import Expectation
from litelog.layout import wal_key
from litelog.reading.checked_read import read_checked
from litelog.reading.wal_search import HeaderReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from litelog.formats import Commit, LogFormat
    from litelog.position import Position
    from litelog.replica_client import ReplicaClient
    from litelog.wal_segment import WalHeader

PLANNING_PARALLELISM = 8
"""Header requests at a time: they are small, and wait on the store."""


class Lookup(Protocol):
    """What a plan must know of single objects."""

    def headers(self, positions: Sequence[Position]) -> list[WalHeader]:
        """The headers of the WAL segments at ``positions``."""

    def commits(self, header: WalHeader) -> list[Commit]:
        """The commits in the bytes of one WAL segment."""


class ReplicaLookup:
    """Looks up in a replica."""

    def __init__(self, client: ReplicaClient, log_format: LogFormat) -> None:
        self._client = client
        self._format = log_format
        self.headers = HeaderReader(client, PLANNING_PARALLELISM)

    def commits(self, header: WalHeader) -> list[Commit]:
        position = header.position
        try:
            segment = read_checked(
                lambda: self._client.read_wal_segment(position),
                partial(wal_segment.decode_checked, wal_key(position)),
            )
        except NotFoundError as error:
            raise ReplicaGapError(str(position)) from error
        data = memoryview(segment.data())
        return self._format.commits(header.file, data, header.offset, Expectation(header.first))
