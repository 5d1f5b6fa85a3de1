"""ServedLog: one log that a daemon gives to other processes, with its buffer and its readers."""

from __future__ import annotations

import os
import threading
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from litelog.dataclass import dataclass
from litelog.live.live_buffer import LiveBuffer
from litelog.live.mirrors import MirrorPlace
from litelog.live.news_desk import NewsDesk
from litelog.live.replica_objects import ReplicaObjects
from litelog.objects.position import Position
from litelog.reading.combined_reader import CombinedReader, folder_source, replica_source
from litelog.system.files import folder_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from litelog.errors import LitelogError
    from litelog.formats import LogFormat
    from litelog.formats.columns import Columns
    from litelog.live.encoding import Piece
    from litelog.live.live_buffer import BufferView, LiveRun
    from litelog.live.mirrors import MirrorPositions
    from litelog.log.read_bounds import Start
    from litelog.log.source_position import SourcePosition
    from litelog.objects.position import Generation
    from litelog.reading.combined_reader import RecordSource
    from litelog.replicator.live_log import LiveLog
    from litelog.system.clock import Clock
    from litelog.system.inotify import Watcher

ATTEMPTS = 5
"""How often in a row a request to a replica may fail before a reader of the past gets the error."""


class ReaderConnection(Protocol):
    """The connection of a stream of pieces. While it is lent, any thread sends on it."""

    def lend(self) -> None:
        """Let ``send`` send from now on, if nothing is unsent. For the event loop's thread, as its stream waits."""

    def send(self, piece: Piece) -> bool:
        """Send a short piece, if the connection is lent, without waiting for its client. Returns whether it did: the
        event loop sends the rest of a piece that the client does not take at once. Any thread may call it."""

    def take_back(self) -> None:
        """No other thread sends from now on. For the event loop's thread, before the stream continues."""

    def send_sign(self, piece: bytes) -> bool:
        """Send a sign of life while the stream waits, without waking it. Returns whether it did. For the event loop's
        thread."""


@dataclass(eq=False)
class LiveReader:
    """One reader of a log, as the status shows it."""

    kind: str
    """The read log, and how to read it."""
    since: float
    """Monotonic seconds."""
    next: int | None = None
    """The sequence that it gets next."""
    sent_bytes: int = 0
    ended_by: LitelogError | None = None
    """Why its stream has to end."""
    wake: Callable[[], None] | None = None
    """Wakes its stream. For the event loop's thread."""
    connection: ReaderConnection | None = None
    """Its connection, which takes pieces of the stream as they are; None: the stream sends all of them itself."""

    def end(self, error: LitelogError) -> None:
        """Let the stream end with ``error``. For the event loop's thread."""
        self.ended_by = error
        if self.wake is not None:
            self.wake()


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The facts about a served log at one time. Sequences and positions are None if the log holds no record yet."""

    name: str
    folder: str
    format: str
    generation: str | None
    durable: int | None
    """The sequence after the last durable record."""
    durable_position: str | None
    acknowledged: int | None
    """The sequence after the last record that its first replica has acknowledged."""
    acknowledged_position: str | None
    readers: int
    error: str
    folder_id: str | None = None
    """Identifies the folder until the daemon's machine is booted again: a mirror does not take it for another one."""


@dataclass(eq=False)
class ServedLog:
    """A log, its buffer, and where its past is. Any thread may use it."""

    name: str
    """The name that requests use."""
    log: LiveLog
    buffer: LiveBuffer
    desk: NewsDesk
    """Wakes its readers in the server's event loop."""
    objects: ReplicaObjects
    """The objects of its first replica."""
    mirrors: MirrorPositions
    readers: set[LiveReader] = field(default_factory=set)
    sent_bytes: int = 0
    """Bytes that all readers got, since the start."""
    has_ended: bool = False
    """Whether its buffer was stopped, or will be at once: it takes no further reader."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, name: str, log: LiveLog, watcher: Watcher, clock: Clock, mirrors: MirrorPositions) -> ServedLog:
        """Make a served log. Its buffer does not run yet."""
        buffer = LiveBuffer(log.source, log.find_start, watcher, clock)
        return cls(name, log, buffer, NewsDesk(buffer), ReplicaObjects(*log.replicas[0]), mirrors)

    def columns(self, run: LiveRun) -> Columns:
        """The records of a run of the buffer."""
        source = self.log.source
        path = os.path.join(source.folder, run.run.start.file)
        return run.columns(partial(source.format.decode, path))

    def read_past(self, start: int | Start, end: int | None) -> CombinedReader:
        """A reader of the records before the buffer: from the folder while that holds them, and from replicas."""
        return CombinedReader(self.sources(), start=start, end=end, attempts=ATTEMPTS)

    def sources(self) -> Sequence[RecordSource]:
        """The sources of the log's past: its folder, and its replicas."""
        source, log = self.log.source, self.log
        replicas = (replica_source(url, options, log.pattern) for url, options in log.replicas)
        return [folder_source(source.folder, source.format, log.state_dir), *replicas]

    def is_acknowledged(self, position: Position) -> bool:
        """Whether the daemon knows that the first replica holds the WAL segment at ``position``."""
        shipped = self.log.find_start()
        if shipped is None:
            return False
        claim, place = shipped
        return position < Position(claim.generation, place.index, place.offset)

    def durable_end(self) -> Position | None:
        """The end of what is durable in the folder; None if it is unknown, as without readers."""
        return self.buffer.view.position

    def locate_mirror(self, position: Position) -> MirrorPlace:
        """Locate the position up to which a mirror is durable."""
        view, runs = self.buffer.look()
        is_current, following = position == view.position, None
        if is_current:
            following = view.next
        elif _reaches(view, position):
            before = [run for run in runs if run.after <= position]
            following = before[-1].next if before else None
        return MirrorPlace(position, following, view.history, is_current)

    def mirrored_next(self) -> int | None:
        """The highest sequence before which a mirror has all records durably; None if no mirror of this history is
        known."""
        view = self.buffer.view
        return None if view.generation is None else self.mirrors.find_next(view.history)

    def find_file(self, position: Position) -> str | None:
        """The name of the log segment in which a position lies, or empty if the folder no longer holds it; None if that
        is not known. Lists the folder."""
        view, source = self.buffer.view, self.log.source
        if view.end is None or not view.end.file or not _reaches(view, position):
            return None  # also between two log segments, as long as the second does not exist
        return name_before(source.folder, source.format, view.end.file, view.end.index - position.index) or ""

    def enter(self, reader: LiveReader) -> None:
        """Count a reader."""
        with self._lock:
            self.readers.add(reader)

    def leave(self, reader: LiveReader) -> None:
        """Stop counting a reader."""
        with self._lock:
            self.readers.discard(reader)

    def count(self, reader: LiveReader, sent: int, following: int | None) -> None:
        """Count bytes that a reader got."""
        with self._lock:
            reader.sent_bytes += sent
            reader.next = following
            self.sent_bytes += sent

    def all_readers(self) -> Iterator[LiveReader]:
        """Yield the current readers."""
        with self._lock:
            readers = list(self.readers)
        yield from readers

    def facts(self) -> LogFacts:
        """The current facts about the log."""
        view, source = self.buffer.view, self.log.source
        end, shipped = view.end, self.log.find_start()
        generation, place = (view.generation, None) if shipped is None else (shipped[0].generation, shipped[1])
        return LogFacts(
            self.name,
            source.folder,
            source.format.name,
            generation,
            view.next,
            _position(view.generation, end),
            None if place is None else place.sequence,
            _position(generation, place),
            len(self.readers),
            view.error,
            folder_id(source.folder),
        )


def name_before(folder: str, log_format: LogFormat, file: str, count: int) -> str | None:
    """The name of the log segment that is ``count`` before ``file`` in the folder; None if it is not there."""
    orders = [(order, name) for name in os.listdir(folder) if (order := log_format.segment_order(name)) is not None]
    names = [name for _, name in sorted(orders)]
    at = names.index(file) - count if file in names else -1
    return names[at] if at >= 0 else None


def _reaches(view: BufferView, position: Position) -> bool:
    """Whether a position lies in the part of its generation that the source holds durably, if that is known."""
    end = view.position
    return end is not None and end.generation == position.generation and position <= end


def _position(generation: Generation | None, place: SourcePosition | None) -> str | None:
    return None if generation is None or place is None else str(Position(generation, place.index, place.offset))
