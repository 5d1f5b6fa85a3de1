"""The compiled CRC-32C of joined bytes is that of the code in Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.codec.checksum import combine
from litelog.native import checksums
from litelog.native.library import load, without_library

VALUES = st.integers(0, 2**32 - 1)


@pytest.mark.skipif(load() is None, reason="nothing is compiled")
@given(VALUES, VALUES, st.integers(0, 2**63 - 1) | st.integers(0, 2**21))
def test_both_combine_alike(first: int, second: int, length: int) -> None:
    with without_library():
        expected = combine(first, second, length)
    assert checksums.combine(first, second, length) == expected


def test_a_length_that_does_not_fit_is_left_to_python() -> None:
    assert checksums.combine(1, 2, 2**63) is None
    with without_library():
        assert checksums.combine(1, 2, 3) is None
