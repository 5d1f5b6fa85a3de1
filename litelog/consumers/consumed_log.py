"""ConsumedLog: a log as its consumers read it, from its folder and its replicas, and where their positions are."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from typing import TYPE_CHECKING

from litelog.consumers.position_file import PositionFolder
from litelog.consumers.position_objects import PositionObjects
from litelog.consumers.served_positions import ServedPositions
from litelog.dataclass import dataclass
from litelog.errors import ConfigError, EmptyLogError, NothingToRestoreError, SourceMissingError, StoreError
from litelog.formats.capabilities import is_divisible
from litelog.formats.registry import open_stored_format
from litelog.log.read_bounds import ReadBounds
from litelog.log.reader import LogReader, choose_format
from litelog.log.replica_registry import default_state_dir, log_state_folder
from litelog.reading.combined_reader import CombinedReader, folder_source, replica_source
from litelog.reading.latest import find_latest
from litelog.reading.replica_records import open_records
from litelog.reading.several_places import IMPATIENT, replica_sources
from litelog.stores.capabilities import KeepsConsumers
from litelog.stores.opening import opened_replica
from litelog.stores.registry import local_folder, open_store, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from litelog.consumers.positions import ConsumerPositions
    from litelog.formats import LogFormat
    from litelog.formats.columns import Columns
    from litelog.formats.record_stream import RecordStream
    from litelog.reading.combined_reader import RecordSource

Address = tuple[str, "Mapping[str, object]"]
"""A replica's URL or path, and the options of its backend."""


@dataclass(frozen=True, slots=True)
class ConsumedLog:
    """A log as its consumers see it: the sources of its records, and the positions of the consumers."""

    name: str
    """For messages."""
    positions: ConsumerPositions
    """The positions of its consumers."""
    format: LogFormat
    sources: tuple[RecordSource, ...]
    """The first one has the end of the log."""
    open_at_time: tuple[Callable[[int], RecordStream], ...]
    """Open each source at the first record at or after a time, in microseconds since 1970."""

    @property
    def is_divisible(self) -> bool:
        """Whether sequences count bytes."""
        return is_divisible(self.format)

    def sequence_after(self, columns: Columns) -> int:
        """The sequence after the last of these records."""
        last = int(columns.sequences[-1])
        return last + (int(columns.value_lengths[-1]) if self.is_divisible else 1)

    def resolve(self, bounds: ReadBounds) -> int | None:
        """The sequence at which ``bounds`` begin; None: the first record of the log."""
        if bounds.start_time is not None:
            return self.find_time(bounds.start_time)
        if isinstance(bounds.start, int):
            return bounds.start
        if bounds.start == "earliest":
            return None
        return self.find_latest() if bounds.start == "latest" else self.find_end()

    def find_first(self) -> int | None:
        """The sequence of the first record that any source holds; None if there is none, or no log yet."""
        try:
            with CombinedReader(self.sources, attempts=1) as reader:
                columns = reader.read()
        except (SourceMissingError, EmptyLogError):
            return None
        return None if columns is None else int(columns.sequences[0])

    def find_end(self) -> int | None:
        """The sequence after the last record; None if there is none, or no log yet."""
        last = self._last_records()
        return None if last is None else self.sequence_after(last)

    def find_latest(self) -> int | None:
        """The sequence of the last record; None if there is none, or no log yet."""
        last = self._last_records()
        return None if last is None else int(last.sequences[-1])

    def find_time(self, time: int) -> int | None:
        """The sequence of the first record at or after ``time`` that any source holds, or else the end of the log.

        If the first source holds an earlier record, the others are not asked, since an unavailable source would delay
        the answer. Raises the errors of a reader of a source.
        """
        firsts = []
        for number, open_source in enumerate(self.open_at_time):
            try:
                with open_source(time) as stream:
                    columns = stream.read()
            except (SourceMissingError, NothingToRestoreError):
                continue
            first = None if columns is None else int(columns.sequences[0])
            firsts += [] if first is None else [first]
            if first == 0 or (number == 0 and self._holds_before(first)):
                break
        return min(firsts) if firsts else self.find_end()

    def _holds_before(self, sequence: int | None) -> bool:
        """Whether the first source holds a record before ``sequence``; None: any record."""
        try:
            with self.sources[0].open("earliest", sequence, False) as stream:
                return stream.read() is not None
        except (SourceMissingError, NothingToRestoreError):
            return False

    def _last_records(self) -> Columns | None:
        last = None
        try:
            with CombinedReader(self.sources, start="latest", attempts=1) as reader:
                for columns in reader.batches():
                    last = columns
        except (SourceMissingError, EmptyLogError):
            return None
        return last


def open_consumed_log(
    folder: str | None,
    replicas: Sequence[Address],
    log_format: LogFormat | str | None,
    pattern: str | None,
    state_dir: str | None,
) -> ConsumedLog:
    """Find out how to read a log. A log without a folder states its format in its first replica.

    The positions of a log in a folder are in its state folder. Those of another one are in ``state_dir`` if that is
    given, or else in its first replica, or with the daemon that serves it.

    Raises:
        ConfigError: Neither a folder nor a replica is there, or the arguments contradict each other.
        NothingToRestoreError, StoreError: There is no folder, and the replica cannot be read.
    """
    if folder is not None:
        opened = choose_format(log_format, pattern)
        return consumed_folder(folder, replicas, opened, pattern, state_dir or default_state_dir())
    if not replicas:
        raise ConfigError("a log is read from its folder or from a replica: name one")
    return ConsumedLog(
        redact(replicas[0][0]),
        _positions_of(state_dir, *replicas[0]),
        _stored_format(replicas, pattern),
        tuple(replica_sources(replicas, pattern)),
        tuple(partial(_replica_at, *each, pattern) for each in replicas),
    )


def consumed_folder(
    folder: str, replicas: Sequence[Address], log_format: LogFormat, pattern: str | None, state_dir: str
) -> ConsumedLog:
    """The log in a folder, with its replicas. ``pattern``: of the names of log segments in the replicas."""
    return ConsumedLog(
        folder,
        PositionFolder(log_state_folder(state_dir, folder)),
        log_format,
        (
            folder_source(folder, log_format, state_dir),
            *(replica_source(url, options, pattern) for url, options in replicas),
        ),
        (
            partial(_folder_at, folder, log_format, state_dir),
            *(partial(_replica_at, *each, pattern) for each in replicas),
        ),
    )


def _positions_of(state_dir: str | None, url: str, options: Mapping[str, object]) -> ConsumerPositions:
    """Open the positions of a replica's consumers, if it is read without its log's folder."""
    if state_dir is not None:
        return PositionFolder(replica_state_folder(state_dir, url, options))
    store = open_store(url, options)
    try:
        is_served = isinstance(store, KeepsConsumers)
    finally:
        store.close()
    return ServedPositions(url, options) if is_served else PositionObjects(url, options)


def replica_state_folder(state_dir: str, url: str, options: Mapping[str, object]) -> str:
    """Return the folder for the positions of consumers that read a replica without its log's folder."""
    store = open_store(url, options)
    try:
        place = store.url
    finally:
        store.close()
    path = local_folder(place)
    if path is not None:
        return log_state_folder(state_dir, path)
    shown = redact(url)
    name = shown.partition("?")[0].rstrip("/").rpartition("/")[2]
    digest = hashlib.sha256(f"{shown} {place}".encode(errors="surrogateescape")).hexdigest()[:16]
    return os.path.join(state_dir, f"{name}-{digest}")


def _stored_format(replicas: Sequence[Address], pattern: str | None) -> LogFormat:
    """The format that the first replica states which can be read. Raises the error of the first one if none can."""
    failure: StoreError | None = None
    policy = IMPATIENT if len(replicas) > 1 else None
    for url, options in replicas:
        try:
            with opened_replica(url, options, policy=policy) as client:
                return open_stored_format(find_latest(client).format, pattern=pattern)
        except StoreError as error:
            failure = failure or error
    raise failure or ConfigError("a log is read from its folder or from a replica: name one")


def _folder_at(folder: str, log_format: LogFormat, state_dir: str, time: int) -> RecordStream:
    return LogReader(folder, log_format, start_time=time, state_dir=state_dir)


def _replica_at(url: str, options: Mapping[str, object], pattern: str | None, time: int) -> RecordStream:
    return open_records(url, options, ReadBounds(start_time=time), pattern=pattern)
