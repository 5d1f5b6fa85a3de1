"""Executes a restore: reads the planned objects concurrently, in index order, and checks all of them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING

from litelog.dataclass import dataclass
from litelog.errors import CorruptObjectError, NothingToRestoreError, ReplicaGapError
from litelog.events import fields
from litelog.objects.layout import wal_key
from litelog.reading.fetch import ordered_prefetch
from litelog.reading.generations import require_replica
from litelog.restore.commit_writer import CommitWriterPool, SegmentFiles
from litelog.restore.index_files import write_index_files
from litelog.restore.journal import ResumedWalSegments
from litelog.restore.manifest import make_manifest
from litelog.restore.output import OutputError, OutputFolder, keep_whole, locked_copy
from litelog.restore.plan import RepairedRange
from litelog.restore.repair.repair import Repair
from litelog.restore.sealed_restore import SealedRestorer
from litelog.restore.wal_restore import ChainStep, RestoreStoppedError, WalRestorer
from litelog.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from litelog.formats import LogFormat
    from litelog.objects.chain import ChainState
    from litelog.objects.position import Position
    from litelog.restore.commit_writer import WrittenRun
    from litelog.restore.plan import RestoredObject, RestorePlan
    from litelog.restore.repair.fallbacks import FallbackReplicas
    from litelog.restore.sealed_restore import SealedWriter
    from litelog.restore.wal_restore import WalWriter
    from litelog.stores.replica_client import ReplicaClient
    from litelog.system.clock import Clock

_logger = logging.getLogger(__name__)

PARALLELISM = 4
"""Default number of workers, even on two cores: while some decompress, others wait for the disk."""

MAX_PARALLELISM = 64
"""The most workers. Each holds one object and its content: at most 112 MiB, for a single commit of the largest size."""


PLANS = 3
"""The most plans of a restore, if objects disappear while it reads."""


@dataclass(frozen=True, slots=True)
class RestoreProgress:
    """The progress of a restore."""

    pieces: int
    """Objects restored, in order, of ``plan.objects``."""
    restored: int
    """Bytes written, of ``plan.size``."""


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The restored log: whole, checked and durable."""

    output: str
    end: Position
    """The end of the restored log."""
    next: int | None
    """The sequence after the last record; None without records."""
    bytes: int
    files: int
    objects: int
    commits: int
    records: int
    seconds: float
    replica: str
    """The URL of the replica that supplied all bytes except those in ``repaired``."""
    repaired: tuple[RepairedRange, ...] = ()
    """The objects that the replica lost, and the sources of their bytes."""

    def as_json(self) -> dict[str, object]:
        """The result as JSON values, for programs."""
        return {
            "output": self.output,
            "position": str(self.end),
            "next": self.next,
            "log_bytes": self.bytes,
            "log_segments": self.files,
            "objects": self.objects,
            "commits": self.commits,
            "records": self.records,
            "seconds": self.seconds,
            "replica": self.replica,
            "repaired": [each.as_json() for each in self.repaired],
        }


def restore(  # noqa: PLR0913 - each is an independent choice
    client: ReplicaClient,
    plan: RestorePlan,
    output: str,
    *,
    log_format: LogFormat,
    parallelism: int = PARALLELISM,
    progress: Callable[[RestoreProgress], None] | None = None,
    clock: Clock | None = None,
    fallbacks: FallbackReplicas | None = None,
    replan: Callable[[], RestorePlan] | None = None,
    delta: bool = False,
    check_space: bool = True,
    stop: threading.Event | None = None,
) -> RestoreResult:
    """Write the log that ``plan`` describes to the new folder ``output``: complete and synced, or not there.

    Args:
        client: The replica that the plan was made from.
        plan: What to restore.
        output: The path of the folder to create. The folder must be missing or empty.
        log_format: The format that the replica's claim names.
        parallelism: The number of objects read at a time, 1 to MAX_PARALLELISM.
        progress: Called after each object, on the caller's thread.
        clock: For the duration in the result.
        fallbacks: Other replicas, which supply what this one lost. The result names what they supplied.
        replan: Makes a new plan if a planned object is gone: retention may have removed it, and another object may
            now hold its bytes.
        delta: ``output`` may hold an older copy of the log. Log segments of it that the plan needs, and that are whole,
            are kept; the rest is read. Then the two folders are exchanged in one step, and the older copy is removed.
            Until then it stays unchanged.
        check_space: Refuse at once if the file system has less room than the log needs. A file system that compresses
            may hold more than it reports.
        stop: Ends the restore at its next objects once it is set. The next restore continues with what is verified.

    Returns:
        What was restored, and where the bytes came from.

    Raises:
        CorruptObjectError: An object is damaged; names its key.
        ReplicaGapError: An object is missing; names its position.
        CorruptCommitError, SequenceGapError: Commits are damaged or missing.
        OutputExistsError, OutputError, LockedError: ``output`` is taken, cannot be written, or is in use.
        RestoreStoppedError: ``stop`` was set.
        StoreError: A request failed.
        ValueError: ``parallelism`` is out of range.
    """
    if not 1 <= parallelism <= MAX_PARALLELISM:
        raise ValueError(f"parallelism is 1 to {MAX_PARALLELISM}, not {parallelism}")
    clock = clock or SystemClock()
    started = clock.monotonic()
    with OutputFolder(output, replace=delta) as folder, _older(folder.path, delta) as old:
        try:
            first = _Run(client, plan, folder, log_format, parallelism, progress, fallbacks, stop)
            plan, totals = _restore_files(first, old, replan, check_space=check_space)
            _add_files_of_writer(folder, plan, log_format)
            folder.publish()
        except RestoreStoppedError:
            if stop is not None:
                folder.keep()
            raise
        except OSError as error:
            raise OutputError(folder.path, error.strerror or str(error)) from error
    return totals.result(plan, folder.path, clock.monotonic() - started)


def _add_files_of_writer(folder: OutputFolder, plan: RestorePlan, log_format: LogFormat) -> None:
    """Write what the log's writer needs next to the log segments: side files, index files and the manifest."""
    for side_file in plan.side_files:
        folder.write_file(side_file)
    names = [file.name for file in plan.all_files]
    write_index_files(folder, names, log_format)
    manifest = make_manifest(names, log_format)
    if manifest is not None:
        folder.write_file(manifest)


def _older(path: str, delta: bool) -> AbstractContextManager[int]:
    return locked_copy(path) if delta else nullcontext(-1)


def _restore_files(
    run: _Run, old: int, replan: Callable[[], RestorePlan] | None, *, check_space: bool
) -> tuple[RestorePlan, _Totals]:
    """Write the files of a plan, or of the plan that ``replan`` makes if objects disappear. Returns that plan, too.

    ``old``: the descriptor of the folder with an older copy, whose whole log segments are kept; -1 without one.
    """
    for left in reversed(range(PLANS)):
        run.folder.keep_only({file.name for file in run.plan.all_files})
        if old >= 0:
            keep_whole(old, run.folder, run.plan, run.log_format, run.parallelism)
        if check_space:
            run.folder.require_space(run.plan.size)
        try:
            return run.plan, run.restore()
        except ReplicaGapError as gap:
            run = replace(run, plan=_plan_again(run.client, run.plan, gap, replan if left else None))
    raise AssertionError("the last plan either succeeds, or raises its gap")


def _plan_again(
    client: ReplicaClient, plan: RestorePlan, gap: ReplicaGapError, replan: Callable[[], RestorePlan] | None
) -> RestorePlan:
    """Plan again after ``gap`` ended the execution of ``plan``. Raises ``gap`` if the new plan is the same, and
    StoreError if the replica's root is away."""
    require_replica(client, gap)
    if replan is None:
        raise gap
    try:
        new_plan = replan()
    except NothingToRestoreError as error:
        raise gap from error
    if new_plan == plan:
        raise gap
    _logger.warning("%s: %s; planning again", plan.replica, gap, extra=fields("planned-again", replica=plan.replica))
    return new_plan


class _Totals:
    """Sums over the restored pieces, in order."""

    def __init__(self) -> None:
        self.objects = self.bytes = self.commits = self.records = self.epoch = 0
        self.next: int | None = None
        self.repaired: list[RepairedRange] = []

    def add(self, piece: RestoredObject) -> None:
        """Count a piece. Raises CorruptObjectError if the epoch of a commit is lower than one before it."""
        self.objects += piece.objects
        self.repaired += piece.repaired
        for part in piece.parts:
            self._add_part(part)

    def _add_part(self, part: WrittenRun) -> None:
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
        """Make the result from the counts, and from facts that the caller knows."""
        counts = (self.next, self.bytes, len(plan.all_files), self.objects, self.commits, self.records)
        return RestoreResult(output, plan.end, *counts, seconds, plan.replica, tuple(self.repaired))


@dataclass(frozen=True, slots=True)
class _Run:
    """One pass over a plan."""

    client: ReplicaClient
    plan: RestorePlan
    folder: OutputFolder
    log_format: LogFormat
    parallelism: int
    progress: Callable[[RestoreProgress], None] | None
    fallbacks: FallbackReplicas | None
    stop: threading.Event | None = None

    def restore(self) -> _Totals:
        """Write all of the plan's files, synced. Raises the error of the first piece that has one."""
        totals = _Totals()
        for part in self.plan.parts:
            if not self.log_format.self_numbered:
                totals.next = None  # each generation numbers records by itself
            replace(self, plan=part).restore_part(totals)
        return totals

    def restore_part(self, totals: _Totals) -> None:
        """Write the files of one part of a plan, ``plan``."""
        plan, folder, stopped = self.plan, self.folder, threading.Event()
        totals.repaired += [RepairedRange(error.key, str(error)) for error in plan.lost]
        sizes = {file.index: file.size for file in plan.files}
        files = SegmentFiles(folder.create, folder.reopen, sizes, [piece.position.index for piece in plan.pieces])
        repair = Repair(self.client, self.log_format, self.fallbacks)
        link, written = self._first_link(repair, totals) if plan.pieces else None, totals.bytes
        check_stop = partial(_check_stop, stopped, self.stop or stopped)
        runs = CommitWriterPool(self.log_format, plan.end, check_stop)
        resumed = ResumedWalSegments(folder.journal, files)
        wal = WalRestorer(self.client, plan, files, runs, self.log_format, resumed, check_stop)
        sealed = SealedRestorer(self.client, files, self.log_format, folder.journal, check_stop)
        with ThreadPoolExecutor(self.parallelism, "restore") as pool:
            schedule = RestoreSchedule(
                plan,
                repair.repairing_wal(wal, plan, files, runs),
                repair.repairing_sealed(sealed, files),
                pool,
                self.parallelism,
                link,
                totals.next,
            )
            try:
                with closing(schedule.run()) as restored:
                    for piece in restored:
                        totals.add(piece)
                        if self.progress is not None:
                            self.progress(RestoreProgress(totals.objects, totals.bytes))
            except BaseException:
                stopped.set()
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                files.close()
        self._check_end(schedule.link, totals.bytes - written)

    def _first_link(self, repair: Repair, totals: _Totals) -> ChainState:
        """The state of the chain before the plan's WAL segments."""
        link, repaired = repair.first_link(self.plan)
        totals.repaired += repaired
        return link if link.next is not None else replace(link, next=totals.next)

    def _check_end(self, link: ChainState | None, written: int) -> None:
        """Check the end of the restored log, since the plan was made from unverified headers."""
        end = self.plan.end
        if link is not None and (link.slot.index, link.slot.offset) < (end.index, end.offset):
            raise ReplicaGapError(str(link.slot))
        planned = sum(file.size for file in self.plan.files)
        if written != planned:
            raise CorruptObjectError(self._last_key(), "bytes up to its end", planned, written)

    def _last_key(self) -> str:
        pieces = self.plan.pieces
        return wal_key(pieces[-1].position) if pieces else self.plan.sealed[-1].entry.key


def _check_stop(*stopped: threading.Event) -> None:
    if any(each.is_set() for each in stopped):
        raise RestoreStoppedError("the restore was stopped")


def _fail(step: Future[ChainStep]) -> None:
    """End the wait for a step that no job will set."""
    with suppress(InvalidStateError):  # it is set
        step.set_exception(RestoreStoppedError("an earlier object failed"))


QUEUED_PER_WORKER = 4
"""How many pieces per worker are handed out ahead of the oldest unfinished one. This bounds how many log segments are
open at a time."""

WAL_BYTES = 16 << 20
"""The most bytes of WAL segments, as they are stored, in memory at a time, unless a single one is larger. Each is read
as a whole; sealed segments are read in pieces."""

_UNBOUNDED = 1 << 62

_Job = tuple[int, "Callable[[], RestoredObject]"]


@dataclass(slots=True)
class RestoreSchedule:
    """Hands out a plan's work to threads, and yields the result of each piece in order."""

    plan: RestorePlan
    wal: WalWriter
    sealed: SealedWriter
    pool: Executor
    parallelism: int
    first: ChainState | None
    """The link that the first WAL segment continues; None if none is read."""
    next: int | None = None
    """The sequence that follows the records restored before; None if unknown."""
    _last: Future[ChainStep] | None = None
    _unset: deque[Future[ChainStep]] = field(default_factory=deque)
    """The steps of the chain from the first one on that no job has set yet."""

    @property
    def link(self) -> ChainState | None:
        """The state of the chain at the end, after ``run``."""
        return self.first if self._last is None else self._last.result().link

    def run(self) -> Generator[RestoredObject, None, None]:
        """Yield the result of each piece, in order. Raises the error of the first piece that has one."""
        try:
            yield from ordered_prefetch(self.pool, self._jobs(), WAL_BYTES, self.parallelism * QUEUED_PER_WORKER)
        finally:
            # A job that was cancelled never sets its step, and a later one that runs already would wait for it forever.
            for step in self._unset:
                _fail(step)

    def _jobs(self) -> Iterator[_Job]:
        wal = self._wal_jobs()
        indexes = deque(piece.position.index for piece in self.plan.pieces)
        opened = ordered_prefetch(self.pool, self._openings(), _UNBOUNDED, self.parallelism)
        for piece, jobs in zip(self.plan.sealed, opened, strict=True):
            while indexes and indexes[0] <= piece.entry.index:
                indexes.popleft()
                yield next(wal)
            for job in jobs:
                yield 0, job
        yield from wal

    def _wal_jobs(self) -> Iterator[_Job]:
        if self.first is None:
            return
        before: Future[ChainStep] = Future()
        before.set_result(ChainStep(self.first))
        for number in range(len(self.plan.pieces)):
            while self._unset and self._unset[0].done():
                self._unset.popleft()
            self._last = Future()
            self._unset.append(self._last)
            yield self.plan.pieces[number].size, partial(self._restore_wal, number, before, self._last)
            before = self._last

    def _restore_wal(self, number: int, before: Future[ChainStep], after: Future[ChainStep]) -> RestoredObject:
        try:
            return self.wal.write(number, before, after)
        except BaseException:
            _fail(after)
            raise

    def _openings(self) -> Iterator[tuple[int, Callable[[], Sequence[Callable[[], RestoredObject]]]]]:
        for before, piece in zip((None, *self.plan.sealed), self.plan.sealed, strict=False):
            next_before = None
            if piece.entry.index == self.plan.files[0].index:
                next_before = self.next
            elif before is not None and before.entry.index == piece.entry.index - 1:
                next_before = before.entry.next
            yield 0, partial(self.sealed.jobs, piece, next_before)
