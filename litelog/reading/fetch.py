"""Verified, ordered and bounded reads: an object is read again if a check fails, and read-ahead is limited.

Bytes may change in transit, so one failed check proves nothing about the store.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from litelog.errors import CorruptObjectError, LitelogError, NotFoundError, StoreError
from litelog.objects import wal_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor, Future
    from types import TracebackType
    from typing import Self

    from litelog.objects.chain import ChainState
    from litelog.objects.position import Position
    from litelog.objects.wal_segment import WalHeader
    from litelog.stores.replica_client import ReplicaClient

_Checked = TypeVar("_Checked")
_Read = TypeVar("_Read")

READ_ATTEMPTS = 3
"""How often an object is read before damage is attributed to the store."""


def read_verified(read: Callable[[], _Read], check: Callable[[_Read], _Checked], held: _Read | None = None) -> _Checked:
    """Read an object, and return the result of ``check`` for its bytes. If either raises CorruptObjectError, read
    again, up to READ_ATTEMPTS times in all; then raise the error. ``held``: bytes that count as the first read."""
    for number in range(READ_ATTEMPTS - 1):
        try:
            return check(read() if number or held is None else held)
        except CorruptObjectError:
            pass
    return check(read())


def confirm_digest(client: ReplicaClient, link: ChainState, before: Position | None, header: WalHeader) -> ChainState:
    """Return ``link``, with the digest that ``header`` names if another read of the object before has this digest.

    The bytes of that object may have changed in transit in a way that its own checksums do not cover: LZ4 can encode
    the same content in several ways. Makes no request if the digests agree.

    Args:
        client: the replica.
        link: the state of the chain, with the digest of the object as it was read.
        before: the position of that object; None if it is not a WAL segment.
        header: the header of the next object.
    """
    if before is None or link.digest in ("", header.previous):
        return link
    for _ in range(READ_ATTEMPTS - 1):  # it was read once
        try:
            body = client.read_wal_segment(before)
        except (NotFoundError, StoreError):
            break  # the digests stay different, and the caller reports that
        if wal_segment.digest([body]) == header.previous:
            return replace(link, digest=header.previous)
    return link


_Result = TypeVar("_Result")

AHEAD_BYTES = 16 << 20
"""The most bytes that are held ahead of the reader; a single larger piece is held alone."""

AHEAD_JOBS = 8
"""The most concurrent requests."""


class GrowingRoom:
    """How many jobs may run ahead: one at first, and twice as many each time that its owner calls ``grow``."""

    def __init__(self, most_jobs: int) -> None:
        self._most_jobs = most_jobs
        self.jobs = 1

    def grow(self) -> None:
        """Allow twice as many jobs, up to the most."""
        self.jobs = min(2 * self.jobs, self._most_jobs)


def ordered_prefetch(
    executor: Executor,
    jobs: Iterable[tuple[int, Callable[[], _Result]]],
    most_bytes: int = AHEAD_BYTES,
    most_jobs: int = AHEAD_JOBS,
    room: GrowingRoom | None = None,
) -> Iterator[_Result]:
    """Yield the results of ``jobs`` in order. A job is the size of its result in bytes, and a function to call.

    Takes a job when there is room for its result. Raises the error of a job, or of the iteration of ``jobs``, after all
    earlier results. Jobs that have not begun when the iteration ends never run.

    ``room``: limits the jobs instead of ``most_jobs``, for a caller that may want the first results only.
    """
    waiting: deque[tuple[int, Future[_Result]]] = deque()
    making, held = iter(jobs), 0
    failure: LitelogError | None = None
    try:
        while True:
            while len(waiting) >= (most_jobs if room is None else room.jobs):
                taken, future = waiting.popleft()
                yield future.result()
                held -= taken
            try:
                size, job = next(making)
            except StopIteration:
                break
            except LitelogError as error:
                failure = error
                break
            while waiting and held + size > most_bytes:
                taken, future = waiting.popleft()
                yield future.result()
                held -= taken
            waiting.append((size, executor.submit(job)))
            held += size
        while waiting:
            yield waiting.popleft()[1].result()
        if failure is not None:
            raise failure
    finally:
        for _, future in waiting:
            future.cancel()


_Item = TypeVar("_Item")


AHEAD_PER_WORKER = 4
"""The most unfinished or unused items per worker of an OrderedPool."""


class OrderedPool:
    """Threads that process items in order. With one worker, the caller's thread does the work."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._ahead = workers * AHEAD_PER_WORKER
        self._executor = ThreadPoolExecutor(workers, "verify") if workers > 1 else None

    def map(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """Yield the result of ``work`` for each item, in order. Holds at most AHEAD_PER_WORKER items per worker."""
        if self._executor is None:
            yield from map(work, items)
        else:
            jobs = ((0, partial(work, item)) for item in items)
            yield from ordered_prefetch(self._executor, jobs, most_jobs=self._ahead)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
