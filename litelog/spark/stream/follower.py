"""Runs a stream in the driver: finds its logs, tracks their offsets and sizes each batch. Does not need Spark."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from litelog.dataclass import dataclass
from litelog.errors import (
    ConfigError,
    LitelogError,
    NothingToRestoreError,
    PrunedError,
    ReplicaGapError,
    StoreError,
)
from litelog.events import fields
from litelog.reading.follower import Look
from litelog.spark.options import is_pattern
from litelog.spark.scan.inputs import find_places, is_ambiguous
from litelog.spark.scan.packing import pack
from litelog.spark.scan.task import open_client
from litelog.spark.stream.batching import Budget, choose
from litelog.spark.stream.options import StreamStart
from litelog.spark.stream.stable import StableEnd
from litelog.spark.stream.start import find_begin, find_end
from litelog.spark.stream.steps import LogOffset, MoveStep, decode, encode, encode_report, step_items, until
from litelog.spark.stream.tail import StreamTail
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from litelog.objects.position import Position
    from litelog.spark.scan.inputs import ScanInput
    from litelog.spark.scan.packing import Item
    from litelog.spark.scan.partitions import Partition
    from litelog.spark.stream.options import StreamOptions
    from litelog.spark.stream.steps import StreamStep
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)

_Given = TypeVar("_Given", bound="_Log | _BegunLog | StreamTail")
_Result = TypeVar("_Result")

JOBS = 16
"""Logs that are polled in parallel."""

AHEAD_STEPS = 1000
"""If this many objects of a log are known ahead, the log is not polled again until a batch takes some of them."""

LEAST_WAIT_SECONDS = 0.02
"""Pause between two polls of a log that just had news."""

QUIET_SHARE = 0.25
"""Pause between two polls, as a share of the time that a log has been quiet. New records are thus seen after at most a
quarter of the preceding quiet time. A quiet log costs a request per poll interval."""

PATIENCE_SECONDS = 600.0
"""How long a store may fail before planning a batch fails."""

PAUSE_SECONDS = 5.0
"""Pause before a store that failed is asked again, in addition to the retries of each request."""


@dataclass(slots=True)
class _Log:
    """One log of the stream."""

    place: ScanInput
    client: ReplicaClient
    look: float = 0.0
    """When to poll it next."""
    was_absent: bool = False
    """Whether it was empty at the first poll. Then the stream begins at its first record."""
    failed: bool = False
    """Whether its store failed at the last poll."""
    turn: int = 0
    """Number of the last batch that took records of it, as this process counts batches."""


@dataclass(slots=True)
class _BegunLog:
    """A log of which something is read."""

    log: _Log
    tail: StreamTail
    news: float
    """When it last had news."""
    stable: StableEnd | None = None
    """How far its records are decided, if only committed ones are rows."""


class StreamFollower:
    """Answers Spark's requests to a stream's driver. Encodes offsets as ``steps`` does. For one thread."""

    def __init__(
        self,
        options: StreamOptions,
        *,
        clock: Clock | None = None,
        clients: Callable[[ScanInput, threading.Event], ReplicaClient] | None = None,
        pause: float = PAUSE_SECONDS,
    ) -> None:
        """Create a follower.

        ``clients``: opens a replica's client, whose retries end with the event.
        ``pause``: replaces PAUSE_SECONDS.
        """
        self._pause = pause
        self._options = options
        self._wall = clock or SystemClock()
        self._clock = self._wall.monotonic
        self._stop = threading.Event()
        self._clients = clients or self._open
        self._logs: dict[str, _Log] = {}
        self._begun: dict[str, _BegunLog] = {}
        self._discover = float("-inf")
        self._missing: set[str] = set()
        self._targets: dict[str, Position | None] | None = None
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """End retries, and end the threads. Idempotent."""
        self._stop.set()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def initial(self) -> dict[str, Any]:
        """The offset before all records. It is a constant.

        The first batch is empty, and its end records where each log really starts. A repeated batch therefore begins at
        the same record.
        """
        return encode({})

    def prepare(self) -> None:
        """Let the stream end where the logs end now."""
        self._find_logs()
        found = self._patiently(partial(self._each, list(self._logs.values()), lambda log: find_end(log.client)))
        ends = dict(zip(self._logs, found, strict=True))
        self._targets = {name: None if end is None else end.position for name, end in ends.items()}

    def latest(self, start: Mapping[str, Any], budget: Budget) -> dict[str, Any]:
        """The end of a batch that begins at ``start``; ``start`` itself if there is nothing new."""
        offsets = decode(start)
        self._find_logs()
        self._require_known(offsets)
        begun = self._begin(offsets)
        if begun:
            return encode(offsets | begun)
        logs = {name: self._seek(name, log, offsets[name]) for name, log in self._logs.items() if name in offsets}
        ends = self._next(logs, offsets, budget)
        self._each([begun.tail for begun in logs.values() if begun.tail.is_backlog_unread], StreamTail.read_backlog)
        return encode(offsets | ends)

    def report(self) -> dict[str, Any] | None:
        """The end as last seen, and what of each log the last batch left; None before the first poll.

        Makes no request.
        """
        tails = {name: begun.tail for name, begun in self._begun.items()}
        if not tails:
            return None
        now = self._wall.now()
        backlogs = {name: tail.backlog().report(now) for name, tail in tails.items()}
        return encode_report({name: tail.head for name, tail in tails.items()}, backlogs)

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[Partition, ...]:
        """Plan the tasks of a batch. Repeated calls plan the same records."""
        first, behind = decode(start), decode(end)
        self._find_logs()
        items: list[list[Item]] = []
        for name, stop in sorted(behind.items()):
            at = first.get(name)
            if at is None or at == stop:
                continue
            self._require_known({name: at})
            if name in self._logs:
                items.append(self._patiently(partial(self._items, name, at, stop)))
        read = self._options.read
        if read.committed:
            return tuple(partition for some in items for partition in pack(some, read.max_partition_bytes, 1))
        whole = [item for some in items for item in some]
        return pack(whole, read.max_partition_bytes, read.num_partitions, least=read.min_partitions)

    def _find_logs(self) -> None:
        """Find the logs: once, and again at intervals if patterns name them."""
        patterned = any(is_pattern(path) for path in self._options.read.paths)
        if (self._logs and not patterned) or self._clock() < self._discover:
            return
        self._discover = self._clock() + self._options.discovery_interval
        try:
            places = self._patiently(partial(find_places, self._options.read)) if not self._logs else self._find_more()
        except NothingToRestoreError:
            if not patterned:
                raise
            return
        for place in places:
            if place.folder is not None:
                raise ConfigError(f"{place.folder}: is the folder of a log, not a replica: a stream reads replicas")
            if place.name not in self._logs:
                self._require_apart(place.name, self._logs)
                self._logs[place.name] = _Log(place, self._clients(place, self._stop))

    def _find_more(self) -> Sequence[ScanInput]:
        try:
            return find_places(self._options.read)
        except StoreError as error:
            self._forgive(error, "logs")
            return ()

    def _open(self, place: ScanInput, stop: threading.Event) -> ReplicaClient:
        return open_client(place.url, self._options.read.store, stop)

    def _require_apart(self, name: str, known: Iterable[str]) -> None:
        """Raise ConfigError if it is not certain that ``name`` is another log than the known ones."""
        for other in known:
            if is_ambiguous(name, other):
                raise ConfigError(
                    f"the stream knows log {other}, and its options now name {name}, which has the same path: name the "
                    "logs as before, or give the stream a new checkpointLocation"
                )

    def _require_known(self, offsets: Mapping[str, LogOffset]) -> None:
        for name in self._logs:
            if name not in offsets:
                self._require_apart(name, offsets)
        for name in sorted(offsets):
            if name not in self._logs and name not in self._missing:
                error = ReplicaGapError(str(offsets[name].position))
                error.add_note(f"the stream has an offset in log {name}, which its options do not name (any more)")
                self._lose(name, error)
                self._missing.add(name)

    def _begin(self, offsets: Mapping[str, LogOffset]) -> dict[str, LogOffset]:
        """The offsets at which the stream begins in the logs that are not in ``offsets``.

        Logs that are found later than the first ones begin with their first record.
        """
        starts = {} if offsets or not self._logs else self._options.starts_of([*self._logs])
        new = [name for name in self._logs if name not in offsets and self._is_due(name)]
        if self._targets is not None:
            new = [name for name in new if self._targets.get(name) is not None]
        found: dict[str, LogOffset] = {}
        for name in new:
            log = self._logs[name]
            find = partial(self._find_begin, log, starts.get(name, StreamStart()))
            begin = self._forgiving(log, find) if self._targets is None else self._patiently(find)
            if begin is not None:
                found[name] = begin
            elif not log.failed:
                log.was_absent = True
                log.look = self._clock() + max(self._options.poll_interval, PAUSE_SECONDS / 5)
        return found

    def _find_begin(self, log: _Log, start: StreamStart) -> LogOffset | None:
        wanted = StreamStart() if log.was_absent else start
        return find_begin(log.client, wanted, self._options.read.pattern, partial(self._lose, log.place.name))

    def _seek(self, name: str, log: _Log, at: LogOffset) -> _BegunLog:
        begun = self._begun.get(name)
        if begun is None:
            begun = self._begun[name] = _BegunLog(log, self._tail(log, at), self._clock())
            log.look = 0.0
        begun.tail.seek(at)
        return begun

    def _tail(self, log: _Log, at: LogOffset) -> StreamTail:
        lossy = not self._options.read.fail_on_data_loss
        return StreamTail(log.place.name, log.client, at, lossy=lossy, clock=self._clock)

    def _next(
        self, logs: Mapping[str, _BegunLog], offsets: Mapping[str, LogOffset], budget: Budget
    ) -> dict[str, LogOffset]:
        """The offset of each log after the next batch; empty if there is nothing new.

        A store that fails for a moment would end a query with AvailableNow early. So this method polls it again first.
        """
        for _ in range(int(PATIENCE_SECONDS / PAUSE_SECONDS)):
            self._look(logs)
            ends = self._choose(logs, offsets, replace(budget))
            short = [name for name, begun in logs.items() if begun.log.failed or self._is_due(name)]
            if self._targets is None or ends or not short:
                return ends
            if any(begun.log.failed for begun in logs.values()):
                self._stop.wait(self._pause)
        target = (self._targets or {}).get(short[0])
        raise ReplicaGapError(str(logs[short[0]].tail.head.position), str(target))

    def _look(self, logs: Mapping[str, _BegunLog]) -> None:
        """Poll the logs that are due."""
        due = [begun for name, begun in logs.items() if self._is_due(name)]
        self._each(due, self._advance)

    def _is_due(self, name: str) -> bool:
        log, begun = self._logs[name], self._begun.get(name)
        if self._targets is not None and begun is not None:
            target = self._targets.get(name)
            return target is not None and begun.tail.head.position < target
        is_far_ahead = begun is not None and len(begun.tail.steps) >= AHEAD_STEPS
        if is_far_ahead and not self._options.read.committed:  # an open transaction is decided by later objects
            return False
        return self._clock() >= log.look

    def _advance(self, begun: _BegunLog) -> None:
        log = begun.log
        news = self._forgiving(log, begun.tail.advance)
        now = self._clock()
        if news:
            begun.news = now
        if not log.failed:
            wait = max(LEAST_WAIT_SECONDS, QUIET_SHARE * (now - begun.news))
            log.look = now + min(wait, self._options.poll_interval)

    def _choose(
        self, logs: Mapping[str, _BegunLog], offsets: Mapping[str, LogOffset], whole: Budget
    ) -> dict[str, LogOffset]:
        """The offset of each log after the batch.

        Each log gets an equal share, and later logs may use what earlier ones leave. If the limit is too small for all,
        logs that have waited longest come first.
        """
        full = {name: begun for name, begun in logs.items() if begun.tail.steps}
        ends: dict[str, LogOffset] = {}
        turn = 1 + max((begun.log.turn for begun in logs.values()), default=0)
        for number, name in enumerate(sorted(full, key=lambda name: (full[name].log.turn, len(full[name].tail.steps)))):
            log, tail = full[name].log, full[name].tail
            budget = whole.share(len(full) - number)
            target = None if self._targets is None else self._targets.get(name)
            if self._targets is not None and target is None:
                continue
            end = self._forgiving(log, partial(self._take, full[name], offsets[name], budget, target))
            if end is not None and end != offsets[name]:
                ends[name] = end
                log.turn = turn
                whole.spend(tail.taken)
        return ends

    def _take(self, begun: _BegunLog, at: LogOffset, budget: Budget, target: Position | None) -> LogOffset:
        """Take the steps from ``at`` on that the budget allows. Returns the offset after the rows."""
        tail = begun.tail
        if not self._options.read.committed:
            return tail.take(at, choose(tail.steps, budget, target, tail))
        if begun.stable is None or not begun.stable.is_at(at):
            begun.stable = StableEnd(begun.log.place, self._options.read, at)
        return begun.stable.take(tail, at, budget, target)

    def _items(self, name: str, start: LogOffset, stop: LogOffset) -> list[Item]:
        log, begun, read = self._logs[name], self._begun.get(name), self._options.read
        bound = stop.sequence if read.committed else None
        if begun is not None and begun.tail.taken and begun.tail.taken[0].start == start.position:
            steps, claims = list(begun.tail.taken), begun.tail.claims
            took = begun.stable.took(start, stop) if begun.stable is not None else steps[-1].stop == stop.position
            if took:
                return step_items(log.place, read, claims, start, steps, bound)
        again = self._tail(log, start)
        steps = StableEnd(log.place, read, start).walk(again, stop) if read.committed else self._walk(again, stop)
        return step_items(log.place, read, again.claims, start, steps, bound)

    def _walk(self, tail: StreamTail, stop: LogOffset) -> list[StreamStep]:
        """The steps to ``stop``, looked up again. Raises ReplicaGapError if they end earlier."""
        _ = tail.claim
        at = stop.position
        while tail.head.position < at:
            if not tail.advance(Look.EPOCH):
                self._lose(tail.name, ReplicaGapError(str(tail.head.position), str(at)))
                break
            last = tail.steps[-1]
            if isinstance(last, MoveStep) and last.is_fork:
                if last.is_merge:  # the batch ended in log segments that are gone, so its end is at no known place
                    self._lose(tail.name, PrunedError(str(at)))
                break  # a move ends a batch, and pruning may have changed its destination since
            at = last.carry(at)
        return list(until(list(tail.steps), stop.position))

    def _lose(self, name: str, error: LitelogError) -> None:
        if self._options.read.fail_on_data_loss:
            raise error
        message = "%s: %s; continuing with the data that is left because of failOnDataLoss=false"
        _logger.warning(message, name, error, extra=fields("data-lost", log=name))

    def _forgive(self, error: StoreError, name: str) -> None:
        """Raise an error that retrying cannot fix; log any other, since a later poll may succeed."""
        if not error.retryable:
            raise error
        _logger.warning("%s: %s; looking again", name, error, extra=fields("store-failed", log=name))

    def _forgiving(self, log: _Log, call: Callable[[], _Result]) -> _Result | None:
        log.failed = False
        try:
            return call()
        except StoreError as error:
            self._forgive(error, log.place.name)
            log.failed = True
            log.look = self._clock() + PAUSE_SECONDS
            return None

    def _patiently(self, call: Callable[[], _Result]) -> _Result:
        until_then = self._clock() + PATIENCE_SECONDS
        while True:
            try:
                return call()
            except StoreError as error:
                if self._clock() >= until_then or self._stop.is_set():
                    raise
                self._forgive(error, "the stream")
                self._stop.wait(self._pause)

    def _each(self, logs: Sequence[_Given], call: Callable[[_Given], _Result]) -> list[_Result]:
        """Call ``call`` for each log, in parallel if there are several."""
        if len(logs) < 2:
            return [call(log) for log in logs]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(JOBS, "litelog-look")
        return list(self._pool.map(call, logs))
