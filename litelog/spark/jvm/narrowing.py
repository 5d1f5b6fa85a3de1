"""Narrows a plan that Java holds to the bounds of a query: which parts are left, for which tasks, and what is known of
their records without reading them.

Java sends the plan back as it got it (``PackedPlan``). Everything is done with columns of its rows.
"""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from litelog.spark.jvm.part_rows import PART, Kind, read_pieces
from litelog.spark.jvm.pickles import unpickled
from litelog.spark.scan.partitions import LogPart
from litelog.spark.scan.stated_facts import stated_facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

MIN_TASK_BYTES = 32 << 20
"""The least bytes for each task, if there are more slots than tasks."""

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

    def narrowed(self, bounds: Mapping[str, int], slots: int) -> bytes:
        """The plan of the parts that may hold a record within the bounds, dealt to tasks again."""
        left = self.rows[self._bounds(bounds, self.rows["log"]).overlap(self.rows)]
        if len(left) < len(self.rows):
            left["task"] = _deal(left["bytes"], self._most_bytes(), slots)
        head = json.dumps({**self.facts, "parts": len(left)}).encode()
        return b"".join([len(head).to_bytes(4, "little"), head, left.tobytes(), self.extras])

    def totals(self, bounds: Mapping[str, int], wanted: Sequence[Mapping[str, str]]) -> list[int | None] | None:
        """The aggregates of the records within the bounds, of which each has a ``function`` and a ``column``.

        Returns None if reading the log is the only way to know. The least and the most of no records is None.
        """
        known = self._known()
        if known is None:
            return None
        within = self._bounds(bounds, known["log"])
        chosen = within.overlap(known)
        held, within = {name: numbers[chosen] for name, numbers in known.items()}, within.part(chosen)
        timed = (within.since <= held["lowest"]) & (held["highest"] <= within.until)
        whole = timed & (within.first <= held["first"]) & (held["last"] <= within.last)
        dense = held["last"] - held["first"] + 1 == held["records"]
        asks_times = any(one["column"] == "timestamp" and one["function"] != "COUNT" for one in wanted)
        if not (whole | (timed & dense)).all() or (asks_times and not whole.all()):
            return None
        first, last = np.maximum(held["first"], within.first), np.minimum(held["last"], within.last)
        count = int(np.where(whole, held["records"], last - first + 1).sum())
        columns = {"LEAST": {"sequence": first, "timestamp": held["lowest"]}}
        columns["MOST"] = {"sequence": last, "timestamp": held["highest"]}
        found: list[int | None] = []
        for one in wanted:
            if one["function"] == "COUNT":
                found.append(count)
            else:
                values = columns[one["function"]][one["column"]]
                best = np.min if one["function"] == "LEAST" else np.max
                found.append(int(best(values)) if len(values) else None)
        return found

    def _known(self) -> dict[str, Numbers] | None:
        """What is known of the records of each object, as columns, and its log; None if some object does not say it."""
        sealed = self.rows["kind"] == Kind.SEALED
        stated: list[tuple[int, ...]] = []
        for row in self.rows[~sealed]:
            for numbers in stated_facts(self._part(row)):
                if numbers is None:
                    return None
                first, following, *others = numbers
                stated.append((int(row["log"]), first, following - 1, *others))
        again = np.zeros(len(self.rows), bool)  # several tasks read the sealed segment
        same = [self.rows[name][1:] == self.rows[name][:-1] for name in ("log", "index")]
        again[1:] = sealed[1:] & sealed[:-1] & same[0] & same[1]
        chosen, rest = sealed & ~again, np.array(stated, np.int64).reshape(-1, len(_KNOWN))
        return {name: np.concatenate([self.rows[name][chosen], rest[:, at]]) for at, name in enumerate(_KNOWN)}

    def _part(self, row: Any) -> LogPart:
        log = unpickled(b64decode(self.facts["logs"][row["log"]]["pickled"]))
        extra = bytes(self.extras[row["extra"] : row["extra"] + row["extra_bytes"]])
        return LogPart(log, read_pieces(row.tobytes(), extra, log))

    def _bounds(self, bounds: Mapping[str, int], numbers: Numbers) -> _Bounds:
        """The intersection of the bounds of a query with those of the log of each row. ``numbers``: of the logs."""
        logs = self.facts["logs"]
        by_log = {
            name: np.array([best(bounds[name], log["bounds"][name]) for log in logs] or [0], np.int64)[numbers]
            for name, best in (("first", max), ("last", min), ("since", max), ("until", min))
        }
        return _Bounds(**by_log)

    def _most_bytes(self) -> int:
        """The bytes that the largest task of the plan reads."""
        starts = np.flatnonzero(np.diff(self.rows["task"], prepend=-1))
        return int(np.add.reduceat(self.rows["bytes"], starts).max())


def _deal(sizes: Numbers, most: int, slots: int) -> Numbers:
    """A task for each part: evenly, in order, as few as keep all slots busy, and none with more than ``most`` bytes."""
    total = max(1, int(sizes.sum()))
    tasks = max((total + most) // (most + 1), min(slots, total // MIN_TASK_BYTES))
    middles = np.cumsum(sizes) - sizes + sizes // 2
    return middles * tasks // total
