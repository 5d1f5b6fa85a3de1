"""How much of a long walk a run takes: a sample that a seed chooses, or, at night, all of it.

LITELOG_TEST_NIGHTLY=1 takes every walk and every bound in full, and ten times as many of Hypothesis's examples as a
test names. A run makes half of these, and LITELOG_TEST_PROFILE=dev a quarter. LITELOG_TEST_SEED chooses the samples;
pytest prints the seed of each run, and the same seed gives the same samples.
"""

from __future__ import annotations

import os
import secrets
from random import Random
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Point, Value = TypeVar("Point"), TypeVar("Value")

NIGHTLY_VARIABLE, SEED_VARIABLE = "LITELOG_TEST_NIGHTLY", "LITELOG_TEST_SEED"

NIGHTLY = os.environ.get(NIGHTLY_VARIABLE, "") not in ("", "0")

SEED = os.environ.setdefault(SEED_VARIABLE, str(secrets.randbelow(1 << 32)))
"""The workers of a run inherit it with the environment."""

MORE_AT_NIGHT = 10
"""How many times as many examples a night makes as a test names."""

FEWER_IN_A_RUN, FEWER_IN_A_LOOP = 2, 4
"""What a run, and a fast loop, divide the number of examples by."""

PROFILE_VARIABLE = "LITELOG_TEST_PROFILE"

PROFILE = "nightly" if NIGHTLY else os.environ.get(PROFILE_VARIABLE, "ci")
"""Hypothesis's: ``ci``, ``nightly`` with more examples, ``dev`` with fewer."""


def make_fewer_examples() -> None:
    """Take the profile ``dev``, in this process and in workers that it starts, unless another one was asked for."""
    global PROFILE  # noqa: PLW0603 - it is decided before any test module is imported
    if not NIGHTLY and PROFILE_VARIABLE not in os.environ:
        PROFILE = os.environ[PROFILE_VARIABLE] = "dev"


def describe() -> str:
    """What pytest prints, so that a run can be repeated."""
    if NIGHTLY:
        return f"walks: all of each ({NIGHTLY_VARIABLE}), {SEED_VARIABLE}={SEED}"
    return f"walks: sampled, {SEED_VARIABLE}={SEED} takes the same samples, {NIGHTLY_VARIABLE}=1 takes all"


def sampled(points: Sequence[Point], one_in: int, walk: str) -> list[Point]:
    """One point in ``one_in`` of ``walk``, in their order, at least one; at night all of them."""
    if NIGHTLY:
        return list(points)
    count = max(1, len(points) // one_in)
    chosen = sorted(Random(f"{SEED} {walk}").sample(range(len(points)), min(count, len(points))))
    return [points[number] for number in chosen]


def shuffled(points: Sequence[Point], walk: str) -> list[Point]:
    """All points in an order that the seed decides, to take from until there are enough."""
    order = list(points)
    Random(f"{SEED} {walk}").shuffle(order)
    return order


def sampled_cases(values: Iterable[object], one_in: int, walk: str) -> list[object]:
    """The cases of a parametrized test, of which those that this run leaves out are skipped."""
    cases = list(values)
    taken = set(sampled(range(len(cases)), one_in, walk))
    left_out = pytest.mark.skip(reason=f"a sample of 1 in {one_in} runs; {NIGHTLY_VARIABLE}=1 takes all")
    return [
        case if number in taken else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=left_out)
        for number, case in enumerate(cases)
    ]


def one_in_a_run(names: Sequence[str], walk: str) -> Callable[[str], pytest.MarkDecorator]:
    """A mark for each test of a walk, by its name there: all except for one are skipped, save at night."""
    taken = sampled(names, len(names), walk)
    reason = f"one of {len(names)} runs; {NIGHTLY_VARIABLE}=1 takes all"
    return lambda name: pytest.mark.skipif(name not in taken, reason=reason)


def at_night(*values: object) -> list[object]:
    """Cases that are run at night alone."""
    left_out = pytest.mark.skipif(not NIGHTLY, reason=f"at night: {NIGHTLY_VARIABLE}=1")
    return [pytest.param(value, marks=left_out) for value in values]


def examples(count: int) -> int:
    """How many examples Hypothesis makes, of ``count`` that a test names, in this run."""
    if PROFILE == "nightly":
        return count * MORE_AT_NIGHT
    return max(1, count // (FEWER_IN_A_LOOP if PROFILE == "dev" else FEWER_IN_A_RUN))


def times(fewer: Value, at_night: Value) -> Value:
    """How often, or for how long, something is done: ``fewer`` in a run that is not a night's."""
    return at_night if NIGHTLY else fewer
