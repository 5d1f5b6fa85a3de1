"""AppendService: asynchronous appends to one log or several, which may wait for each other, and transactions.

Specified in litelog/log/README.md#appends-that-wait-for-others.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

from litelog.dataclass import dataclass
from litelog.errors import ClosedError, ConfigError, DependencyError
from litelog.formats.litelog.encoding import MAX_RECORDS, commit_bytes
from litelog.formats.log_format import MAX_COMMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType

    from litelog.log.batch import Values
    from litelog.log.group_commit import Appended
    from litelog.log.writer import LogWriter


AnyFuture: TypeAlias = "Future[Any]"
"""A future of anything: an append waits until it is done."""


@dataclass(slots=True, eq=False)
class _Queued:
    """An append that waits for its turn."""

    values: Values
    options: Mapping[str, Any]
    after: tuple[AnyFuture, ...]
    future: Future[Appended] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class _Lane:
    """The appends to one log. A separate thread passes them on, since the writer may have no room for more."""

    name: str
    writer: LogWriter
    changed: threading.Condition
    """Shares the lock of the service. Notified when the first append may have got its turn."""
    queue: deque[_Queued] = field(default_factory=deque)
    pending: set[Future[Appended]] = field(default_factory=set)
    thread: threading.Thread | None = None

    def is_ready(self) -> bool:
        """Whether the first append has its turn: all that it waits for is done."""
        return bool(self.queue) and all(each.done() for each in self.queue[0].after)


class AppendService:
    """Appends to several logs without waiting. Each log gets its appends in the order of the calls. Any thread may use
    it. A context manager.

        with litelog.AppendService({"orders": orders, "outbox": outbox}) as service:
            stored = service.append("orders", b"order 7")
            service.append("outbox", b"mail for order 7", after=[stored])
    """

    def __init__(self, logs: Mapping[str, LogWriter]) -> None:
        """``logs``: the writers, by names of the caller's choice. They stay the caller's, who closes them later."""
        self._lock = threading.Lock()
        self._lanes = {name: _Lane(name, writer, threading.Condition(self._lock)) for name, writer in logs.items()}
        self._closing = False
        self._here = threading.local()
        """``resolves``: whether this thread resolves a future, and so runs callbacks."""

    def append(self, log: str, values: Values, *, after: Iterable[AnyFuture] = (), **options: Any) -> Future[Appended]:
        """Append records to a log. Does not wait for the disk, nor for other appends.

        Args:
            log: The log's name.
            values: As for ``LogWriter.append``.
            after: Futures, of this service or of others. The records are written once all of them are done. Later
                appends to the log wait as well, so that the order stays.
            options: Further arguments of ``LogWriter.append``: ``key``, ``keys``, ``timestamps``, ``expected_sequence``
                and ``epoch``.

        Returns:
            A future of the result of ``LogWriter.append``, or of its error: if it failed, nothing was written. It is a
            DependencyError if a future of ``after`` failed or was cancelled.

        Raises:
            ConfigError: The service has no such log.
            ClosedError: The service is closed.
        """
        queued = _Queued(values, options, tuple(after))
        queued.future.set_running_or_notify_cancel()
        lane = self._lane_of(log)
        with self._lock:
            if self._closing:
                raise ClosedError("the append service is closed")
            if lane.thread is None:
                thread = threading.Thread(target=self._run, args=(lane,), name=f"append to {log}", daemon=True)
                thread.start()  # if that fails, nothing is queued
                lane.thread = thread
            lane.pending.add(queued.future)
            lane.queue.append(queued)
            lane.changed.notify_all()

        def wake(_: AnyFuture) -> None:
            with self._lock:
                lane.changed.notify_all()

        for each in queued.after:
            each.add_done_callback(wake)
        return queued.future

    @contextmanager
    def transaction(self, log: str, *, after: Iterable[AnyFuture] = ()) -> Iterator[Transaction]:
        """Collect records, and append them as one commit at the end of the block. If the block raises an error, nothing
        is written.

            with service.transaction("orders") as transaction:
                transaction.write(b"order 8")
                transaction.write(b"line 1 of order 8")
            transaction.result()  # waits until it is durable

        ``log``, ``after``: as for ``append``. Raises as ``append``, at the end of the block.
        """
        self._lane_of(log)
        transaction = Transaction()
        with transaction:
            yield transaction
        transaction.future = self.append(log, transaction.values, keys=transaction.keys, after=after)

    def pending_except(self, log: str | None = None) -> list[Future[Appended]]:
        """The futures of all appends that are not done, except those to one log. For ``after``."""
        with self._lock:
            return [future for name, lane in self._lanes.items() if name != log for future in lane.pending]

    def barrier(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds for all earlier appends. Return whether they are done. In a callback of a
        future it does not wait, as an append is done only after its callbacks."""
        return not wait(self.pending_except(), 0.0 if self._is_in_callback() else timeout).not_done

    def close(self) -> None:
        """Wait until all appends are done, and accept no more. Idempotent. In a callback of a future it does not
        wait: call it again elsewhere to wait."""
        with self._lock:
            self._closing = True
            threads = [lane.thread for lane in self._lanes.values() if lane.thread is not None]
            for lane in self._lanes.values():
                lane.changed.notify_all()
        if not self._is_in_callback():
            for thread in threads:
                thread.join()
            self.barrier()

    def __enter__(self) -> AppendService:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _is_in_callback(self) -> bool:
        return getattr(self._here, "resolves", False)

    def _lane_of(self, log: str) -> _Lane:
        if log not in self._lanes:
            raise ConfigError(f"{log}: no such log; known: {', '.join(sorted(self._lanes)) or 'none'}")
        return self._lanes[log]

    def _run(self, lane: _Lane) -> None:
        """Pass on the appends of a log whose turn has come, in its own thread: callbacks of writers must not wait."""
        while True:
            with lane.changed:
                lane.changed.wait_for(lambda: lane.is_ready() or (self._closing and not lane.queue))
                if not lane.queue:
                    return
                queued = lane.queue[0]
            self._pass_on(lane, queued)

    def _pass_on(self, lane: _Lane, queued: _Queued) -> None:
        failed = next((each for each in queued.after if each.cancelled() or each.exception() is not None), None)
        try:
            if failed is not None:
                cause = None if failed.cancelled() else failed.exception()
                raise DependencyError(lane.name, cause) from cause
            written = lane.writer.append_async(queued.values, **queued.options)
        except Exception as error:  # noqa: BLE001 - the future has it
            self._leave(lane)
            self._resolve(lane, queued, None, error)
            return
        self._leave(lane)
        written.add_done_callback(lambda done: self._resolve(lane, queued, done, None))

    def _leave(self, lane: _Lane) -> None:
        with self._lock:
            lane.queue.popleft()

    def _resolve(
        self, lane: _Lane, queued: _Queued, done: Future[Appended] | None, error: BaseException | None
    ) -> None:
        error = error if done is None else done.exception()
        outer, self._here.resolves = self._is_in_callback(), True
        try:
            if error is not None:
                queued.future.set_exception(error)
            elif done is not None:
                queued.future.set_result(done.result())
        finally:
            self._here.resolves = outer
            with self._lock:
                lane.pending.discard(queued.future)


class Transaction:
    """Records that are appended together, as one commit, or not at all. For ``AppendService.transaction``."""

    def __init__(self) -> None:
        """For ``AppendService.transaction``, which makes the object."""
        self.values: list[bytes] = []
        self.keys: list[bytes | None] = []
        self._bytes = 0
        self._ended = False
        self.future: Future[Appended] | None = None

    def write(self, value: bytes, *, key: bytes | None = None) -> None:
        """Add a record. It is not visible before the end of the block.

        Args:
            value: The record's value.
            key: Its key; None: none.

        Raises:
            ValueError: The records do not fit into one commit (65535 records, 32 MiB).
            ClosedError: The block has ended.
        """
        if self._ended:
            raise ClosedError("the transaction has ended")
        size, count = self._bytes + len(value) + len(key or b""), len(self.values) + 1
        if count > MAX_RECORDS or commit_bytes(count, size, keyed=True) > MAX_COMMIT_BYTES:
            raise ValueError(f"a transaction is one commit: at most {MAX_RECORDS} records and {MAX_COMMIT_BYTES} bytes")
        self._bytes = size
        self.values.append(bytes(value))
        self.keys.append(key)

    def result(self, timeout: float | None = None) -> Appended:
        """Wait until the records are written as the log's policy says.

        Args:
            timeout: Seconds; None: no limit.

        Returns:
            Their sequences.

        Raises:
            ClosedError: The block has not ended, or it raised an error: nothing was written.
            TimeoutError: The time is over. The records are written later.
            LitelogError: As ``AppendService.append`` says of its future.
        """
        if self.future is None:
            raise ClosedError("the transaction was not appended")
        return self.future.result(timeout)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
