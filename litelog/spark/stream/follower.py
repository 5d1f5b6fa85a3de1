"""A stream in the driver: its logs, where each one stands, and what the next batch takes. It needs no Spark."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from litelog.errors import ConfigError, LitelogError, NothingToRestoreError, ReplicaGapError, StoreError
from litelog.events import fields
from litelog.spark.options import is_pattern
from litelog.spark.scan.inputs import find_places, full_name
from litelog.spark.scan.packing import pack
from litelog.spark.scan.task import open_client
from litelog.spark.stream.plan import step_items, until
from litelog.spark.stream.start import find_begin, find_end
from litelog.spark.stream.steps import Budget, LogOffset, choose, decode, encode
from litelog.spark.stream.tail import Tail
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from litelog.objects.position import Position
    from litelog.spark.scan.inputs import Place
    from litelog.spark.scan.packing import Item
    from litelog.spark.scan.partitions import Partition
    from litelog.spark.stream.options import StreamOptions
    from litelog.spark.stream.steps import Step
    from litelog.stores.replica_client import ReplicaClient

_logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

JOBS = 16
"""Logs that are looked at side by side."""

AHEAD_STEPS = 1000
"""So many objects known ahead in a log, and it is not looked at before a batch took of them."""

LEAST_WAIT_SECONDS = 0.02
"""Between two looks at a log that just had news."""

QUIET_SHARE = 0.25
"""How long is waited between two looks at a log: this share of how long it has been quiet. So what comes is seen after
a quarter of the pause before it at most, and a quiet log costs a request for each poll interval."""

DISCOVERY_SECONDS = 60.0
"""How often a pattern is looked up: a listing."""

PATIENCE_SECONDS = 600.0
"""How long a store may fail before a batch that must be planned fails."""

PAUSE_SECONDS = 5.0
"""Before a store that failed is asked again, beside the waits of each request's own retries."""


@dataclass(slots=True)
class _Log:
    """One log of the stream."""

    place: Place
    client: ReplicaClient
    tail: Tail | None = None
    """None as long as nothing of it was read."""
    look: float = 0.0
    """When to look at it next."""
    news: float = 0.0
    """When it had any last."""
    was_absent: bool = False
    """Whether there was nothing of it when it was looked at first: then it begins at its first record."""
    failed: bool = False
    """Whether its store failed at the last look."""
    turn: int = 0
    """The batch that took of it last, as they are numbered here."""


class StreamFollower:
    """What Spark asks a stream's driver for. Offsets as ``steps`` spells them. One thread."""

    def __init__(
        self,
        options: StreamOptions,
        *,
        clock: Callable[[], float] | None = None,
        clients: Callable[[Place, threading.Event], ReplicaClient] | None = None,
        pause: float = PAUSE_SECONDS,
    ) -> None:
        """``clock``: steady seconds. ``clients``: opens a replica's client; retries end with the event. ``pause``: as
        PAUSE_SECONDS."""
        self._pause = pause
        self._options = options
        self._clock = clock or SystemClock().monotonic
        self._stop = threading.Event()
        self._clients = clients or self._open
        self._logs: dict[str, _Log] = {}
        self._discover = float("-inf")
        self._missing: set[str] = set()
        self._targets: dict[str, Position | None] | None = None
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Try no request again, and end its threads. Idempotent."""
        self._stop.set()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    # --- what Spark asks for

    def initial(self) -> dict[str, Any]:
        """Before all that is read; always the same. Where that is in each log, the first offset behind it says: the
        batch between the two holds nothing. So a batch that is made again begins at the same record."""
        return encode({})

    def prepare(self) -> None:
        """Take what is there now as all that there is."""
        self._find_logs()
        found = self._patiently(partial(self._each, list(self._logs.values()), lambda log: find_end(log.client)))
        ends = dict(zip(self._logs, found, strict=True))
        self._targets = {name: None if end is None else end.position for name, end in ends.items()}

    def latest(self, start: Mapping[str, Any], max_bytes: int | None, max_files: int | None) -> dict[str, Any]:
        """The end of a batch that begins at ``start``: ``start`` itself where there is nothing new."""
        offsets = decode(start)
        self._find_logs()
        self._require_known(offsets)
        begun = self._begin(offsets)
        if begun:
            return encode(offsets | begun)
        logs = {name: log for name, log in self._logs.items() if name in offsets}
        for name, log in logs.items():
            self._seek(log, offsets[name])
        ends = self._next(logs, offsets, Budget(max_bytes, max_files))
        return encode(offsets | ends)

    def report(self) -> dict[str, Any] | None:
        """The end as it was last seen; None before that. No request."""
        heads = {name: log.tail.head for name, log in self._logs.items() if log.tail is not None}
        return encode(heads) if heads else None

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[Partition, ...]:
        """What the tasks of a batch read: the same records, however often it is asked for."""
        first, behind = decode(start), decode(end)
        self._find_logs()
        items: list[Item] = []
        for name, stop in sorted(behind.items()):
            at = first.get(name)
            if at is None or at == stop:
                continue
            self._require_known({name: at})
            if name in self._logs:
                items += self._patiently(partial(self._items, self._logs[name], at, stop))
        read = self._options.read
        return pack(items, read.max_partition_bytes, read.num_partitions)

    # --- which logs

    def _find_logs(self) -> None:
        """Look which logs there are: at first, and now and then where a pattern names them."""
        patterned = any(is_pattern(path) for path in self._options.read.paths)
        if (self._logs and not patterned) or self._clock() < self._discover:
            return
        self._discover = self._clock() + DISCOVERY_SECONDS
        try:
            places = self._patiently(partial(find_places, self._options.read)) if not self._logs else self._find_more()
        except NothingToRestoreError:
            if not patterned:
                raise
            return
        for place in places:
            if place.folder is not None:
                raise ConfigError(f"{place.folder}: is the folder of a log, and no replica: a stream reads replicas")
            name = full_name(place)
            if name not in self._logs:
                self._logs[name] = _Log(place, self._clients(place, self._stop))

    def _find_more(self) -> Sequence[Place]:
        try:
            return find_places(self._options.read)
        except StoreError as error:
            self._forgive(error, "logs")
            return ()

    def _open(self, place: Place, stop: threading.Event) -> ReplicaClient:
        return open_client(place.url, self._options.read.store, stop)

    def _require_known(self, offsets: Mapping[str, LogOffset]) -> None:
        for name in sorted(offsets):
            if name not in self._logs and name not in self._missing:
                error = ReplicaGapError(str(offsets[name].position))
                error.add_note(f"the stream stands there in log {name}, which its options do not name (any more)")
                self._lose(name, error)
                self._missing.add(name)

    def _begin(self, offsets: Mapping[str, LogOffset]) -> dict[str, LogOffset]:
        """Where to begin in the logs that are not in ``offsets``. Those found beside others begin with their first
        record."""
        is_first = not offsets
        new = [name for name in self._logs if name not in offsets and self._is_due(name)]
        if self._targets is not None:
            new = [name for name in new if self._targets.get(name) is not None]
        found: dict[str, LogOffset] = {}
        for name in new:
            log = self._logs[name]
            find = partial(self._find_begin, log, is_first=is_first)
            begin = self._forgiving(log, find) if self._targets is None else self._patiently(find)
            if begin is not None:
                found[name] = begin
            elif not log.failed:
                log.was_absent = True
                log.look = self._clock() + max(self._options.poll_interval, PAUSE_SECONDS / 5)
        return found

    def _find_begin(self, log: _Log, *, is_first: bool) -> LogOffset | None:
        options = self._options
        start = options.start if is_first and not log.was_absent else type(options.start)()
        return find_begin(log.client, start, options.read.pattern, partial(self._lose, log.place.name))

    # --- what there is

    def _seek(self, log: _Log, at: LogOffset) -> None:
        if log.tail is None:
            log.tail = self._tail(log, at)
            log.look, log.news = 0.0, self._clock()
        log.tail.seek(at)

    def _tail(self, log: _Log, at: LogOffset) -> Tail:
        lossy = not self._options.read.fail_on_data_loss
        return Tail(log.place.name, log.client, at, lossy=lossy, clock=self._clock)

    def _next(self, logs: Mapping[str, _Log], offsets: Mapping[str, LogOffset], budget: Budget) -> dict[str, LogOffset]:
        """Where each log stands behind the next batch; empty where there is nothing new. A query that ends with what is
        there now would end at a store that failed for a moment: it asks again first."""
        for _ in range(int(PATIENCE_SECONDS / PAUSE_SECONDS)):
            self._look(logs)
            ends = self._choose(logs, offsets, replace(budget))
            short = [name for name, log in logs.items() if log.failed or self._is_due(name)]
            if self._targets is None or ends or not short:
                return ends
            if any(log.failed for log in logs.values()):
                self._stop.wait(self._pause)
        tail, target = self._logs[short[0]].tail, (self._targets or {}).get(short[0])
        assert tail is not None
        raise ReplicaGapError(str(tail.head.position), str(target))

    def _look(self, logs: Mapping[str, _Log]) -> None:
        """Look at the logs whose time has come."""
        due = [log for name, log in logs.items() if self._is_due(name)]
        self._each(due, self._advance)

    def _is_due(self, name: str) -> bool:
        log, tail = self._logs[name], self._logs[name].tail
        if self._targets is not None and tail is not None:
            target = self._targets.get(name)
            return target is not None and tail.head.position < target
        if tail is not None and len(tail.steps) >= AHEAD_STEPS:
            return False
        return self._clock() >= log.look

    def _advance(self, log: _Log) -> None:
        tail = log.tail
        assert tail is not None
        news = self._forgiving(log, tail.advance)
        now = self._clock()
        if news:
            log.news = now
        if not log.failed:
            wait = max(LEAST_WAIT_SECONDS, QUIET_SHARE * (now - log.news))
            log.look = now + min(wait, self._options.poll_interval)

    def _choose(
        self, logs: Mapping[str, _Log], offsets: Mapping[str, LogOffset], whole: Budget
    ) -> dict[str, LogOffset]:
        """Where each log stands behind the batch. Each has an equal share; what one leaves, the next ones may take.
        Where that is too little for all of them, those come first that waited longest."""
        full = {name: log.tail for name, log in logs.items() if log.tail is not None and log.tail.steps}
        ends: dict[str, LogOffset] = {}
        turn = 1 + max((log.turn for log in logs.values()), default=0)
        for number, name in enumerate(sorted(full, key=lambda name: (logs[name].turn, len(full[name].steps)))):
            tail = full[name]
            budget = whole.share(len(full) - number)
            target = None if self._targets is None else self._targets.get(name)
            if self._targets is not None and target is None:
                continue
            chosen = choose(tail.steps, budget, target)
            end = self._forgiving(logs[name], partial(tail.take, offsets[name], chosen))
            if end is not None and end != offsets[name]:
                ends[name] = end
                logs[name].turn = turn
                whole.spend(tail.taken)
        return ends

    # --- what tasks read

    def _items(self, log: _Log, start: LogOffset, stop: LogOffset) -> list[Item]:
        tail = log.tail
        if tail is not None and tail.taken and tail.taken[0].start == start.position:
            steps, claims = list(tail.taken), tail.claims
            if steps[-1].stop == stop.position:
                return step_items(log.place, self._options.read, claims, start, steps)
        again = self._tail(log, start)
        steps = self._walk(again, stop)
        return step_items(log.place, self._options.read, again.claims, start, steps)

    def _walk(self, tail: Tail, stop: LogOffset) -> list[Step]:
        """The steps to ``stop``, looked up anew. ReplicaGapError where they end before."""
        _ = tail.claim
        at = stop.position
        while tail.head.position < at:
            if not tail.advance() and not tail.leave():
                self._lose(tail.name, ReplicaGapError(str(tail.head.position), str(at)))
                break
            at = tail.steps[-1].carry(at)
        return list(until(list(tail.steps), stop.position))

    # --- stores that fail, and what is lost

    def _lose(self, name: str, error: LitelogError) -> None:
        if self._options.read.fail_on_data_loss:
            raise error
        said = "%s: %s; going on at what is there, as failOnDataLoss=false says"
        _logger.warning(said, name, error, extra=fields("data-lost", log=name))

    def _forgive(self, error: StoreError, name: str) -> None:
        """Raise what no time mends; say the other, which a later look may not meet."""
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

    def _each(self, logs: Sequence[_Log], call: Callable[[_Log], _Result]) -> list[_Result]:
        """``call`` for each, side by side where there are several."""
        if len(logs) < 2:
            return [call(log) for log in logs]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(JOBS, "litelog-look")
        return list(self._pool.map(call, logs))
