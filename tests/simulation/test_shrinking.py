"""A shrunk plan has only the steps that its failure needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.plan import draw
from tests.simulation.shrinking import shrink

if TYPE_CHECKING:
    from tests.simulation.plan import Plan


def test_only_the_steps_that_a_failure_needs_are_kept() -> None:
    plan = draw(1)
    needed = {plan.numbers[0], plan.numbers[-2]}

    def run(smaller: Plan) -> str:
        return "P2: lost" if needed <= set(smaller.numbers) else "None"

    assert set(shrink(plan, "P2: something else was lost", run).numbers) == needed


def test_another_promise_that_a_smaller_plan_breaks_is_another_failure() -> None:
    plan = draw(1)
    whole = len(plan.steps)

    def run(smaller: Plan) -> str:
        return "P2: lost" if len(smaller.steps) == whole else "P1: other bytes"

    assert shrink(plan, "P2: lost", run) == plan
