"""Reads a log segment's bytes from replicas: one history after another, the latest history of each replica first."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, LitelogError, NoReplicaError, NothingToRestoreError, OtherLogError
from litelog.objects.claim import Relation
from litelog.restore.compare_histories import readable_claims
from litelog.restore.generation_bytes import GenerationBytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.formats import LogFormat
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.restore.generation_bytes import ByteRun
    from litelog.stores.replica_client import ReplicaClient


@dataclass(frozen=True, slots=True)
class HeldFile:
    """The part of a log segment that a history holds: its first ``size`` bytes."""

    size: int
    is_finished: bool
    digest: str | None
    """SHA-256 of these bytes; None if the log segment is not sealed."""


class History:
    """One generation of a replica."""

    def __init__(self, generation: GenerationBytes, *, is_latest: bool) -> None:
        """``is_latest``: the replica's latest generation, or a generation that it continues, or a person's choice."""
        self._bytes = generation
        self.is_latest = is_latest
        self.url = generation.url
        self.generation = str(generation.claim.generation)

    def held(self, name: str) -> HeldFile | None:
        """Find the part of the log segment ``name`` that it holds; None if nothing. Raises StoreError."""
        file = self._bytes.find(name)
        if file is None:
            return None
        if file.entry is not None:
            return HeldFile(file.entry.length, True, file.entry.digest)
        headers = (self._bytes.header(number) for number in reversed(file.pieces))
        last = next((header for header in headers if header is not None), None)
        return None if last is None else HeldFile(last.end, last.final, None)

    def between(self, before: str | None, after: str | None) -> list[str]:
        """The names of the log segments between two names, in order. None: no bound. Raises
        StoreError."""
        order = self._bytes.format.segment_order
        named = ((order(file.name), file.name) for file in self._bytes.files() if file.name)
        low, high = order(before or ""), order(after or "")
        return [
            name
            for key, name in named
            if key is not None and (low is None or key > low) and (high is None or key < high)
        ]

    def read(self, name: str, start: int, stop: int) -> Iterator[ByteRun]:
        """Yield bytes [start, stop) of a log segment, checked. Raises CorruptionError and StoreError."""
        at = start
        for run in self._bytes.chunks(name, start, stop) if start < stop else ():
            at = run.end
            yield run
        if at != stop:
            raise CorruptObjectError(f"{self.url}: {name}", "bytes up to", stop, at)


class HistorySearch:
    """Finds the histories of some replicas. Makes no request before it is iterated, and each request once."""

    def __init__(
        self, clients: Sequence[ReplicaClient], log_format: LogFormat, log_id: str | None, generation: Generation | None
    ) -> None:
        """``log_id``: the log's, in hex; None if its files state none. ``generation``: the only one to take; None:
        all."""
        self._clients = clients
        self._format = log_format
        self._log_id = log_id
        self._generation = generation
        self._found: list[History] = []
        self._left = self._find()
        self.knows_log = log_id is not None
        """Whether all histories are known to be of this log."""
        self.skipped: dict[str, str] = {}
        """Why a replica's histories, or the rest of them, could not be read: by its URL."""

    def __iter__(self) -> Iterator[History]:
        """Yield the histories: all latest ones first."""
        at = 0
        while True:
            if at == len(self._found):
                found = next(self._left, None)
                if found is None:
                    return
                self._found.append(found)
            yield self._found[at]
            at += 1

    def skip(self, url: str, error: LitelogError) -> None:
        """Note that a replica could not be read."""
        if url not in self.skipped:
            self.skipped[url] = str(error)

    def _find(self) -> Iterator[History]:
        earlier: list[Iterator[History]] = []
        for client in self._clients:
            histories = self._of(client)
            for history in histories:
                if not history.is_latest:
                    earlier.append(chain((history,), histories))
                    break
                yield history
        for rest in earlier:
            yield from rest

    def _of(self, client: ReplicaClient) -> Iterator[History]:
        """Yield a replica's histories, newest first."""
        try:
            newer: Claim | None = None
            is_latest, found = True, False
            for claim in readable_claims(client):
                self._require_same_log(client, claim)
                if newer is not None:
                    continued = newer.relation is Relation.CONTINUES and newer.predecessor == claim.generation
                    is_latest = is_latest and continued
                newer = claim
                if self._generation is None or claim.generation == self._generation:
                    chosen = is_latest or self._generation is not None
                    found = True
                    yield History(GenerationBytes(client, claim, self._format), is_latest=chosen)
            if newer is None:
                raise NoReplicaError(client.url)
            if not found:
                raise NothingToRestoreError(f"{client.url}: no generation {self._generation}")
        except LitelogError as error:
            self.skip(client.url, error)

    def _require_same_log(self, client: ReplicaClient, claim: Claim) -> None:
        if claim.format != self._format.name:
            raise OtherLogError(
                client.url, f"one of format {self._format.name}", f"{claim.log} of format {claim.format}"
            )
        if self._log_id is not None and claim.log != self._log_id:
            raise OtherLogError(client.url, self._log_id, claim.log)
