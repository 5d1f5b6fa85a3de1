"""Reads a partition in a worker, with every check of a restore, as record batches of about BATCH_ROWS rows."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, groupby
from typing import TYPE_CHECKING, Any

from litelog.errors import LitelogError
from litelog.events import fields
from litelog.formats.committed_reading import CommittedReading
from litelog.spark.options import Mode
from litelog.spark.scan.batches import BatchBuilder
from litelog.spark.scan.partitions import LocalPiece, SealedPiece, WalPiece
from litelog.spark.scan.planning import read_local
from litelog.spark.scan.record_runs import Malformed, RecordRun, SegmentCommits, cut_sequences, cut_times
from litelog.spark.scan.sealed_reading import read_sealed_pieces
from litelog.spark.scan.task import JOBS, Task, open_client, open_log_format
from litelog.spark.scan.wal_reading import read_wal_piece
from litelog.system.memory import collect_cycles, exempt_existing_objects, keep_freed_memory

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from litelog.formats import LogFormat
    from litelog.formats.columns import Columns
    from litelog.spark.scan.partitions import LogPart, Partition, PlannedLog
    from litelog.spark.scan.schema import Column

_logger = logging.getLogger(__name__)

LOADING_TASKS = 2
"""After this many tasks a worker has loaded all modules that it needs."""

_TASKS = count(1)


def read_partition(partition: Partition, columns: Sequence[Column]) -> Iterator[Any]:
    """Yield the records of a partition as pyarrow.RecordBatches of one schema, ``schema.arrow_schema(columns)``.

    Makes no listing, unless objects were removed after planning. Threads fetch and decompress ahead, and end with the
    iterator. Uses AHEAD_BYTES of memory (see ``task``), plus a batch. ``mode`` decides what happens to malformed data.
    Raises CorruptionError, ReplicaGapError (with a position), PrunedError, TruncatedError and StoreError.
    """
    freeze_loaded()
    builder = BatchBuilder(columns)
    for log, parts in groupby(partition.parts, key=_committed_log):
        if log is None:
            for part in parts:
                yield from _read_part(part, builder)
        else:
            yield from _read_committed([*parts], builder)
    yield from builder.rest()


def freeze_loaded() -> None:
    """Keep loaded modules out of the garbage collections that PySpark runs after every task, and keep freed buffers.

    Does this in a worker's first two tasks only: the first one loads the modules for reading.
    """
    if next(_TASKS) > LOADING_TASKS:
        return
    keep_freed_memory()
    collect_cycles()
    exempt_existing_objects()


def read_runs(part: LogPart) -> Iterator[RecordRun | Malformed]:
    """The wanted records of a part, run by run. Also yields malformed data, unless that is an error."""
    for run in _read_runs(part):
        yield run.to_run() if isinstance(run, SegmentCommits) else run


def _read_runs(part: LogPart) -> Iterator[RecordRun | SegmentCommits | Malformed]:
    """As ``read_runs``, except that whole commits are yielded without decoding if all their records are wanted."""
    log = part.log
    with _opened(log, open_log_format(log.format, log.pattern)) as task:
        for run in read_pieces(task, part):
            if isinstance(run, RecordRun):
                run = cut_times(cut_sequences(run, log.range, divisible=task.is_divisible), log.range)  # noqa: PLW2901
            yield run


@contextmanager
def _opened(log: PlannedLog, log_format: LogFormat) -> Iterator[Task]:
    """A task for a log. An error names the log. At the end, retries and threads end."""
    stop = threading.Event()
    executor = ThreadPoolExecutor(JOBS, "litelog-read")
    decoder = ThreadPoolExecutor(1, "litelog-decode")
    try:
        yield Task(log, open_client(log.url, log.store, stop), executor, decoder, log_format)
    except LitelogError as error:
        error.add_note(f"log {log.name}" + ("" if log.claim is None else f", generation {log.generation}"))
        raise
    finally:
        stop.set()
        decoder.shutdown(wait=True, cancel_futures=True)
        executor.shutdown(wait=True, cancel_futures=True)


def open_reading(log: PlannedLog) -> CommittedReading:
    """A reading of a log's committed records."""
    return CommittedReading(lambda name: open_log_format(name, log.pattern))


def read_columns(part: LogPart, reading: CommittedReading) -> Generator[Columns, None, None]:
    """The records of a part from the wanted start on, with what ``reading`` needs to decide about them."""
    log = part.log
    with _opened(log, reading.open_format(log.format)) as task:
        for run in read_pieces(task, part):
            assert isinstance(
                run, RecordRun
            )  # malformed data is an error, and only format litelog leaves commits whole
            yield cut_sequences(run, log.range).columns


def _committed_log(part: LogPart) -> str | None:
    """The name of a log of which only committed records are wanted: generations of it are read as one."""
    return None if part.log.committed is None else part.log.name


def _read_committed(parts: Sequence[LogPart], builder: BatchBuilder) -> Iterator[Any]:
    """The committed records of one log's parts, which hold all from the wanted start to where all is decided."""
    log = parts[0].log
    wanted, reading = log.committed, open_reading(log)
    assert wanted is not None

    def columns() -> Generator[Columns, None, None]:
        for part in parts:
            yield from read_columns(part, reading)

    builder.begin(log)
    for decided in reading.filtered(columns(), wanted.stop):
        yield from builder.add(cut_times(RecordRun(decided, None, 0), wanted))
    yield from builder.end()


def read_pieces(task: Task, part: LogPart) -> Iterator[RecordRun | SegmentCommits | Malformed]:
    """Yield the runs of a part of a log, not yet cut at bounds. Reads further ahead with each result that is taken."""
    sealed = [piece for piece in part.pieces if isinstance(piece, SealedPiece)]
    yield from read_sealed_pieces(task, sealed)
    for piece in part.pieces:  # WAL segments come after all sealed segments
        if isinstance(piece, WalPiece):
            yield from read_wal_piece(task, piece)
        elif isinstance(piece, LocalPiece):
            yield from read_local(task, piece)


def _read_part(part: LogPart, builder: BatchBuilder) -> Iterator[Any]:
    builder.begin(part.log)
    units = records = 0
    for run in _read_runs(part):
        if isinstance(run, SegmentCommits):
            yield from builder.add_commits(run)
            continue
        if isinstance(run, RecordRun):
            yield from builder.add(run)
            continue
        units, records = units + 1, records + (run.records or 0)
        _logger.warning("%s: malformed: %s", part.log.name, run.text, extra=fields("malformed", log=part.log.name))
        if part.log.mode is Mode.PERMISSIVE:
            yield from builder.add_malformed(run)
    yield from builder.end()
    if units:
        message = "%s: %d malformed runs of commits, %d records or more"
        extra = fields("malformed-total", log=part.log.name, malformed_runs=units, records=records)
        _logger.warning(message, part.log.name, units, records, extra=extra)
