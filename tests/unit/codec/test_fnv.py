"""FNV-1a of many runs at once is that of each run, byte by byte."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from litelog.codec.fnv import BLOCK_BYTES, FEW_RUNS, fnv1a


def slowly(data: bytes, state: int = 0x811C9DC5) -> int:
    for byte in data:
        state = (state ^ byte) * 0x01000193 & 0xFFFF_FFFF
    return state


def check(lengths: list[int], seed: int) -> None:
    random = Random(seed)
    gaps = [random.randrange(20) for _ in lengths]
    data = random.randbytes(sum(lengths) + sum(gaps))
    ends = np.cumsum(np.array(lengths, np.int64) + np.array(gaps, np.int64))
    starts = ends - np.array(lengths, np.int64)
    found = fnv1a(memoryview(data), starts, ends).tolist()
    assert found == [slowly(data[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def test_the_vectors_of_the_algorithm() -> None:
    data = b"foobar" + b"a"
    starts, ends = np.array([0, 0, 6]), np.array([0, 6, 7])
    assert fnv1a(data, starts, ends).tolist() == [0x811C9DC5, 0xBF9CF968, 0xE40C292C]


@pytest.mark.slow
@pytest.mark.parametrize("runs", [0, 1, 3, FEW_RUNS - 1, FEW_RUNS, 3 * FEW_RUNS])
@pytest.mark.parametrize("longest", [0, 1, 7, 8, 9, 70])
def test_each_run_has_its_own_checksum(runs: int, longest: int) -> None:
    random = Random(runs)
    check([random.randrange(longest + 1) for _ in range(runs)], runs)


@pytest.mark.slow
def test_long_runs_are_taken_a_block_at_a_time() -> None:
    check([BLOCK_BYTES + 9], 1)
    check([5, BLOCK_BYTES // 2 + 1, 0, BLOCK_BYTES // 3], 2)
    check([10] * FEW_RUNS + [5000], 3)


def test_a_run_continues_from_a_state() -> None:
    data = b"many words, and more"
    before = fnv1a(data, np.array([0]), np.array([9]))
    assert fnv1a(data, np.array([9]), np.array([len(data)]), before).tolist() == [slowly(data)]
