"""Flips single bits of small replicas: verify reports each flip, or the restored bytes are the same."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import pytest

from tests.builders.bit_flips import FOREIGN_REPLICAS, REPLICAS, Flip, flips_of, judge_flips
from tests.faults.figures import report
from tests.sampling import NIGHTLY, sampled

ONE_IN = 48
"""The share of all bits that a run by day flips."""

PROCESSES = 2
CHUNKS = 16


@pytest.mark.timeout(1800)
def test_no_flipped_bit_is_silent() -> None:
    """At night it flips every bit."""
    flips = named = 0
    for name in chosen_replicas():
        for loud, harmless in judged(name, sampled(flips_of(name), ONE_IN, f"bits of {name}")):
            flips += loud + harmless
            named += loud
    assert named > 20 * (flips - named)
    assert flips > named or not NIGHTLY
    report("bit_flips", flipped=flips, named=named, harmless=flips - named, silent=0)


def chosen_replicas() -> list[str]:
    """The replicas of litelog's own logs, and of one other program's log; at night all of them."""
    return [*REPLICAS, *sampled(list(FOREIGN_REPLICAS), len(FOREIGN_REPLICAS), "replicas of other programs' logs")]


def judged(name: str, flips: list[Flip]) -> list[tuple[int, int]]:
    if not NIGHTLY:
        return [judge_flips(name, flips)]
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        return list(pool.map(partial(judge_flips, name), (flips[first::CHUNKS] for first in range(CHUNKS))))
