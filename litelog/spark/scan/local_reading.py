"""A task's part of the log in a local folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litelog.log.reader import LogReader
from litelog.spark.scan.record_runs import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from litelog.spark.scan.partitions import LocalPiece
    from litelog.spark.scan.task import Task


def read_local(task: Task, piece: LocalPiece) -> Iterator[Run]:
    """The records of a piece, checked as LogReader checks them, which raises what is wrong with them."""
    folder = task.log.folder
    assert folder is not None
    start = "earliest" if piece.first is None else piece.first
    with LogReader(folder, task.format, start=start, end=piece.stop) as reader:  # type: ignore[arg-type]
        for columns in reader.batches():
            yield Run(columns, None, reader.read_from)
