"""What can be saved of bytes in which a commit fails its checks: the good commits around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.errors import CorruptCommitError, SequenceGapError
from litelog.formats import Expectation
from litelog.formats.litelog import SEGMENT_HEADER_BYTES, LitelogFormat
from litelog.formats.litelog.commit_walk import find_commit
from litelog.spark.scan.record_runs import Malformed, Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.spark.scan.task import Task


def salvage(task: Task, file: str, index: int, data: memoryview, offset: int, reason: str) -> Iterator[Run | Malformed]:
    """The good commits in ``data``, which begins at byte ``offset`` of log segment ``index``, and what lies between.

    Only commits of our own format can be found again behind a bad one; of others all behind it is lost.
    """
    at, end = 0, len(data)
    while at < end:
        good = _good_bytes(task, file, data[at:], offset + at)
        if good:
            columns = task.format.decode(file, data[at : at + good], offset + at, Expectation())
            yield Run(columns, index, offset + at)
            at += good
        if at >= end:
            return
        behind = None
        if isinstance(task.format, LitelogFormat):
            behind = find_commit(data, max(at, SEGMENT_HEADER_BYTES if offset + at == 0 else 0), Expectation())
        stop = end if behind is None else behind
        yield Malformed(index, offset + at, offset + stop, None, reason)
        at = stop


def _good_bytes(task: Task, file: str, data: memoryview, offset: int) -> int:
    """How many bytes at the front of ``data`` are whole commits."""
    held = data
    while True:
        try:
            return task.format.scan(file, held, offset, Expectation()).end - offset
        except (CorruptCommitError, SequenceGapError) as error:
            shorter = max(0, error.offset - offset)
            if shorter >= len(held) or not shorter:
                return 0
            held = held[:shorter]
