"""Parses what a query asks for, in the words of Spark: the texts of the optimizer's conditions and aggregates.

Java passes on what ``toString`` of each expression says. A text with none of the forms here is left to Spark.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from litelog.dataclass import dataclass
from litelog.spark.options import Range

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litelog.spark.scan.partitions import PlannedLog

LEAST, MOST = -(1 << 63), (1 << 63) - 1
"""The least and the greatest number in a column."""

_NUMBER = re.compile(r"(sequence|timestamp) (=|<|<=|>|>=) (-?[0-9]+)", re.IGNORECASE)
_BYTES = "0x(?:[0-9A-F]{2})*"
_KEYS = re.compile(rf"key (?:= ({_BYTES})|IN \(({_BYTES}(?:, {_BYTES})*)\))", re.IGNORECASE)
_ANY_KEY = "key is not null"

RECORDS = "count(*)"
"""A column that is 1 in each row, so that its sums count records."""


class Function(StrEnum):
    """How numbers are totalled."""

    SUM = "SUM"
    LEAST = "LEAST"
    MOST = "MOST"


@dataclass(frozen=True, slots=True)
class KnownAggregate:
    """A total of a column that has a number in each row. A sum is the number of rows."""

    function: Function
    column: str

    @property
    def counts(self) -> bool:
        """Whether it is the number of rows, whatever the column holds."""
        return self.function is Function.SUM


AGGREGATES: Final = {
    "count(*)": KnownAggregate(Function.SUM, "sequence"),
    **{f"count({column})": KnownAggregate(Function.SUM, column) for column in ("sequence", "timestamp", "value")},
    **{f"min({column})": KnownAggregate(Function.LEAST, column) for column in ("sequence", "timestamp")},
    **{f"max({column})": KnownAggregate(Function.MOST, column) for column in ("sequence", "timestamp")},
}
"""The aggregates that Java and Python make, by their text in lower case."""


@dataclass(frozen=True, slots=True)
class QueriedLog:
    """A log, and which records in its range a query wants."""

    log: PlannedLog
    needs_key: bool = False
    keys: tuple[bytes, ...] | None = None
    """The wanted keys; None: all."""

    def bounds(self) -> dict[str, int]:
        """The range of the log as inclusive bounds of sequences and times."""
        wanted = self.log.range
        first, since = (LEAST if bound is None else bound for bound in (wanted.first, wanted.since))
        last, until = (MOST if bound is None else bound - 1 for bound in (wanted.stop, wanted.until))
        return {"first": first, "last": last, "since": max(since, LEAST), "until": min(max(until, LEAST), MOST)}

    def narrowed(self, conditions: Iterable[KnownCondition]) -> QueriedLog:
        """The same log, of which the wanted records meet all conditions."""
        found = self
        for one in conditions:
            found = one.narrow(found)
        return found


@dataclass(frozen=True, slots=True)
class KnownCondition:
    """A condition on a column that the wanted records meet."""

    column: str
    low: int | None = None
    stop: int | None = None
    """Numbers are in [``low``, ``stop``). None: no bound."""
    keys: tuple[bytes, ...] | None = None
    """The wanted keys; None: all except null."""

    def narrow(self, queried: QueriedLog) -> QueriedLog:
        """The log with fewer wanted records."""
        own = queried.log.range
        if self.column == "sequence":
            return replace(queried, log=replace(queried.log, range=own.narrow(self.low, self.stop)))
        if self.column == "timestamp":
            timed = own.within_times(Range(since=self.low, until=self.stop))
            return replace(queried, log=replace(queried.log, range=timed))
        keys = queried.keys if self.keys is None else self.keys
        if queried.keys is not None and self.keys is not None:
            keys = tuple(key for key in queried.keys if key in self.keys)
        return replace(queried, needs_key=True, keys=keys)


def read_condition(text: str) -> KnownCondition | None:
    """The condition that a text states; None if Spark has to apply it."""
    if text.lower() == _ANY_KEY:
        return KnownCondition("key")
    if found := _KEYS.fullmatch(text):
        return KnownCondition("key", keys=tuple(bytes.fromhex(key[2:]) for key in (found[1] or found[2]).split(", ")))
    if (found := _NUMBER.fullmatch(text)) is None or not LEAST < int(found[3]) < MOST:
        return None
    column, operator, value = found[1].lower(), found[2], int(found[3])
    low = None if operator.startswith("<") else value + 1 if operator == ">" else value
    stop = None if operator.startswith(">") else value if operator == "<" else value + 1
    if column == "sequence":  # never below 0
        low, stop = (None if bound is None else max(0, bound) for bound in (low, stop))
    return KnownCondition(column, low, stop)
