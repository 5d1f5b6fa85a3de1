"""Columns come back as they were written, long or short, and anything else is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litelog.codec.json_columns import (
    PACKED_COUNT,
    read_differences,
    read_gapped,
    read_plain,
    read_plain_gapped,
    write_column,
    write_differences,
    write_gapped,
)

NUMBERS = st.integers(-(1 << 40), 1 << 40) | st.integers(-(1 << 31) - 1, (1 << 31) + 1)


@pytest.mark.slow
@given(st.lists(NUMBERS, max_size=5), st.sampled_from([0, 1, 30, PACKED_COUNT, 200]), st.integers(-9, 1 << 24))
def test_a_column_comes_back(some: list[int], more: int, step: int) -> None:
    column = (*some, *((some[-1] if some else 0) + number * step for number in range(more)))
    for written, found in (
        (write_column(column), read_plain),
        (write_differences(column), read_differences),
        (write_gapped(column), read_gapped),
    ):
        assert found("x", json.loads(json.dumps(written)), len(column)) == column


@given(st.lists(st.none() | NUMBERS, max_size=100))
def test_a_column_with_gaps_comes_back(column: list[int | None]) -> None:
    assert read_gapped("x", json.loads(json.dumps(write_gapped(column))), len(column)) == tuple(column)
    assert read_plain_gapped("x", json.loads(json.dumps(write_column(column)))) == tuple(column)


def test_a_long_column_of_small_numbers_is_packed() -> None:
    times = tuple(1_700_000_000_000_000 + number * 1_000_003 for number in range(10_000))
    written = write_differences(times)
    assert len(written) == 2
    assert len(json.dumps(written)) < 5.4 * len(times)
    assert isinstance(write_differences(times[: PACKED_COUNT - 1])[1], int)


@pytest.mark.parametrize(
    "written",
    [
        *(None, 5, "abc", {}, [1.0], [True], ["1"], [[1]], [1 << 64], [-(1 << 64)], [None], [1, None, 2]),
        *([1, "*"], [1, "AAA="], [1, ""], [1, "AAAAAA=="], ["AAAA", 1]),
    ],
)
def test_invalid_columns_are_refused(written: Any) -> None:
    for read in (read_plain, read_differences):
        with pytest.raises(ValueError, match=r"^x "):
            read("x", written, 3)
    if written not in ([None], [1, None, 2]):
        with pytest.raises(ValueError, match=r"^x "):
            read_gapped("x", written, 3)


@pytest.mark.slow
def test_sums_stay_in_range() -> None:
    with pytest.raises(ValueError, match="out of range"):
        read_differences("x", [(1 << 63), (1 << 63), 1], 3)
    with pytest.raises(ValueError, match="out of range"):
        read_gapped("x", [-(1 << 63), None, -(1 << 63)], 3)
