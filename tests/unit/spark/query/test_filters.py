"""Conditions of the fast path: refused ones, the rows that meet them, and the objects that are not read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")
import pyarrow
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import compute

from litelog.errors import ConfigError, TruncatedError
from litelog.spark.options import Range, parse_options
from litelog.spark.query.filters import HIGHEST, expression_of, narrow, parse_conditions, require_bound, time_bounds
from litelog.spark.scan.planning import plan
from tests.builders.log_builder import make_log as make_folder
from tests.builders.replica_builder import ReplicaBuilder, make_log
from tests.builders.spark_reading import rows, stored
from tests.sampling import examples

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def matching(table: pyarrow.Table, condition: compute.Expression) -> pyarrow.Table:
    """The rows of ``table`` that meet the condition."""
    from pyarrow import dataset

    return dataset.dataset(table).to_table(filter=condition)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (("sequence", ">=", 5), "'sequence' is not a condition: write a list"),
        ([["sequence", ">=", 5]], "['sequence', '>=', 5] is not a condition"),
        ([[("sequence", ">=", 5)]], "is not a condition"),
        ([("sequence", ">=")], "is not a condition"),
        ([("sequenze", ">=", 5)], "('sequenze', '>=', 5): a log has no column 'sequenze' (it has sequence"),
        ([("sequence", "=>", 5)], "('sequence', '=>', 5): operator '=>' must be one of =, =="),
        ([("sequence", "in", 5)], "in takes a list"),
        ([("key", "in", "k1")], "in takes a list"),
        ([("sequence", ">=", "5")], "('sequence', '>=', '5'): sequence is compared with a number"),
        ([("sequence", ">=", True)], "a number"),
        ([("sequence", "<", 1 << 70)], "a number of 64 bits"),
        ([("sequence", "in", [1, None])], "not with None"),
        ([("timestamp", ">=", "2026-11-21")], "timestamp is compared with a datetime with a time zone"),
        ([("timestamp", ">=", 5)], "a datetime with a time zone"),
        ([("timestamp", ">=", NOW.replace(tzinfo=None))], "a datetime with a time zone"),
        ([("key", "=", 5)], "bytes, or text"),
        ([("log", "=", b"a")], "compared with text"),
    ],
)
def test_a_condition_that_does_not_fit_is_named(where: Any, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_conditions(where)
    assert told in str(caught.value)


@pytest.mark.parametrize(("field", "bound"), [("other", 5), ("sequence", "5")])
def test_an_expression_that_does_not_fit_is_named(field: str, bound: object) -> None:
    with pytest.raises(ConfigError, match=r"where: \((other|sequence) > "):
        require_bound(compute.field(field) > bound, parse_options({"path": "/a"}))


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ([("sequence", ">=", 2), ("sequence", "<", 4)], [2, 3]),
        ([("sequence", "in", [4, 1]), ("sequence", "!=", 4)], [1]),
        ([("sequence", "not in", (0, 1, 2))], [3, 4]),
        ([("sequence", "in", [])], []),
        ([("sequence", "in", range(3, 9))], [3, 4]),
        ([("sequence", "==", 3)], [3]),
        ([("sequence", ">", -7), ("sequence", "<=", 0)], [0]),
        ([("key", "=", "k1")], [1]),
        ([("key", "in", [b"k1", "k3"])], [1, 3]),
        ([("timestamp", ">", (NOW + timedelta(seconds=2)).astimezone(timezone(timedelta(hours=1))))], [3, 4]),
    ],
)
def test_conditions_select_the_rows_that_meet_them(where: Any, numbers: list[int]) -> None:
    """The bounds on sequences also include all rows that meet the conditions."""
    table = pyarrow.table(
        {
            "sequence": [*range(5)],
            "key": [b"k%d" % n for n in range(5)],
            "timestamp": [NOW + timedelta(seconds=n) for n in range(5)],
        }
    )
    parsed = parse_conditions(where)
    found = matching(table, expression_of(parsed))["sequence"].to_pylist()
    assert found == numbers
    bounds = narrow(Range(), parsed)
    assert all(bounds.overlaps(number, number + 1) for number in numbers)


@pytest.mark.parametrize(
    ("operator", "value", "found"),
    [("=", "a", [b"a"]), ("!=", "a", [b"b"]), ("in", ["a"], [b"a"]), ("not in", ["a"], [b"b"])],
)
def test_a_key_that_is_null_fits_no_condition(operator: str, value: Any, found: list[bytes]) -> None:
    table = pyarrow.table({"key": pyarrow.array([b"a", None, b"b"])})
    where = expression_of(parse_conditions([("key", operator, value)]))
    assert matching(table, where)["key"].to_pylist() == found


def test_a_filter_narrows_and_keeps_the_start_that_was_asked_for() -> None:
    where = parse_conditions(
        [("sequence", ">=", 5), ("sequence", ">", 6), ("sequence", "<", 90), ("sequence", "<", 80)]
    )
    inner = narrow(Range(first=3, stop=100), where)
    assert (inner.first, inner.stop, inner.start) == (7, 80, 3)
    outer = narrow(Range(first=10, stop=20), where)
    assert (outer.first, outer.stop, outer.start) == (10, 20, 10)
    assert narrow(Range(), where).start is None
    empty = narrow(Range(), parse_conditions([("sequence", ">=", 20), ("sequence", "<", 10)]))
    assert (empty.first, empty.stop) == (20, 20)


@pytest.mark.parametrize("form", ["sealed", "wal", "folder", "lines"])
def test_a_filter_before_the_first_record_is_not_an_error(tmp_path: Path, form: str) -> None:
    """A requested start would be an error there. A filter after the last record finds no rows."""
    place, first, given = _begun(tmp_path, form)

    def found(*where: Any, **options: str) -> list[int]:
        parsed = parse_options({"path": place, **given, **options})
        narrowed = replace(parsed, range=narrow(parsed.range, parse_conditions(where)))
        return [row["sequence"] for row in rows(place, plan(narrowed), **given)]

    assert found(("sequence", ">=", 1)) == [*range(max(first, 1), first + 6)]
    assert found(("sequence", ">=", first + 2)) == [*range(first + 2, first + 6)]
    assert found(("sequence", "<", first + 2), ("sequence", ">=", first + 4)) == []
    assert found(("sequence", ">=", 1000)) == []
    if form != "lines":
        with pytest.raises(TruncatedError):
            found(("sequence", ">=", first + 2), startingsequence="1")


def _begun(tmp_path: Path, form: str) -> tuple[str, int, dict[str, str]]:
    """(place, first sequence, options) of a log of six records that, except for lines, begins after sequence 1."""
    if form in ("folder", "lines"):
        given = {"format": "lines"} if form == "lines" else {}
        log = make_folder(tmp_path / "log", given.get("format", "litelog"))
        for count in (2, 3, 3) if form == "folder" else (3, 3):
            log.roll(count)
        if form == "folder":
            log.delete(next(iter(log.files())))
        return log.folder, 2 if form == "folder" else 0, given
    builder, log_made = ReplicaBuilder(), make_log([[2, 1], [3]], first=140)
    generation = builder.add()
    generation.ship_segment(log_made[0], cuts=[0])
    generation.ship_segment(log_made[1], cuts=[0], final=None)
    if form == "sealed":
        generation.snapshot(1)
        generation.prune(1)
    return stored(builder.objects()), 140, {}


STAMP = pyarrow.timestamp("us", tz="UTC")
SCHEMA = pyarrow.schema([("sequence", pyarrow.int64()), ("timestamp", STAMP), ("key", pyarrow.binary())])
FIELD = compute.field("timestamp")


def at(time: int) -> pyarrow.Scalar:
    return pyarrow.scalar(time, STAMP)


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


@pytest.mark.slow
@given(conditions)
@settings(max_examples=examples(200))
def test_no_record_outside_is_wanted(where: Any) -> None:
    bounds = time_bounds(where, SCHEMA)
    table = pyarrow.table({"sequence": range(-60, 61), "timestamp": range(-60, 61), "key": [b"5"] * 121}).cast(SCHEMA)
    kept = table.filter(where)["timestamp"].cast(pyarrow.int64()).to_pylist()
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


def test_a_condition_that_never_holds_selects_no_time() -> None:
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
    """Rows for malformed data have no time, wherever in the log the data is."""
    assert time_bounds(where, SCHEMA) == Range(since=since)
