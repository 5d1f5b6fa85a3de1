"""AppendService: asynchronous appends to one log or several, which may wait for each other, and transactions.

Specified in litelog/log/README.md#appends-that-wait-for-others.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

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


class AppendService:
    """Appends to several logs without waiting. Each log gets its appends in the order of the calls. Any thread may use
    it. A context manager.

        with litelog.AppendService({"orders": orders, "outbox": outbox}) as service:
            stored = service.append("orders", b"order 7")
            service.append("outbox", b"mail for order 7", after=[stored])
    """

    def __init__(self, logs: Mapping[str, LogWriter]) -> None:
        """``logs``: the writers, by names of the caller's choice. They stay the caller's, who closes them later."""
        self._writers = dict(logs)
        self._queues: dict[str, deque[_Queued]] = {name: deque() for name in self._writers}
        self._pending: dict[str, set[Future[Appended]]] = {name: set() for name in self._writers}
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None

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
            ConfigError: There is no such log.
            ClosedError: The service is closed.
        """
        queued = _Queued(values, options, tuple(after))
        queued.future.set_running_or_notify_cancel()
        with self._changed:
            queue = self._queue_of(log)
            if self._closing:
                raise ClosedError("the append service is closed")
            self._pending[log].add(queued.future)
            queue.append(queued)
            self._start()
            self._changed.notify_all()
        for each in queued.after:
            each.add_done_callback(self._wake)
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
        with self._changed:
            self._queue_of(log)
        transaction = Transaction()
        with transaction:
            yield transaction
        transaction.future = self.append(log, transaction.values, keys=transaction.keys, after=after)

    def pending_except(self, log: str | None = None) -> list[Future[Appended]]:
        """The futures of all appends that are not done, except those to one log. For ``after``."""
        with self._changed:
            return [future for name, futures in self._pending.items() if name != log for future in futures]

    def barrier(self, timeout: float | None = None) -> bool:
        """Wait until all appends so far are done. Returns whether they are, after ``timeout`` seconds at the latest."""
        return not wait(self.pending_except(), timeout).not_done

    def close(self) -> None:
        """Wait until all appends are done, and accept no more. Idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self.barrier()

    def __enter__(self) -> AppendService:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _queue_of(self, log: str) -> deque[_Queued]:
        if log not in self._queues:
            raise ConfigError(f"{log}: no such log; known: {', '.join(sorted(self._queues)) or 'none'}")
        return self._queues[log]

    def _wake(self, _: Future[Any]) -> None:
        with self._changed:
            self._changed.notify_all()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="append-service", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        """Pass on the appends whose turn has come, in the one thread that does: callbacks of writers must not wait."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._find_ready() or self._is_finished())
                ready = self._find_ready()
                if not ready:
                    return
            for log, queued in ready:
                self._pass_on(log, queued)

    def _find_ready(self) -> list[tuple[str, _Queued]]:
        """The first append of each log, if all that it waits for is done."""
        firsts = ((log, queue[0]) for log, queue in self._queues.items() if queue)
        return [(log, queued) for log, queued in firsts if all(each.done() for each in queued.after)]

    def _is_finished(self) -> bool:
        return self._closing and not any(self._queues.values())

    def _pass_on(self, log: str, queued: _Queued) -> None:
        failed = next((each for each in queued.after if each.cancelled() or each.exception() is not None), None)
        try:
            if failed is not None:
                cause = None if failed.cancelled() else failed.exception()
                raise DependencyError(log, cause) from cause
            written = self._writers[log].append_async(queued.values, **queued.options)
        except Exception as error:  # noqa: BLE001 - the future has it
            self._leave(log)
            self._resolve(log, queued, None, error)
            return
        self._leave(log)
        written.add_done_callback(lambda done: self._resolve(log, queued, done, None))

    def _leave(self, log: str) -> None:
        with self._changed:
            self._queues[log].popleft()

    def _resolve(self, log: str, queued: _Queued, done: Future[Appended] | None, error: BaseException | None) -> None:
        error = error if done is None else done.exception()
        with self._changed:
            self._pending[log].discard(queued.future)
        if error is not None:
            queued.future.set_exception(error)
        elif done is not None:
            queued.future.set_result(done.result())


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
