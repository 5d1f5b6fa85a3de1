"""Restores a log from a replica: its planned objects side by side, every promise of their writer checked."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from litelog import wal_segment
from litelog.clock import SystemClock
from litelog.errors import CorruptObjectError, NotFoundError, ReplicaGapError
from litelog.layout import parse_wal, snapshot_key, wal_key
from litelog.position import generation
from litelog.reading.checked_read import read_checked
from litelog.reading.wal_chain import first_link
from litelog.restore.output import OutputError, OutputFolder
from litelog.restore.pieces import PieceWriter
from litelog.restore.plan import list_pieces

if TYPE_CHECKING:
    from collections.abc import Callable

    from litelog.clock import Clock
    from litelog.formats import LogFormat
    from litelog.position import Position
    from litelog.reading.wal_chain import Link
    from litelog.replica_client import ReplicaClient
    from litelog.restore.pieces import Piece
    from litelog.restore.plan import RestorePlan

PARALLELISM = 4
"""Workers, also on two cores: while some decompress, others wait on the disk."""

MAX_PASSES = 3
"""How often a restore begins anew at most, for all reasons together."""

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


def restore(
    client: ReplicaClient,
    plan: RestorePlan,
    output: str,
    *,
    log_format: LogFormat,
    parallelism: int = PARALLELISM,
    progress: Callable[[RestoreProgress], None] | None = None,
    clock: Clock | None = None,
) -> RestoreResult:
    """Write the log that ``plan`` describes to the new folder ``output``: complete and synced, or not there.

    Raises CorruptObjectError by key and ReplicaGapError by position for whatever the replica's writer did not promise,
    CorruptCommitError and SequenceGapError for commits, OutputExistsError, OutputError, LockedError for the place to
    write to, StoreError for the store. ``progress`` is called after each object, on the caller's thread.
    """
    if not 1 <= parallelism <= MAX_PARALLELISM:
        raise ValueError(f"parallelism is 1 to {MAX_PARALLELISM}, not {parallelism}")
    clock = clock or SystemClock()
    started = clock.monotonic()
    with OutputFolder(output) as folder:
        run = _Run(client, plan, folder, log_format, parallelism, progress)
        try:
            run, totals = _restore_twice(run)
            folder.publish()
        except OSError as error:
            raise OutputError(folder.path, error.strerror or str(error)) from error
    return totals.result(run.plan, folder.path, clock.monotonic() - started)


def _restore_twice(run: _Run) -> tuple[_Run, _Totals]:
    """Restore; once more where a listing lacked something, and once more where bytes changed on their way."""
    passes = 0
    while True:
        passes += 1
        try:
            return run, run.restore()
        except ReplicaGapError as gap:
            if passes > MAX_PASSES:
                raise
            run = replace(run, plan=_listed_anew(run.client, run.plan, gap))
        except CorruptObjectError as error:
            if run.suspicious or not _reads_well(run.client, error.key):
                raise
            run = replace(run, suspicious=True)
        run.folder.clear()


def _reads_well(client: ReplicaClient, key: str) -> bool:
    """Whether an object passes its own checks when it is read again: what failed may have been its way here."""
    position = parse_wal(key)
    if position is None:
        return True
    try:
        read_checked(lambda: client.read_wal_segment(position), partial(wal_segment.decode_checked, key))
    except (CorruptObjectError, NotFoundError):
        return False
    return True


def _listed_anew(client: ReplicaClient, plan: RestorePlan, gap: ReplicaGapError) -> RestorePlan:
    """The plan with what a listing lacked; raises ``gap`` if a second listing lacks it too."""
    listed, _ = list_pieces(client, plan.claim)
    last = plan.pieces[-1].position
    pieces = tuple(piece for piece in listed if piece.position <= last)
    if gap.position not in {str(piece.position) for piece in pieces} or pieces == plan.pieces:
        raise gap
    return replace(plan, pieces=pieces)


class _Totals:
    """What was restored so far, piece by piece in order."""

    def __init__(self) -> None:
        self.pieces = self.bytes = self.commits = self.records = self.epoch = 0
        self.next: int | None = None

    def add(self, piece: Piece) -> None:
        """Count a piece; its commits' epochs may not go back behind those of the pieces before it."""
        self.pieces += 1
        self.bytes += piece.written
        scan = piece.scan
        if scan is None or not scan.commits:
            return
        if scan.epoch < self.epoch:
            raise CorruptObjectError(piece.key, "epoch", f"{self.epoch} or above", scan.epoch)
        self.epoch, self.next = scan.epoch, scan.next
        self.commits += scan.commits
        self.records += scan.records

    def result(self, plan: RestorePlan, output: str, seconds: float) -> RestoreResult:
        """The counts, with what the caller knows."""
        counts = (self.next, self.bytes, len(plan.files), self.pieces, self.commits, self.records)
        return RestoreResult(output, plan.end, *counts, seconds)


@dataclass(frozen=True, slots=True)
class _Run:
    """One pass over a plan."""

    client: ReplicaClient
    plan: RestorePlan
    folder: OutputFolder
    log_format: LogFormat
    parallelism: int
    progress: Callable[[RestoreProgress], None] | None
    suspicious: bool = False
    """Whether to check an object's bytes before they are used, which costs a second decompression."""

    def restore(self) -> _Totals:
        """Write all of the plan's files, synced. The error raised is that of the first piece that has one."""
        indexes = [piece.position.index for piece in self.plan.pieces]
        writer = PieceWriter(
            self.client, self.folder.create, self.log_format, self.plan.end, indexes, suspicious=self.suspicious
        )
        before: Future[Link] = Future()
        before.set_result(self._first_link())
        queue: deque[Future[Piece]] = deque()
        totals = _Totals()
        with ThreadPoolExecutor(self.parallelism, "restore") as pool:
            try:
                for info in self.plan.pieces:
                    if len(queue) == self.parallelism * QUEUED_PER_WORKER:
                        self._take(queue.popleft(), totals)
                    after: Future[Link] = Future()
                    queue.append(pool.submit(writer.write, info.position, before, after))
                    before = after
                while queue:
                    self._take(queue.popleft(), totals)
            except BaseException:
                writer.stop()
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                writer.close()
        self._check_end(before.result(), totals)
        return totals

    def _take(self, done: Future[Piece], totals: _Totals) -> None:
        totals.add(done.result())
        if self.progress is not None:
            self.progress(RestoreProgress(totals.pieces, totals.bytes))

    def _first_link(self) -> Link:
        claim = self.plan.claim
        name = generation(claim.generation)
        try:
            return read_checked(lambda: self.client.read_snapshot(name, claim.first), partial(first_link, claim))
        except NotFoundError as error:
            raise ReplicaGapError(snapshot_key(name, claim.first)) from error

    def _check_end(self, link: Link, totals: _Totals) -> None:
        """A plan is made from headers that nobody had checked; what they said of the end must have come true."""
        if totals.bytes != self.plan.size:
            raise CorruptObjectError(
                wal_key(self.plan.pieces[-1].position), "bytes up to its end", self.plan.size, totals.bytes
            )
        if (link.slot.index, link.slot.offset) < (self.plan.end.index, self.plan.end.offset):
            raise ReplicaGapError(str(link.slot))
