"""The texts of Spark's conditions that tasks apply, and those that are left to Spark."""

from __future__ import annotations

import pytest

from litelog.spark.jvm.conditions import MOST, KnownCondition, QueriedLog, read_condition
from litelog.spark.options import Mode, Range
from litelog.spark.scan.partitions import PlannedLog


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("sequence = 3", KnownCondition("sequence", 3, 4)),
        ("sequence < 3", KnownCondition("sequence", None, 3)),
        ("sequence <= 3", KnownCondition("sequence", None, 4)),
        ("sequence > 3", KnownCondition("sequence", 4, None)),
        ("SEQUENCE >= 3", KnownCondition("sequence", 3, None)),
        ("sequence < -3", KnownCondition("sequence", None, 0)),
        ("sequence >= -3", KnownCondition("sequence", 0, None)),
        (f"sequence <= {MOST - 1}", KnownCondition("sequence", None, MOST)),
        ("timestamp > -3", KnownCondition("timestamp", -2, None)),
        ("Key IS NOT NULL", KnownCondition("key")),
        ("key = 0x", KnownCondition("key", keys=(b"",))),
        ("key = 0x6B31", KnownCondition("key", keys=(b"k1",))),
        ("key IN (0x6B31, 0x, 0x00)", KnownCondition("key", keys=(b"k1", b"", b"\0"))),
    ],
)
def test_a_condition_is_read(text: str, wanted: KnownCondition) -> None:
    assert read_condition(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        *(
            "sequence <=> 3",
            "sequence <> 3",
            "sequence = 3.0",
            "sequence = '3'",
            "sequence IN (3, 4)",
            "sequence = null",
        ),
        *(f"sequence > {MOST}", f"sequence = {-MOST - 1}", "NOT (sequence = 3)", "(sequence = 3) OR (key = 0x)"),
        *("key IS NULL", "key = 0x0", "key = '0x00'", "key = 0x0G", "key IN ()", "key IN (0x00, null)", "key < 0x00"),
        *(
            "value = 0x00",
            "value.sequence = 3",
            "`sequence` = 3",
            "sequence = null",
            "CAST(sequence AS int) = 3",
            "sequence = 3\n",
            "",
        ),
    ],
)
def test_any_other_condition_is_left_to_spark(text: str) -> None:
    assert read_condition(text) is None


def test_conditions_are_met_together() -> None:
    wanted = Range(first=2, stop=9, until=7)
    log = PlannedLog("log", "file:///log", {}, "litelog", None, False, None, None, wanted, Mode.FAILFAST, True)
    texts = ["sequence > 4", "sequence < 99", "timestamp >= 3", "key IN (0x61, 0x62)", "key IN (0x62, 0x63)"]
    conditions = [found for text in texts if (found := read_condition(text)) is not None]
    queried = QueriedLog(log).narrowed(conditions)
    assert queried.bounds() == {"first": 5, "last": 8, "since": 3, "until": 6}
    assert (queried.needs_key, queried.keys) == (True, (b"b",))
    assert queried.log.range.start == 2
    again = queried.narrowed([KnownCondition("key")])
    assert again == queried
