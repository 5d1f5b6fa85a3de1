"""The CRC-32C of a run is computed from those of its parts, without their bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.codec.checksum import combine, crc32c


def test_known_values() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
    assert crc32c(bytes(22)) == 0x32707625


@given(st.binary(), st.binary())
def test_a_run_may_be_checked_in_parts(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)
    assert combine(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1, 3_000_001])
def test_long_runs_combine(size: int) -> None:
    second = bytes(range(251)) * (size // 251 + 1)
    assert combine(crc32c(b"first"), crc32c(second[:size]), size) == crc32c(b"first" + second[:size])


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64), st.integers(0, 2**64))
def test_combining_is_associative_at_any_length(first: int, second: int, length: int, third_length: int) -> None:
    third = 0x12345678
    left = combine(combine(first, second, length), third, third_length)
    assert left == combine(first, combine(second, third, third_length), length + third_length)


@pytest.mark.slow
def test_a_length_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="not a length"):
        combine(1, 2, -1)
