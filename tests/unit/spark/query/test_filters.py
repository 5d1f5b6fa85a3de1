"""Conditions of the fast path: which are refused and how, what they hold for, and that they only ever spare reading."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow
from pyarrow import compute, dataset

from litelog.errors import ConfigError, TruncatedError
from litelog.spark.options import Range, parse_options
from litelog.spark.query.filters import expression_of, narrow, parse_conditions, require_bound
from litelog.spark.scan.planning import plan
from tests.builders.log_builder import make_log as make_folder
from tests.builders.replica_builder import ReplicaBuilder, make_log
from tests.builders.spark_reading import rows, stored

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 21, tzinfo=UTC)


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


@pytest.mark.parametrize("expression", [compute.field("other") > 5, compute.field("sequence") > "5"])
def test_an_expression_that_does_not_fit_is_named(expression: Any) -> None:
    with pytest.raises(ConfigError, match=r"where: \((other|sequence) > "):
        require_bound(expression, parse_options({"path": "/a"}))


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
def test_conditions_mean_what_they_say(where: Any, numbers: list[int]) -> None:
    """And the sequences that they bound are at least those."""
    table = pyarrow.table(
        {
            "sequence": [*range(5)],
            "key": [b"k%d" % n for n in range(5)],
            "timestamp": [NOW + timedelta(seconds=n) for n in range(5)],
        }
    )
    parsed = parse_conditions(where)
    found = dataset.dataset(table).to_table(filter=expression_of(parsed))["sequence"].to_pylist()
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
    assert dataset.dataset(table).to_table(filter=where)["key"].to_pylist() == found


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
def test_a_filter_before_the_first_record_is_no_error(tmp_path: Path, form: str) -> None:
    """Which a start is that is asked for; and one behind the last record finds nothing."""
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
    """(place, first sequence, options) of a log of six records that, but for lines, begins behind sequence 1."""
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
