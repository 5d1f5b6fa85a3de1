"""The records of a replica as a stream: opens the replica, and closes it at the end."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from litelog.errors import ConfigError, EmptyLogError, NothingToRestoreError, NotYetAvailableError
from litelog.formats.committed_reading import CommittedReading
from litelog.formats.record_stream import RecordStream
from litelog.formats.registry import open_stored_format
from litelog.reading.last_commit import find_end
from litelog.reading.replica_reader import ReplicaReader
from litelog.stores.opening import naming_replica, open_retrying

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from litelog.formats import LogFormat
    from litelog.formats.columns import Columns
    from litelog.log.read_bounds import ReadBounds, Start
    from litelog.objects.position import Generation
    from litelog.stores.object_store import ObjectReplicaClient
    from litelog.stores.replica_client import ReplicaClient
    from litelog.stores.retrying_store import RetryPolicy


class ReplicaRecords(RecordStream):
    """The records of a replica, read with the checks of a restore."""

    def __init__(
        self,
        client: ObjectReplicaClient,
        reader: ReplicaReader,
        batches: Generator[Columns, None, None],
        stop: threading.Event,
    ) -> None:
        """For ``open_records``, which makes the object."""
        super().__init__()
        self.url = client.url
        self._client = client
        self._reader = reader
        self._stop = stop
        self._busy = threading.Lock()
        self._batches = batches

    def read(self) -> Columns | None:
        """Read the next records: those of one WAL segment, or of one frame of a sealed segment.

        Returns:
            At least one record; None at the end, after an error, and after ``close``.

        Raises:
            NotYetAvailableError: no record arrived in time. Only when following; call again later.
            NothingToRestoreError: the replica does not exist (a follower waits for it).
            TruncatedError: the start lies before the first record that exists.
            PrunedError: retention overtook the reader.
            DivergedError: the log's history forks.
            CorruptObjectError, ReplicaGapError: an object is damaged or missing.
            StoreError: a request failed.
        """
        with self._busy, naming_replica(self._client):
            columns = None if self._stop.is_set() else next(self._batches, None)
            if columns is not None and not len(columns):
                raise NotYetAvailableError(f"{self.url}: no record follows yet")
            return columns

    def sequence_after(self, columns: Columns) -> int:
        """The sequence after the last of records that ``read`` has returned."""
        return self._reader.sequence_after(columns)

    def close(self) -> None:
        """Stop reading, and release what is open. Idempotent."""
        self._stop.set()
        with self._busy:
            self._batches.close()
            self._client.close()


def open_records(  # noqa: PLR0913 - each is an independent choice
    url: str,
    options: Mapping[str, object],
    bounds: ReadBounds,
    *,
    follow: bool = False,
    timeout: float | None = None,
    poll_interval: float = 1.0,
    generation: Generation | None = None,
    pattern: str | None = None,
    committed: bool = False,
    retries: RetryPolicy | None = None,
) -> ReplicaRecords:
    """Open a replica to read its records. Makes no request yet, except to resolve "latest" and "end".

    Args:
        url: The replica's URL or path.
        options: Its backend's own options.
        bounds: Where to begin and end.
        follow: Wait for new records at the end of the replica. Without it, reading ends there.
        timeout: How many seconds ``read`` waits there before it raises NotYetAvailableError; None: for ever.
        poll_interval: Seconds between two polls at the end.
        generation: The generation to read; None: the latest one.
        pattern: Which names are log segments, for formats that need a pattern.
        committed: Read only records of committed transactions.
        retries: How long requests are repeated; None: as long as a server takes to restart.

    Raises:
        ConfigError: No installed package serves the URL.
        NothingToRestoreError, StoreError: "latest" or "end" cannot be resolved.
    """
    stop = threading.Event()
    formats = partial(open_stored_format, pattern=pattern)
    transactions = CommittedReading(formats) if committed else None
    client = open_retrying(url, options, stop, retries)
    try:
        with naming_replica(client):
            first = _first_sequence(client, bounds.start, generation, formats, follow=follow)
    except BaseException:
        client.close()
        raise
    reader = ReplicaReader(
        client,
        generation=generation,
        start=first,
        start_time=bounds.start_time,
        end=None if committed else bounds.end,
        follow=follow,
        timeout=timeout,
        poll_interval=poll_interval,
        stop=stop,
        formats=formats if transactions is None else transactions.open_format,
    )
    batches = _batches(reader, None if committed else bounds.end_time)
    if transactions is not None:
        batches = transactions.filtered(batches, bounds.end, bounds.end_time)
    return ReplicaRecords(client, reader, batches, stop)


def _first_sequence(
    client: ReplicaClient,
    start: int | Start,
    name: Generation | None,
    formats: Callable[[str], LogFormat],
    *,
    follow: bool,
) -> int | None:
    """The sequence to begin with; None for the beginning, also of a replica that holds nothing yet."""
    if isinstance(start, int) or start == "earliest":
        return start if isinstance(start, int) else None
    with suppress(NothingToRestoreError if follow else EmptyLogError):
        if (found := find_end(client, name, formats)) is not None:
            return found.last if start == "latest" else found.next
    return None


def _batches(reader: ReplicaReader, end_time: int | None) -> Generator[Columns, None, None]:
    with reader:
        for columns in reader.batches():
            if end_time is None or not len(columns):
                yield columns
                continue
            if columns.timestamps is None:
                raise ConfigError("the replica's records carry no timestamps to stop at: stop at a sequence")
            stop = columns.find_time(end_time)
            if stop:
                yield columns.slice(0, stop)
            if stop < len(columns):
                return
