"""Reads past damage: the WAL segments that replace a damaged sealed segment, and good commits around a bad one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from litelog.errors import (
    CorruptCommitError,
    LitelogError,
    NotFoundError,
    ReplicaGapError,
    SequenceGapError,
)
from litelog.events import fields
from litelog.formats import Expectation
from litelog.formats.capabilities import find_commit, is_counted
from litelog.reading.sealed_reader import BrokenEntryError, SealedStart, read_sealed
from litelog.reading.wal_fallback import find_base_now, read_unsealed
from litelog.spark.scan.record_runs import Malformed, RecordRun, cut_offsets
from litelog.spark.scan.task import AHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from litelog.objects.snapshot_entries import SnapshotEntry
    from litelog.reading.sealed_reader import SealedBatch
    from litelog.spark.scan.task import Task

_logger = logging.getLogger(__name__)


def read_fallback(task: Task, entry: SnapshotEntry, start: int, stop: int, error: LitelogError) -> Iterator[RecordRun]:
    """Read bytes [start, stop) of a log segment whose sealed segment cannot be read. Both bounds are commit boundaries.

    Raises PrunedError if retention removed the log segment, and ``error`` if no other object has its bytes. If
    malformed data is not an error, everything is checked in memory before the first run is yielded; a range that is too
    large for that is not read, and raises ``error``.
    """
    if isinstance(error, NotFoundError):
        moved = _find_again(task, entry, start)
        error = ReplicaGapError(entry.key)
        if moved.key != entry.key:
            batches = read_sealed(task.client, task.executor, [moved], task.format, SealedStart(start))
            try:
                yield from _cut(task, batches, start, stop)
            except BrokenEntryError as broken:
                raise broken.cause from None
            return
    if not task.is_strict and stop - start > AHEAD_BYTES:
        raise error
    runs = _cut(task, read_unsealed(task.client, entry, start, task.format, error), start, stop)
    first = True
    for run in runs if task.is_strict else list(runs):
        if first:
            extra = fields("sealed-segment-damaged", log=task.log.name)
            _logger.warning("%s: %s; reading its WAL segments", task.log.name, error, extra=extra)
            first = False
        yield run


def _cut(task: Task, batches: Iterable[SealedBatch], start: int, stop: int) -> Iterator[RecordRun]:
    """The runs in bytes [start, stop). Reads all batches, since the last checks come at their end."""
    for batch in batches:
        found = RecordRun(batch.columns, batch.entry.index, batch.start)
        run = cut_offsets(found, start, stop, divisible=task.is_divisible)
        if len(run.columns):
            yield run


def _find_again(task: Task, entry: SnapshotEntry, offset: int) -> SnapshotEntry:
    """The newest snapshot's entry for the log segment. Raises PrunedError if the snapshot no longer has it."""
    base = find_base_now(task.client, task.log.replica_claim, entry.index, offset)
    return next((now for now in (() if base is None else base.entries) if now.index == entry.index), entry)


def salvage(
    task: Task, file: str, index: int, data: memoryview, offset: int, reason: str
) -> Iterator[RecordRun | Malformed]:
    """Yield the good commits in ``data``, which begins at byte ``offset`` of log segment ``index``, and the gaps.

    Some formats can find a commit again after a bad one (``find_commit``). In others the rest is lost.
    """
    at, end = 0, len(data)
    if offset and is_counted(task.format):  # nothing there states a sequence
        yield Malformed(index, offset, offset + end, None, reason)
        return
    while at < end:
        good = _good_bytes(task, file, data[at:], offset + at)
        if good:
            columns = task.format.decode(file, data[at : at + good], offset + at, Expectation())
            yield RecordRun(columns, index, offset + at)
            at += good
        if at >= end:
            return
        following = find_commit(task.format, data, offset, at)
        stop = end if following is None else following
        yield Malformed(index, offset + at, offset + stop, None, reason)
        at = stop


def _good_bytes(task: Task, file: str, data: memoryview, offset: int) -> int:
    """How many bytes at the start of ``data`` are whole commits."""
    held = data
    while True:
        try:
            return task.format.scan(file, held, offset, Expectation()).end - offset
        except (CorruptCommitError, SequenceGapError) as error:
            shorter = max(0, error.offset - offset)
            if shorter >= len(held) or not shorter:
                return 0
            held = held[:shorter]
