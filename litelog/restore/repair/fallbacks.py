"""The sources of lost bytes: the other replicas of the log, and the replica's own WAL segments."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from litelog.errors import CorruptionError, LitelogError, StoreError
from litelog.events import fields
from litelog.reading.wal_fallback import wal_segments_of
from litelog.restore.compare_histories import HistoryRelation, common_end, readable_claims, same_log
from litelog.restore.generation_bytes import ByteRun, GenerationBytes, LogPosition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from litelog.formats import LogFormat
    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.objects.wal_segment import WalHeader
    from litelog.stores.replica_client import ReplicaClient

_logger = logging.getLogger(__name__)


class NoFallbackError(LitelogError):
    """No other replica has the bytes. A restore never ends with this error."""


class FallbackReplicas:
    """The histories of other replicas that agree with the chosen replica's. Shared by threads.

    Makes no request to a replica before something is missing. A replica whose history differs, or cannot be compared,
    supplies nothing.
    """

    def __init__(
        self,
        chosen: GenerationBytes,
        others: Sequence[ReplicaClient],
        agreed: Sequence[tuple[GenerationBytes, LogPosition]] = (),
    ) -> None:
        """``agreed``: histories of ``others`` that are known to be the same, and up to where. They can be used even if
        the chosen replica is gone."""
        self._chosen = chosen
        self._others = others
        self._format: LogFormat = chosen.format
        self._agreed = list(agreed)
        self._known = {(id(history.client), history.claim.generation) for history, _ in agreed}
        self._left = self._find()
        self._lock = threading.Lock()

    def chunks(self, name: str, start: int, stop: int, *, proven: bool = True) -> Iterator[ByteRun]:
        """Yield bytes [start, stop) of a log segment, without a hole. Raises NoFallbackError if no replica has them.

        ``proven``: take bytes only from histories that are known to be the same up to ``stop``. A caller that has a
        digest of the bytes may also take them from a history that forks before.
        """
        order = self._format.segment_order(name)
        wanted = None if order is None else LogPosition(order, name, stop)
        for history, agreed in self._each():
            if start >= stop:
                return
            if wanted is None or (proven and not agreed.reaches(wanted)):
                continue
            try:
                for chunk in history.chunks(name, start, stop):
                    yield chunk
                    start = chunk.end
            except LitelogError as error:
                extra = fields("fallback-failed", replica=history.url, file=name)
                _logger.warning("%s: cannot help out: %s", history.url, error, extra=extra)
        if start < stop:
            raise NoFallbackError(f"{name}: no other replica has bytes {start} to {stop}")

    def finished_size(self, name: str) -> int | None:
        """The size of a finished log segment, in bytes; None if no replica knows it."""
        order = self._format.segment_order(name)
        for history, agreed in self._each():
            file = history.find(name)
            size = None if file is None else history.finished_size(file)
            if order is not None and size is not None and agreed.reaches(LogPosition(order, name, size)):
                return size
        return None

    def neighbour_name(self, name: str, distance: int) -> str | None:
        """The name of the log segment that is ``distance`` after ``name`` (before it, if negative); None if unknown."""
        for history, _ in self._each():
            names = [file.name for file in history.files()]
            at = names.index(name) + distance if name in names else -1
            if 0 <= at < len(names) and names[at]:
                return names[at]
        return None

    def _each(self) -> Iterator[tuple[GenerationBytes, LogPosition]]:
        """Yield all histories that agree, and up to where. Searches no further than the caller iterates."""
        at = 0
        while True:
            with self._lock:
                if at == len(self._agreed):
                    found = next(self._left, None)
                    if found is None:
                        return
                    self._agreed.append(found)
                history = self._agreed[at]
            yield history
            at += 1

    def _find(self) -> Iterator[tuple[GenerationBytes, LogPosition]]:
        for client in self._others:
            try:
                yield from self._agreeing(client)
            except LitelogError as error:
                extra = fields("fallback-failed", replica=client.url)
                _logger.warning("%s: cannot help out: %s", client.url, error, extra=extra)

    def _agreeing(self, client: ReplicaClient) -> Iterator[tuple[GenerationBytes, LogPosition]]:
        """Yield the generations of a replica that hold the chosen history, newest first."""
        for claim in readable_claims(client):
            known = (id(client), claim.generation) in self._known
            if not known and same_log(claim, self._chosen.claim, self._format):
                history = GenerationBytes(client, claim, self._format)
                verdict, place = common_end(self._chosen, history)
                if verdict is HistoryRelation.SAME and place is not None:
                    yield history, place


class FallbackBytes:
    """All other sources of a log segment's bytes. Makes no request before it is used. Shared by threads."""

    def __init__(self, client: ReplicaClient, fallbacks: FallbackReplicas | None) -> None:
        self._client = client
        self._fallbacks = fallbacks

    def chunks(self, entry: SnapshotEntry, start: int, stop: int, *, proven: bool) -> Iterator[ByteRun]:
        """Yield bytes [start, stop) of the log segment that ``entry`` describes. Raises NoFallbackError if no source
        has them.

        The bytes match the checksums of their own object. The caller checks that they are the sealed ones. ``proven``:
        as in ``FallbackReplicas.chunks``.
        """
        try:
            for chunk in self._wal_chunks(entry, start, stop):
                yield chunk
                start = chunk.end
        except (CorruptionError, StoreError) as error:
            self._report(entry, error)
        if start < stop:
            if self._fallbacks is None:
                raise NoFallbackError(f"{entry.file}: nothing else has bytes {start} to {stop}")
            yield from self._fallbacks.chunks(entry.file, start, stop, proven=proven)

    def wal_headers(self, entry: SnapshotEntry) -> Iterator[WalHeader]:
        """Yield the headers of its WAL segments, in order, up to the first missing or damaged one."""
        try:
            for segment in wal_segments_of(self._client, entry, 0):
                yield segment.header
        except (CorruptionError, StoreError) as error:
            self._report(entry, error)

    def _report(self, entry: SnapshotEntry, error: CorruptionError | StoreError) -> None:
        extra = fields("fallback-damaged", replica=self._client.url, file=entry.file)
        _logger.warning("%s: %s", self._client.url, error, extra=extra)

    def _wal_chunks(self, entry: SnapshotEntry, start: int, stop: int) -> Iterator[ByteRun]:
        for segment in wal_segments_of(self._client, entry, start):
            header = segment.header
            if header.end > start:
                data = segment.data()[start - header.offset : min(stop, header.end) - header.offset]
                total = header.crc_total if header.end <= stop else None
                yield ByteRun(start, data, self._client.url, entry.generation, total)
                start = min(stop, header.end)
            if start >= stop:
                return
