"""Runs the tasks of a job in this process, one after the other, as the tasks of a job over many replicas do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litelog.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable


class LocalTasks:
    """The part of a SparkSession that a job needs to collect the results of its tasks."""

    def range(self, _start: int, stop: int, _step: int, _parts: int) -> TaskNumbers:
        """The numbers of the tasks, as in a SparkSession."""
        return TaskNumbers(self, stop)

    def run(self, count: int, work: Callable[[Any], Any]) -> list[Any]:
        """Run ``work`` on the number of each task. Returns the rows of all tasks."""
        import pyarrow  # noqa: PLC0415 - an extra

        batches = [pyarrow.RecordBatch.from_pydict({"id": [number]}) for number in range(count)]
        return [row for batch in batches for found in work([batch]) for row in found.to_pylist()]


@dataclass(frozen=True, slots=True)
class TaskNumbers:
    """Takes the place of the DataFrame of the tasks' numbers."""

    session: LocalTasks
    count: int

    def mapInArrow(self, work: Callable[[Any], Any], _schema: str) -> TaskRows:  # noqa: N802 - as Spark calls it
        """The rows that ``work`` makes of each number."""
        return TaskRows(self.session, self.count, work)


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Takes the place of the DataFrame of the tasks' rows."""

    session: LocalTasks
    count: int
    work: Callable[[Any], Any]

    def collect(self) -> list[Any]:
        """Run the tasks. Returns their rows."""
        return self.session.run(self.count, self.work)
