"""Restores a log from a replica: its planned objects side by side, every promise of their writer checked."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from litelog.clock import SystemClock
from litelog.errors import CorruptionError, CorruptObjectError, NotFoundError, ReplicaGapError, StoreError
from litelog.layout import snapshot_key, wal_key
from litelog.position import Position, generation
from litelog.reading.checked_read import read_checked
from litelog.reading.wal_chain import Link, first_link
from litelog.restore.mending import UNKNOWN, Mended
from litelog.restore.output import OutputError, OutputFolder
from litelog.restore.pieces import PieceWriter, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.clock import Clock
    from litelog.formats import LogFormat
    from litelog.replica_client import ReplicaClient
    from litelog.restore.donors import Donors
    from litelog.restore.pieces import Piece
    from litelog.restore.plan import RestorePlan
    from litelog.restore.run import Part

PARALLELISM = 4
"""Workers, also on two cores: while some decompress, others wait on the disk."""

MAX_PARALLELISM = 64
"""Each worker holds one object and its bytes: at most 112 MiB, if it is one commit of the largest size."""

QUEUED_PER_WORKER = 4
"""Pieces handed out ahead of the oldest unfinished one. They cost nothing until a worker takes them, but bound how
many log segments are open at a time."""


@dataclass(frozen=True, slots=True)
class RestoreProgress:
    """How far a restore is."""

    pieces: int
    """Objects done, in order; of ``len(plan.pieces)``."""
    restored: int
    """Bytes written; of ``plan.size``."""


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What was restored: whole, checked and durable."""

    output: str
    end: Position
    """Where the restored log ends."""
    next: int | None
    """The sequence that the next record gets; None if there is no record."""
    bytes: int
    files: int
    objects: int
    commits: int
    records: int
    seconds: float
    replica: str
    """Where all that is not in ``mended`` is from."""
    mended: tuple[Mended, ...] = ()
    """What that replica lost, and where its bytes are from."""


def restore(
    client: ReplicaClient,
    plan: RestorePlan,
    output: str,
    *,
    log_format: LogFormat,
    parallelism: int = PARALLELISM,
    progress: Callable[[RestoreProgress], None] | None = None,
    clock: Clock | None = None,
    donors: Donors | None = None,
) -> RestoreResult:
    """Write the log that ``plan`` describes to the new folder ``output``: complete and synced, or not there.

    Raises CorruptObjectError by key and ReplicaGapError by position for whatever the replica's writer did not promise,
    CorruptCommitError and SequenceGapError for commits, OutputExistsError, OutputError, LockedError for the place to
    write to, StoreError for the store. ``progress`` is called after each object, on the caller's thread. ``donors``:
    other replicas, from which what this one lost is taken; the result says what that was.
    """
    if not 1 <= parallelism <= MAX_PARALLELISM:
        raise ValueError(f"parallelism is 1 to {MAX_PARALLELISM}, not {parallelism}")
    clock = clock or SystemClock()
    started = clock.monotonic()
    with OutputFolder(output) as folder:
        run = _Run(client, plan, folder, log_format, parallelism, progress, donors)
        try:
            totals = run.restore()
            folder.publish()
        except OSError as error:
            raise OutputError(folder.path, error.strerror or str(error)) from error
    return totals.result(plan, folder.path, clock.monotonic() - started)


class _Totals:
    """What was restored so far, piece by piece in order."""

    def __init__(self) -> None:
        self.pieces = self.objects = self.bytes = self.commits = self.records = self.epoch = 0
        self.next: int | None = None
        self.mended: list[Mended] = []

    def add(self, piece: Piece) -> None:
        """Count a piece; its commits' epochs may not go back behind those of the pieces before it."""
        self.pieces += 1
        self.objects += piece.objects
        self.mended += piece.mended
        for part in piece.parts:
            self._add_part(part)

    def _add_part(self, part: Part) -> None:
        self.bytes += part.written
        scan = part.kept
        if scan is None or not scan.commits:
            return
        if scan.epoch < self.epoch:
            raise CorruptObjectError(part.key, "epoch", f"{self.epoch} or above", scan.epoch)
        self.epoch, self.next = scan.epoch, scan.next
        self.commits += scan.commits
        self.records += scan.records

    def result(self, plan: RestorePlan, output: str, seconds: float) -> RestoreResult:
        """The counts, with what the caller knows."""
        counts = (self.next, self.bytes, len(plan.files), self.objects, self.commits, self.records)
        return RestoreResult(output, plan.end, *counts, seconds, plan.replica, tuple(self.mended))


@dataclass(frozen=True, slots=True)
class _Run:
    """One pass over a plan."""

    client: ReplicaClient
    plan: RestorePlan
    folder: OutputFolder
    log_format: LogFormat
    parallelism: int
    progress: Callable[[RestoreProgress], None] | None
    donors: Donors | None

    def restore(self) -> _Totals:
        """Write all of the plan's files, synced. The error raised is that of the first piece that has one."""
        folder, totals = self.folder, _Totals()
        writer = PieceWriter(self.client, self.plan, folder.create, folder.reopen, self.log_format, self.donors)
        before: Future[Step] = Future()
        before.set_result(self._first_step(totals))
        queue: deque[Future[Piece]] = deque()
        with ThreadPoolExecutor(self.parallelism, "restore") as pool:
            try:
                for number in range(len(self.plan.pieces)):
                    if len(queue) == self.parallelism * QUEUED_PER_WORKER:
                        self._take(queue.popleft(), totals)
                    after: Future[Step] = Future()
                    queue.append(pool.submit(writer.write, number, before, after, Future()))
                    before = after
                while queue:
                    self._take(queue.popleft(), totals)
            except BaseException:
                writer.stop()
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                writer.close()
        self._check_end(before.result().link, totals)
        return totals

    def _take(self, done: Future[Piece], totals: _Totals) -> None:
        totals.add(done.result())
        if self.progress is not None:
            self.progress(RestoreProgress(totals.pieces, totals.bytes))

    def _first_step(self, totals: _Totals) -> Step:
        settled: Future[str] = Future()
        link = self._first_link(totals)
        settled.set_result(link.digest)
        return Step(link, None, settled)

    def _first_link(self, totals: _Totals) -> Link:
        claim = self.plan.claim
        name = generation(claim.generation)
        key = snapshot_key(name, claim.first)
        try:
            return read_checked(lambda: self.client.read_snapshot(name, claim.first), partial(first_link, claim))
        except (CorruptionError, StoreError) as error:
            if self.donors is None:
                if isinstance(error, NotFoundError):
                    raise ReplicaGapError(key) from error
                raise
            # It holds nothing of the log: what lacks is the digest that the first WAL segment names.
            totals.mended.append(Mended(key, str(error)))
            return Link(claim, Position(name, claim.first, 0), UNKNOWN)

    def _check_end(self, link: Link, totals: _Totals) -> None:
        """A plan is made from headers that nobody had checked; what they said of the end must have come true."""
        if (link.slot.index, link.slot.offset) < (self.plan.end.index, self.plan.end.offset):
            raise ReplicaGapError(str(link.slot))
        if totals.bytes != self.plan.size:
            raise CorruptObjectError(
                wal_key(self.plan.pieces[-1].position), "bytes up to its end", self.plan.size, totals.bytes
            )
