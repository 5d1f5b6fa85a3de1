"""Runs the tasks of a job in this process, one after the other, as the tasks of a job over many replicas do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class LocalTasks:
    """The part of a SparkSession that a job needs to collect the results of its tasks."""

    def __init__(self) -> None:
        self._count = 0
        self._work: Callable[[Any], Any] | None = None

    def range(self, _start: int, stop: int, _step: int, _parts: int) -> LocalTasks:
        """The numbers of the tasks, as in a SparkSession."""
        self._count = stop
        return self

    def mapInArrow(self, work: Callable[[Any], Any], _schema: str) -> LocalTasks:  # noqa: N802 - as Spark calls it
        """Take the function that each task runs on its number."""
        self._work = work
        return self

    def collect(self) -> list[Any]:
        """Run the tasks. Returns their rows."""
        import pyarrow  # noqa: PLC0415 - an extra

        assert self._work is not None
        batches = [pyarrow.RecordBatch.from_pydict({"id": [number]}) for number in range(self._count)]
        return [row for batch in batches for found in self._work([batch]) for row in found.to_pylist()]
