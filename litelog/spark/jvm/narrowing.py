"""Narrows a plan that Java holds to the conditions of a query: which parts are left, for which tasks, and what is known
of their records without reading them.

Java sends the plan back as it got it (``PackedPlan``). Everything is done with columns of its rows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.dataclass import dataclass
from litelog.spark.jvm.conditions import AGGREGATES, RECORDS, Function, read_condition
from litelog.spark.jvm.handover import describe_fields, describe_log, read_log
from litelog.spark.jvm.part_rows import PART, Kind, read_pieces
from litelog.spark.scan.partitions import LogPart
from litelog.spark.scan.schema import TYPES
from litelog.spark.scan.stated_facts import stated_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from litelog.spark.jvm.conditions import KnownAggregate, KnownCondition, QueriedLog
    from litelog.spark.scan.partitions import PlannedLog

    Numbers = npt.NDArray[np.int64]

MIN_TASK_BYTES = 32 << 20
"""The least bytes for each task, if there are more slots than tasks."""

_BOUNDS = ("first", "last", "since", "until")
_KNOWN = ("log", "first", "last", "records", "lowest", "highest")


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Inclusive bounds, for each of some rows."""

    first: Numbers
    last: Numbers
    since: Numbers
    until: Numbers

    def overlap(self, rows: Any) -> npt.NDArray[np.bool_]:
        """Which rows may have a wanted record."""
        possible: npt.NDArray[np.bool_] = (self.first <= self.last) & (self.since <= self.until)
        possible &= (self.first <= rows["last"]) & (rows["first"] <= self.last)
        possible &= (self.since <= rows["highest"]) & (rows["lowest"] <= self.until)
        return possible

    def part(self, chosen: Any) -> _Bounds:
        """The bounds of the chosen rows."""
        return _Bounds(self.first[chosen], self.last[chosen], self.since[chosen], self.until[chosen])


@dataclass(frozen=True, slots=True)
class HeldPlan:
    """A plan as Java holds it."""

    facts: dict[str, Any]
    rows: Any
    extras: memoryview

    @classmethod
    def read(cls, plan: bytes) -> HeldPlan:
        """Take a plan apart. Copies nothing."""
        start = 4 + int.from_bytes(plan[:4], "little")
        facts = json.loads(plan[4:start])
        rows = np.frombuffer(plan, PART, facts["parts"], start)
        return cls(facts, rows, memoryview(plan)[start + rows.nbytes :])

    def narrowed(self, conditions: Sequence[str], slots: int) -> bytes:
        """The plan of the parts that may hold a wanted record, dealt to tasks again.

        It names those of the conditions that all of its rows meet.
        """
        read = {text: read_condition(text) for text in conditions}
        taken = {text: one for text, one in read.items() if one is not None and self._can_apply(one)}
        logs = [queried.narrowed(taken.values()) for queried in self._logs()]
        left = self.rows[_bounds(logs, self.rows["log"]).overlap(self.rows)]
        if len(left) < len(self.rows):
            left["task"] = _deal(left["bytes"], self._most_bytes(), slots)
        changed = {"logs": [describe_log(one) for one in logs], "taken": [*taken], "parts": len(left)}
        head = json.dumps(self.facts | changed).encode()
        return b"".join([len(head).to_bytes(4, "little"), head, left.tobytes(), self.extras])

    def _can_apply(self, condition: KnownCondition) -> bool:
        return condition.column == "key" or bool(self.facts[f"by_{condition.column}"])

    def aggregates(self, groups: Sequence[str], functions: Sequence[str]) -> dict[str, Any] | None:
        """Find what is known of the aggregates of a query, or how tasks total records by their keys.

        ``KeyTotals.java`` describes the fields. Returns None if Spark has to make the aggregates of all records.
        """
        known = [AGGREGATES.get(function.lower()) for function in functions]
        wanted = [one for one in known if one is not None]
        if len(wanted) < len(known) or not self._states(wanted):
            return None
        by_key = [group.lower() for group in groups] == ["key"]
        values = None if groups else self.totals(wanted)
        if not by_key and values is None:
            return None
        keys = [("key", TYPES["key"], True)] if by_key else []
        results = [(f"_{at}", _type(one), not one.counts and not by_key) for at, one in enumerate(wanted)]
        read = [(RECORDS if one.counts else one.column, _type(one), False) for one in wanted]
        return {
            "schema": describe_fields(keys + results),
            "values": values,
            "read": describe_fields(keys + read),
            "functions": [one.function for one in wanted],
        }

    def _states(self, wanted: Sequence[KnownAggregate]) -> bool:
        """Whether no record of the logs has a null in the columns of the aggregates."""
        holds = {"timestamp": self.facts["timed"], "value": self.facts["valued"]}
        return self.facts["strict"] and all(holds.get(one.column, True) for one in wanted)

    def totals(self, wanted: Sequence[KnownAggregate]) -> list[int | None] | None:
        """The aggregates of all wanted records, where the least and the most of no records is None.

        Returns None if reading the log is the only way to know.
        """
        logs = self._logs()
        known = None if any(queried.needs_key for queried in logs) else self._known(logs)
        if known is None:
            return None
        within = _bounds(logs, known["log"])
        chosen = within.overlap(known)
        held, within = {name: numbers[chosen] for name, numbers in known.items()}, within.part(chosen)
        timed = (within.since <= held["lowest"]) & (held["highest"] <= within.until)
        whole = timed & (within.first <= held["first"]) & (held["last"] <= within.last)
        dense = held["last"] - held["first"] + 1 == held["records"]
        asks_times = any(one.column == "timestamp" and not one.counts for one in wanted)
        if not (whole | (timed & dense)).all() or (asks_times and not whole.all()):
            return None
        first, last = np.maximum(held["first"], within.first), np.minimum(held["last"], within.last)
        values = {
            (Function.SUM, "sequence"): np.where(whole, held["records"], last - first + 1),
            (Function.LEAST, "sequence"): first,
            (Function.MOST, "sequence"): last,
            (Function.LEAST, "timestamp"): held["lowest"],
            (Function.MOST, "timestamp"): held["highest"],
        }
        return [_total(one.function, values[one.function, "sequence" if one.counts else one.column]) for one in wanted]

    def _logs(self) -> list[QueriedLog]:
        return [read_log(described) for described in self.facts["logs"]]

    def _known(self, logs: Sequence[QueriedLog]) -> dict[str, Numbers] | None:
        """The stated facts about the records of each object, as columns, and its log; None if an object does not state
        them."""
        sealed = self.rows["kind"] == Kind.SEALED
        stated: list[tuple[int, ...]] = []
        for row in self.rows[~sealed]:
            for numbers in stated_facts(self._part(row, logs[row["log"]].log)):
                if numbers is None:
                    return None
                first, following, *others = numbers
                stated.append((int(row["log"]), first, following - 1, *others))
        again = np.zeros(len(self.rows), bool)  # several tasks read the sealed segment
        same = [self.rows[name][1:] == self.rows[name][:-1] for name in ("log", "index")]
        again[1:] = sealed[1:] & sealed[:-1] & same[0] & same[1]
        chosen, rest = sealed & ~again, np.array(stated, np.int64).reshape(-1, len(_KNOWN))
        return {name: np.concatenate([self.rows[name][chosen], rest[:, at]]) for at, name in enumerate(_KNOWN)}

    def _part(self, row: Any, log: PlannedLog) -> LogPart:
        extra = bytes(self.extras[row["extra"] : row["extra"] + row["extra_bytes"]])
        return LogPart(log, read_pieces(row.tobytes(), extra, log))

    def _most_bytes(self) -> int:
        """The bytes that the largest task of the plan reads."""
        starts = np.flatnonzero(np.diff(self.rows["task"], prepend=-1))
        return int(np.add.reduceat(self.rows["bytes"], starts).max())


def _bounds(logs: Sequence[QueriedLog], numbers: Numbers) -> _Bounds:
    """The bounds of the log of each row. ``numbers``: of the logs."""
    bounds = [queried.bounds() for queried in logs]
    return _Bounds(**{name: np.array([one[name] for one in bounds] or [0], np.int64)[numbers] for name in _BOUNDS})


def _type(aggregate: KnownAggregate) -> str:
    return TYPES["sequence" if aggregate.counts else aggregate.column]


def _total(function: Function, values: Numbers) -> int | None:
    if function is Function.SUM:
        return int(values.sum())
    best = np.min if function is Function.LEAST else np.max
    return int(best(values)) if len(values) else None


def _deal(sizes: Numbers, most: int, slots: int) -> Numbers:
    """A task for each part: evenly, in order, as few as keep all slots busy, and none with more than ``most`` bytes."""
    total = max(1, int(sizes.sum()))
    tasks = max((total + most) // (most + 1), min(slots, total // MIN_TASK_BYTES))
    middles = np.cumsum(sizes) - sizes + sizes // 2
    return middles * tasks // total
