"""Every single bit of small replicas flipped: a verification names it, or what is restored is the same bytes."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import pytest

from tests.faults.figures import report
from tests.unit.test_verify_damage import REPLICAS, judge_flips

PROCESSES = 2


@pytest.mark.timeout(1800)
def test_no_flipped_bit_is_silent():
    flips = named = 0
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        for name in REPLICAS:
            for loud, harmless in pool.map(partial(judge_flips, name), range(8)):
                flips += loud + harmless
                named += loud
    assert named > 20 * (flips - named) > 0
    report("bit_flips", flipped=flips, named=named, harmless=flips - named, silent=0)
