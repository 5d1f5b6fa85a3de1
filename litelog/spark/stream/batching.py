"""How much a batch of a stream takes: the limits, and the steps that they admit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from litelog.dataclass import dataclass
from litelog.spark.stream.steps import MoveStep, SealedStep, WalStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from litelog.objects.position import Position
    from litelog.spark.stream.steps import StreamStep


@dataclass(slots=True)
class Budget:
    """How much a batch may still take; None: no limit. A batch always takes at least one object, or run of frames."""

    bytes: int | None
    files: int | None
    records: int | None = None
    taken: bool = False

    @property
    def is_limited(self) -> bool:
        """Whether an object may have to be cut."""
        return self.bytes is not None or self.records is not None

    def holds(self, raw: int, records: int | None) -> bool:
        """Whether the budget allows that much. ``records``: None if that is not known."""
        if self.bytes is not None and raw > self.bytes:
            return False
        return self.records is None or (records is not None and records <= self.records)

    def admits(self, step: StreamStep) -> bool:
        """Whether the budget allows the whole step."""
        return self.has_files and self.holds(step.raw, step.records)

    @property
    def has_files(self) -> bool:
        """Whether the budget allows another object."""
        return self.files is None or self.files > 0

    def share(self, count: int) -> Budget:
        """An equal share of the rest, for each of ``count`` logs."""
        size, files, records = (
            None if left is None else max(0, left) // count for left in (self.bytes, self.files, self.records)
        )
        return Budget(size, files, records, self.taken)

    def spend(self, steps: Iterable[StreamStep]) -> None:
        """Subtract steps that were taken from a share."""
        for step in steps:
            if step.raw:
                self.take(step)

    def take(self, step: StreamStep) -> None:
        """Subtract a step."""
        self.spend_bytes(step.raw)
        if self.records is not None:
            self.records -= step.records or 0

    def spend_bytes(self, raw: int) -> None:
        """Subtract an object of ``raw`` bytes."""
        self.taken = True
        if self.bytes is not None:
            self.bytes -= raw
        if self.files is not None:
            self.files -= 1


class StepReader(Protocol):
    """Reads the headers and footers that are needed to limit a batch."""

    def count(self, step: WalStep) -> WalStep:
        """The step of a WAL segment, with the number of its records."""
        ...

    def cut(self, step: SealedStep, budget: Budget) -> SealedStep | None:
        """The first runs of frames of a sealed segment that the budget allows; None if it allows none."""
        ...


def choose(
    steps: Sequence[StreamStep], budget: Budget, target: Position | None, reader: StepReader
) -> list[StreamStep]:
    """Select the first of ``steps`` for a batch. A move is the last step of a batch, or its only one.

    No step goes past ``target``: a sealed segment that reaches further is cut there. A sealed segment that exceeds the
    budget is cut between frames, and ends the batch. A step without bytes is selected only if one with bytes follows.
    """
    chosen: list[StreamStep] = []
    held = 0
    for step in steps:
        if target is not None and step.stop > target:
            if not isinstance(step, SealedStep) or not step.start < target:
                break
            step = step.until(target)  # noqa: PLW2901
        if isinstance(step, MoveStep):
            if not chosen[:held]:
                return [*chosen, step]
            break
        fitting = _fit(step, budget, reader) if step.raw else step
        if fitting is None:
            break
        chosen.append(fitting)
        if step.raw:
            budget.take(fitting)
            held = len(chosen)
        if fitting.stop != step.stop:
            break
    return chosen[:held]


def _fit(step: SealedStep | WalStep, budget: Budget, reader: StepReader) -> StreamStep | None:
    """The step, or the first part of it, if the budget allows any of it."""
    if isinstance(step, WalStep) and budget.records is not None and step.records is None:
        step = reader.count(step)
    if budget.admits(step):
        return step
    if isinstance(step, SealedStep) and budget.is_limited and (budget.has_files or not budget.taken):
        return reader.cut(step, replace(budget))
    return None if budget.taken else step
