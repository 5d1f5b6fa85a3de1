"""The times that a condition bounds: none that it holds for lies outside, whatever it is."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import compute

from litelog.spark.options import Range
from litelog.spark.query.filters import HIGHEST, time_bounds
from tests.sampling import examples

STAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("sequence", pa.int64()), ("timestamp", STAMP), ("key", pa.binary())])
FIELD = compute.field("timestamp")


def at(time: int) -> pa.Scalar:
    return pa.scalar(time, STAMP)


COMPARISONS = {
    "<": FIELD.__lt__,
    "<=": FIELD.__le__,
    ">": FIELD.__gt__,
    ">=": FIELD.__ge__,
    "==": FIELD.__eq__,
    "!=": FIELD.__ne__,
}
simple = st.builds(
    lambda name, time: COMPARISONS[name](at(time)), st.sampled_from([*COMPARISONS]), st.integers(-50, 50)
)
others = st.sampled_from(
    [compute.field("key") == b"5", compute.field("sequence") > 3, FIELD.isin([at(4), at(9)]), compute.scalar(True)]
)
conditions = st.recursive(
    simple | others,
    lambda inner: (
        st.builds(lambda a, b: a & b, inner, inner)
        | st.builds(lambda a, b: a | b, inner, inner)
        | st.builds(lambda a: ~a, inner)
    ),
    max_leaves=6,
)


@given(conditions)
@settings(max_examples=examples(200))
def test_no_record_outside_is_wanted(where: Any) -> None:
    bounds = time_bounds(where, SCHEMA)
    table = pa.table({"sequence": range(-60, 61), "timestamp": range(-60, 61), "key": [b"5"] * 121}).cast(SCHEMA)
    kept = table.filter(where)["timestamp"].cast(pa.int64()).to_pylist()
    assert all(bounds.overlaps_times(time, time) for time in kept)


@pytest.mark.parametrize(
    ("where", "since", "until"),
    [
        (at(10) <= FIELD, 10, None),
        (at(10) > FIELD, None, 10),
        ((at(10) <= FIELD) & (at(20) >= FIELD) & (compute.field("key") == b"x"), 10, 21),
        (at(-7) == FIELD, -7, -6),
        ((at(10) <= FIELD) | (compute.field("key") == b"x"), None, None),
        (at(HIGHEST) >= FIELD, None, None),
        (reduce(lambda a, b: a & b, [at(n) <= FIELD for n in range(5)]), 4, None),
    ],
)
def test_simple_conditions_are_bounds(where: Any, since: int | None, until: int | None) -> None:
    assert time_bounds(where, SCHEMA) == Range(since=since, until=until)


def test_what_never_holds_wants_no_time() -> None:
    bounds = time_bounds(compute.scalar(False), SCHEMA)
    assert not any(bounds.overlaps_times(time, time) for time in (-(1 << 62), 0, 1 << 62))


def test_both_bounds_hold() -> None:
    assert Range(1, 2, 10, None).within_times(Range(5, 6, 7, 30)) == Range(1, 2, 10, 30)
    assert Range(since=5, until=20).within_times(Range(since=7, until=30)) == Range(since=7, until=20)


LATER = COMPARISONS[">="](at(5))


@pytest.mark.parametrize(
    ("where", "since"),
    [
        (LATER, 5),
        (FIELD.is_null(), None),
        (FIELD.is_null() | LATER, None),
        (compute.coalesce(FIELD, at(9)) >= at(5), None),
        (FIELD.is_valid() & LATER, 5),
    ],
)
def test_rows_without_a_time_lie_in_none(where: Any, since: int | None) -> None:
    """As those for what is malformed, wherever in the log that is."""
    assert time_bounds(where, SCHEMA) == Range(since=since)
