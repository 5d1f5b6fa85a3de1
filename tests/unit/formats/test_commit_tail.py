"""Zeros are told from other bytes, wherever those lie."""

from __future__ import annotations

import pytest

from litelog.formats.commit_tail import is_zero

STEP = 64 << 10


@pytest.mark.parametrize("size", [0, 1, 47, 48, 49, STEP, STEP + 1, 3 * STEP - 1])
def test_one_byte_tells_zeros_from_others(size: int) -> None:
    assert is_zero(memoryview(bytes(size)))
    for at in {0, 47, 48, size // 2, STEP - 1, STEP, size - 1} & {*range(size)}:
        data = bytearray(size)
        data[at] = 1
        assert not is_zero(memoryview(data)), at
