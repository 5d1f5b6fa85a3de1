"""A plan that Java sends back is narrowed to the conditions of a query, or answers an aggregate."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from litelog.spark.jvm.conditions import LEAST, MOST, QueriedLog
from litelog.spark.jvm.handover import describe_log, hand_over
from litelog.spark.jvm.narrowing import MIN_TASK_BYTES, HeldPlan
from litelog.spark.jvm.part_rows import PART
from litelog.spark.options import Mode, Range, parse_options
from litelog.spark.scan.partitions import PlannedLog
from litelog.spark.scan.planning import plan, stated_columns
from tests.builders.planned_runs import put_sealed_and_wal

if TYPE_CHECKING:
    from pathlib import Path

OPEN = {"first": LEAST, "last": MOST, "since": LEAST, "until": MOST}
WANTED = ["COUNT(*)", "MIN(sequence)", "MAX(sequence)", "MIN(timestamp)", "MAX(timestamp)"]
HOLDS = {"strict": True, "timed": True, "valued": True, "by_sequence": True, "by_timestamp": True}


def planned(**bounds: int) -> PlannedLog:
    """A log of which a reader wants a range."""
    return PlannedLog(
        "log", "file:///log", {}, "litelog", None, False, None, None, Range(**bounds), Mode.FAILFAST, True
    )


def held(rows: Any, *logs: PlannedLog, **holds: bool) -> bytes:
    """A plan of sealed segments in logs."""
    described = [describe_log(QueriedLog(log)) for log in logs or (planned(), planned())]
    head = json.dumps({"parts": len(rows), "logs": described, **HOLDS, **holds}).encode()
    return b"".join([len(head).to_bytes(4, "little"), head, rows.tobytes(), b"extra"])


def conditions(bounds: dict[str, int]) -> list[str]:
    """The conditions of a query with inclusive bounds, as Spark writes them."""
    columns = {"first": "sequence >=", "last": "sequence <=", "since": "timestamp >=", "until": "timestamp <="}
    return [f"{columns[name]} {bound}" for name, bound in bounds.items() if bound not in (LEAST, MOST)]


def totals(plan: bytes, bounds: dict[str, int], wanted: list[str]) -> list[int | None] | None:
    """The aggregates of the records within the bounds; None if records have to be read."""
    narrowed = HeldPlan.read(plan).narrowed(conditions(bounds), 2)
    found = HeldPlan.read(narrowed).aggregates([], wanted)
    return None if found is None else found["values"]


def make_rows(random: Random, count: int) -> Any:
    """Rows of adjacent sealed segments, dense and not, a few for each task. Some are read by two tasks."""
    rows, first, task = np.zeros(count, PART), 0, 0
    for number, row in enumerate(rows):
        task += random.random() < 0.4
        if number and random.random() < 0.2:
            rows[number] = rows[number - 1]
            row["task"] = task
            continue
        records = random.randrange(1, 50)
        row["log"], row["index"], row["task"] = number >= count // 2, number, task
        row["records"], row["first"] = records, first
        row["last"] = first + records - 1 + random.choice([0, 0, 3])
        row["lowest"] = 1000 + first * 10
        row["highest"] = row["lowest"] + random.randrange(600)
        row["bytes"] = random.randrange(1, 2 * MIN_TASK_BYTES)
        first = int(row["last"]) + 1
    return rows


def possible(row: Any, bounds: dict[str, int]) -> bool:
    in_sequence = bounds["first"] <= row["last"] and row["first"] <= bounds["last"]
    return bool(in_sequence and bounds["since"] <= row["highest"] and row["lowest"] <= bounds["until"])


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_is_dealt_evenly_to_few_tasks(seed: int) -> None:
    random, slots = Random(seed), 4
    rows = make_rows(random, 40)
    first, since = random.randrange(300), 1000 + random.randrange(3000)
    bounds = {**OPEN, **random.choice([{"first": first, "last": first + 400}, {"since": since, "until": since + 4000}])}
    made = HeldPlan.read(HeldPlan.read(held(rows)).narrowed(conditions(bounds), slots))
    wanted = [row for row in rows if possible(row, bounds)]
    assert made.facts["parts"] == len(wanted) == len(made.rows)
    assert [row.tobytes()[4:] for row in made.rows] == [row.tobytes()[4:] for row in wanted]
    assert bytes(made.extras) == b"extra"
    tasks = made.rows["task"].tolist()
    assert tasks == sorted(tasks)
    most = max(int(rows["bytes"][rows["task"] == task].sum()) for task in rows["task"])
    total = int(made.rows["bytes"].sum())
    assert len(set(tasks)) <= max(total // (most + 1) + 1, slots)
    largest = max(int(made.rows["bytes"][made.rows["task"] == task].sum()) for task in tasks)
    assert largest <= most + int(made.rows["bytes"].max())


def test_a_plan_of_which_all_is_left_keeps_its_tasks() -> None:
    rows = make_rows(Random(1), 30)
    made = HeldPlan.read(HeldPlan.read(held(rows)).narrowed(["sequence >= 0"], 2))
    assert made.rows.tobytes() == rows.tobytes()


def test_the_bounds_of_a_log_count_too() -> None:
    rows = make_rows(Random(2), 30)
    left = HeldPlan.read(HeldPlan.read(held(rows, planned(stop=0), planned())).narrowed([], 2)).rows
    assert len(left) == 15
    assert set(left["log"]) == {1}


def totals_one_by_one(rows: Any, bounds: dict[str, int]) -> list[int | None] | None:
    counted: list[Any] = []
    for row in {int(row["index"]): row for row in rows}.values():
        if not possible(row, bounds):
            continue
        timed = bounds["since"] <= row["lowest"] and row["highest"] <= bounds["until"]
        if not (timed and bounds["first"] <= row["first"] and row["last"] <= bounds["last"]):
            return None  # the tests ask for times, which a part of a sealed segment does not state
        counted.append(row)
    edges = ((min, "first"), (max, "last"), (min, "lowest"), (max, "highest"))
    found = (best((int(row[name]) for row in counted), default=None) for best, name in edges)
    return [sum(int(row["records"]) for row in counted), *found]


@pytest.mark.parametrize("seed", range(30))
def test_aggregates_come_from_the_rows(seed: int) -> None:
    random = Random(seed)
    rows = make_rows(random, 12)
    edges = sorted(random.sample([*rows["first"].tolist(), 7], 2))
    bounds = {
        **OPEN,
        **random.choice([{}, {"first": edges[0], "last": edges[1] - 1}, {"first": MOST - 1}, {"since": 1200}]),
    }
    assert totals(held(rows), bounds, WANTED) == totals_one_by_one(rows, bounds)


def test_a_count_of_a_part_of_a_sealed_segment_needs_dense_sequences() -> None:
    rows = make_rows(Random(3), 1)
    rows["first"], rows["last"], rows["records"] = 10, 19, 10
    bounds = {**OPEN, "first": 12, "last": 15}
    assert totals(held(rows), bounds, WANTED[:3]) == [4, 12, 15]
    assert totals(held(rows), bounds, WANTED) is None
    rows["records"] = 9
    assert totals(held(rows), bounds, WANTED[:3]) is None


@pytest.mark.parametrize("reading", [{}, {"mode": "PERMISSIVE"}], ids=["strict", "lenient"])
def test_headers_of_wal_segments_count_too(tmp_path: Path, reading: dict[str, str]) -> None:
    """In a mode that shows damage, the rows are not those that headers state."""
    put_sealed_and_wal(tmp_path)
    options = parse_options({"path": str(tmp_path), **reading})
    made = b"".join(hand_over(plan(options).partitions, stated_columns(options)).chunks())
    wanted = None if reading else [14, 0, 13]
    assert totals(made, OPEN, WANTED[:3]) == wanted


def test_a_plan_names_the_conditions_that_its_rows_meet() -> None:
    asked = ["sequence >= 3", "key IS NOT NULL", "timestamp < 9", "value IS NOT NULL", "NOT (sequence = 4)"]
    for holds, taken in (
        ({}, asked[:3]),
        ({"by_timestamp": False}, asked[:2]),
        ({"by_sequence": False, "by_timestamp": False}, asked[1:2]),
    ):
        made = HeldPlan.read(HeldPlan.read(held(make_rows(Random(1), 3), **holds)).narrowed(asked, 2))
        assert made.facts["taken"] == taken


def test_tasks_total_records_by_key() -> None:
    plan = HeldPlan.read(held(make_rows(Random(1), 3)))
    assert plan.aggregates(["key"], ["COUNT(*)", "MAX(timestamp)"]) == {
        "schema": "`key` binary, `_0` bigint NOT NULL, `_1` timestamp NOT NULL",
        "values": None,
        "read": "`key` binary, `count(*)` bigint NOT NULL, `timestamp` timestamp NOT NULL",
        "functions": ["SUM", "MOST"],
    }
    assert plan.aggregates(["value"], ["COUNT(*)"]) is None
    assert plan.aggregates(["key"], ["MAX(value)"]) is None
    assert plan.aggregates(["key"], ["COUNT(DISTINCT sequence)"]) is None


@pytest.mark.parametrize("groups", [[], ["key"]])
def test_spark_makes_aggregates_of_columns_with_nulls(groups: list[str]) -> None:
    """Logs without timestamps have none, some formats have null values, and rows of damage have no values."""
    rows = make_rows(Random(1), 3)
    untimed = HeldPlan.read(held(rows, timed=False))
    assert untimed.aggregates(groups, ["COUNT(*)"]) is not None
    assert untimed.aggregates(groups, ["COUNT(timestamp)"]) is None
    unvalued = HeldPlan.read(held(rows, valued=False))
    assert unvalued.aggregates(groups, ["COUNT(timestamp)"]) is not None
    assert unvalued.aggregates(groups, ["COUNT(value)"]) is None
    assert HeldPlan.read(held(rows, strict=False)).aggregates(groups, ["COUNT(value)"]) is None


def test_records_with_a_wanted_key_have_to_be_counted() -> None:
    plan = HeldPlan.read(HeldPlan.read(held(make_rows(Random(1), 3))).narrowed(["key = 0x6B"], 2))
    assert plan.aggregates([], ["COUNT(*)"]) is None
    assert plan.aggregates(["key"], ["COUNT(*)"]) is not None
