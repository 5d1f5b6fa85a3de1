"""LiveBuffer: the newest durable commits of one log, read once for any number of readers.

Specified in litelog/live/README.md#the-buffer.
"""

from __future__ import annotations

import itertools
import logging
import threading
from bisect import bisect_right
from collections import deque
from dataclasses import field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from litelog.dataclass import dataclass
from litelog.errors import DivergedError, LitelogError, SourceMissingError
from litelog.events import fields, is_worth_logging
from litelog.live.wanted_forms import WantedForms
from litelog.log.early_sync import EarlySync
from litelog.log.follower import Follower
from litelog.objects.position import Position
from litelog.system.change_signal import ChangeSignal
from litelog.system.folder_signal import FolderSignal

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.formats import Expectation
    from litelog.formats.columns import Columns
    from litelog.live.encoding import Piece
    from litelog.log.source_position import CommitRun, SourcePosition
    from litelog.objects.claim import Claim
    from litelog.objects.position import Generation
    from litelog.shipping.context import LogSource
    from litelog.system.clock import Clock
    from litelog.system.inotify import Watcher

Encoded = TypeVar("Encoded", bound="Piece")

_logger = logging.getLogger(__name__)

_histories = itertools.count(1)

RUN_BYTES = 256 << 10
"""About how many bytes of the log a run holds. One commit may be larger."""

HELD_BYTES = 16 << 20
"""How many bytes a buffer holds, at least one run. A reader that falls further behind reads the folder."""

RUN_OVERHEAD_BYTES = 4 << 10
"""About how much memory a run takes in addition to its bytes: with its columns, and encoded."""

WATCHED_SECONDS = 4.0
"""How many seconds pass between two looks at a log whose changes the watcher reports."""

POLL_SECONDS = 0.05
"""How many seconds pass between two looks at a log whose changes it does not report."""

RETRY_SECONDS = 1.0
"""How many seconds pass before the log is looked at again after an error, or while it has no generation."""


@dataclass(eq=False)
class LiveRun:
    """A run of whole, durable commits of one log segment, as the buffer read it. Any thread may use it."""

    claim: Claim
    """The claim of the replica's generation. The run has the positions of that generation."""
    run: CommitRun
    _columns: Columns | None = None
    _encoded: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _encoding: threading.Lock = field(default_factory=threading.Lock)

    @property
    def position(self) -> Position:
        """Its beginning."""
        return Position(self.claim.generation, self.run.start.index, self.run.start.offset)

    @property
    def after(self) -> Position:
        """Its end."""
        return Position(self.claim.generation, self.run.after.index, self.run.after.offset)

    @property
    def first(self) -> int | None:
        """The sequence of its first record; None without records."""
        return None if self.run.scan is None else self.run.scan.first

    @property
    def next(self) -> int | None:
        """The sequence after its last record."""
        return self.run.after.sequence

    @property
    def size(self) -> int:
        return len(self.run.data)

    def columns(self, decode: Callable[[memoryview, int, Expectation], Columns]) -> Columns:
        """The records, decoded once. ``decode`` gets the bytes, their offset, and what their first commit must be."""
        with self._lock:
            if self._columns is None:
                start = self.run.start
                self._columns = decode(self.run.data, start.offset, start.expectation)
            return self._columns

    def find_encoded(self, kind: str) -> Piece | None:
        """The run in an encoding, if it was made before."""
        return self._encoded.get(kind)

    def encoded(self, kind: str, encode: Callable[[], Encoded]) -> Encoded:
        """The run in an encoding, made once for all readers."""
        with self._encoding:
            body: Encoded | None = self._encoded.get(kind)
            if body is None:
                body = self._encoded[kind] = encode()
        return body


@dataclass(frozen=True, slots=True)
class BufferView:
    """The contents of a buffer at one time."""

    generation: Generation | None = None
    """The generation whose positions the runs have; None before the first one begins."""
    history: int = 0
    """Rises whenever a buffer begins: at its start, with a new generation, and where the log was changed. No two
    buffers of a process have the same."""
    first: int | None = None
    """The sequence from which on all records are held; None if that is not known."""
    next: int | None = None
    """The sequence after the last durable record; None if the log holds none."""
    end: SourcePosition | None = None
    """The position after the last run."""
    error: str = ""
    """Why the log cannot be read now."""

    @property
    def position(self) -> Position | None:
        """Where the next run begins; None if that is not known."""
        if self.end is None or self.generation is None:
            return None
        return Position(self.generation, self.end.index, self.end.offset)


class LiveBuffer:
    """Follows a log in its own thread, and holds its newest runs. Any thread may call the methods.

    It begins at the position up to which a replica has acknowledged the log, and takes over the positions of that
    replica's generation. When the log's history forks, it begins again there: ``BufferView.history`` shows that.
    """

    def __init__(
        self,
        source: LogSource,
        find_start: Callable[[], tuple[Claim, SourcePosition] | None],
        watcher: Watcher,
        clock: Clock,
    ) -> None:
        """``find_start``: returns the replica's claim and acknowledged position; None before the first sync."""
        self._source = source
        self._find_start = find_start
        self._watcher = watcher
        self._clock = clock
        self._follower: Follower | None = None
        self._lock = threading.Lock()
        self._runs: deque[LiveRun] = deque()
        self._held = 0
        self._view = BufferView()
        self.changes = ChangeSignal()
        """Reports each change of ``view``."""
        self.wanted = WantedForms[LiveRun]()
        """The encoded forms that readers at the end wait for."""
        self._signal: FolderSignal | None = None
        """Wakes the thread; None before it runs."""
        self._stopped = False
        self._failures = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to follow the log. Idempotent, and can be repeated after an error. One thread at a time.

        Raises OSError or RuntimeError if the process can have no more descriptors or threads."""
        if self._thread is None:
            signal = FolderSignal(self._source.folder, self._watcher)
            thread = threading.Thread(target=self._run, args=(signal,), name="live", daemon=True)
            try:
                thread.start()
            except BaseException:
                signal.close()
                raise
            self._signal, self._thread = signal, thread

    def stop(self, timeout: float = 1.0) -> None:
        """End the thread, and wait for that up to ``timeout`` seconds. Idempotent."""
        self._stopped = True
        if self._signal is not None:
            self._signal.wake()
        if self._thread is not None:
            self._thread.join(timeout)

    @property
    def view(self) -> BufferView:
        """Its contents now."""
        return self._view

    def newest(self) -> LiveRun | None:
        """The newest run of the current history; None if there is none yet."""
        with self._lock:
            return self._runs[-1] if self._runs else None

    def look(self) -> tuple[BufferView, list[LiveRun]]:
        """Return what it holds, and the runs of the current history, of one moment."""
        with self._lock:
            return self._view, list(self._runs)

    def look_at(self, sequence: int) -> tuple[BufferView, list[LiveRun] | None]:
        """Return its view, and its runs from the first that holds the record ``sequence`` or a later record. The runs
        are None if the buffer no longer holds that record."""
        with self._lock:
            view = self._view
            if view.first is None or sequence < view.first:
                return view, None
            if view.next is not None and sequence >= view.next:
                return view, []
            return view, self._runs_from(bisect_right(self._runs, sequence, key=_next_of))

    def look_from(self, place: Position) -> tuple[BufferView, LiveRun | None, LiveRun | None]:
        """Return what it holds, its first run, and the first run that ends after ``place``, all of one moment."""
        with self._lock:
            runs = self._runs
            at = bisect_right(runs, place, key=_end_of)
            return self._view, runs[0] if runs else None, runs[at] if at < len(runs) else None

    def _runs_from(self, at: int) -> list[LiveRun]:
        """The runs from the one with the number ``at`` on: most readers are at the end."""
        if at == len(self._runs) - 1:
            return [self._runs[-1]]
        found = list(islice(reversed(self._runs), len(self._runs) - at))
        found.reverse()
        return found

    def _run(self, signal: FolderSignal) -> None:
        early = EarlySync(signal.wake)
        while not self._stopped:
            wait = RETRY_SECONDS
            try:
                # Armed before the sync begins, which bounds what is read: what is appended later wakes it again.
                armed = signal.arm()
                if self._follower is not None:
                    self._follower.begin_sync()
                placed = self._find_follower(early)
                if placed is not None:
                    self._read_all(*placed, early)
                    is_watched = armed and placed[1].withheld_by is None
                    wait = WATCHED_SECONDS if is_watched else POLL_SECONDS
                self._note_success()
            except DivergedError as error:
                self._release(early)  # what was read after the acknowledged position may be of another history
                self._set_error(str(error))
                signal.disarm()  # a new generation may be about to begin: wait for a while, whatever happens
            except (LitelogError, OSError) as error:
                self._go_back(early)
                self._fail(error)
                signal.disarm()
            except Exception:
                extra = fields("live-ended", log=self._source.folder)
                _logger.exception("%s: live reading ended; replication continues", self._source.folder, extra=extra)
                break
            signal.wait(wait)
        self._release(early)
        early.end()
        signal.close()

    def _go_back(self, early: EarlySync) -> None:
        """Read again what was not published because its sync failed."""
        early.close()
        published = self._view.end
        if self._follower is not None and published is not None and self._follower.place != published:
            self._follower.rewind(published)

    def _release(self, early: EarlySync) -> None:
        early.close()
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def _find_follower(self, early: EarlySync) -> tuple[Claim, Follower] | None:
        """The claim of the replica's current generation, and a follower whose runs have its positions; None before the
        first sync.

        In a new generation, the buffer begins again with a new follower.
        """
        found = self._find_start()
        if found is None:
            return None
        claim, place = found
        generation = claim.generation
        if self._follower is not None and generation == self._view.generation:
            return claim, self._follower
        self._release(early)
        source = self._source
        self._follower = follower = Follower(
            source.folder,
            source.format,
            place,
            self._clock,
            failed_syncs=source.failed_syncs,
            watermark=source.watermark,
            early=early,
        )
        with self._lock:
            self._runs.clear()
            self._held = 0
            self._view = BufferView(generation, next(_histories), place.sequence, place.sequence, place)
        self.changes.notify()
        return claim, follower

    def _read_all(self, claim: Claim, follower: Follower, early: EarlySync) -> None:
        follower.decode_up_to(self.wanted.decoded_bytes)
        while not self._stopped and (run := follower.next_run(RUN_BYTES)) is not None:
            live = LiveRun(claim, run, follower.columns_of(run))
            if not run.more:  # readers wait for it
                self.wanted.encode(live)
            early.then(partial(self._publish, live))
            if not run.more:
                return  # whatever comes after it wakes this thread

    def _publish(self, live: LiveRun) -> None:
        """Add a durable run."""
        with self._lock:
            view, end = self._view, live.run.after
            self._runs.append(live)
            self._held += live.size + RUN_OVERHEAD_BYTES
            first = view.first if view.first is not None else live.first
            while self._held > HELD_BYTES and len(self._runs) > 1:
                dropped = self._runs.popleft()
                self._held -= dropped.size + RUN_OVERHEAD_BYTES
                first = dropped.next
            self._view = BufferView(live.claim.generation, view.history, first, end.sequence, end)
        self.changes.notify()

    def _note_success(self) -> None:
        self._failures = 0
        if self._view.error:
            self._set_error("")

    def _fail(self, error: Exception) -> None:
        self._failures += 1
        self._set_error(str(error))
        if is_worth_logging(self._failures) and not isinstance(error, SourceMissingError):
            extra = fields("live-failed", log=self._source.folder, consecutive_failures=self._failures)
            _logger.warning("%s: cannot be read live (%d times in a row)", error, self._failures, extra=extra)

    def _set_error(self, text: str) -> None:
        with self._lock:
            self._view = replace(self._view, error=text)
        self.changes.notify()


def _next_of(run: LiveRun) -> int:
    """The sequence after a run; -1 if none is known yet."""
    return -1 if run.next is None else run.next


def _end_of(run: LiveRun) -> Position:
    return run.after
