"""Shrinks a plan that fails: leaves out the steps that its failure does not need."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.plan import Plan

MAX_RUNS = 60
"""How many smaller plans are tried at most."""


def shrink(plan: Plan, violation: str, run: Callable[[Plan], str]) -> Plan:
    """Find a small plan that breaks the same promise as ``plan``. ``run`` returns the promise that a plan breaks."""
    promise = violation.partition(":")[0]
    numbers = list(plan.numbers)
    size, runs = max(1, len(numbers) // 2), 0
    while runs < MAX_RUNS:
        left_out = False
        for start in reversed(range(0, len(numbers), size)):
            fewer = [*numbers[:start], *numbers[start + size :]]
            runs += 1
            if run(plan.keep(fewer)).partition(":")[0] == promise:
                numbers, left_out = fewer, True
        if size == 1 and not left_out:
            break
        size = max(1, size // 2)
    return plan.keep(numbers)
