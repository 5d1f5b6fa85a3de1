"""Turns verdicts and conditions into colours and marks, which never appear without words. No I/O."""

from __future__ import annotations

from enum import Enum

from litelog.server.verdict import Judgement, ReplicaCondition, Verdict


class Level(Enum):
    """A severity, as the page's style names it."""

    BAD = "bad"
    LATE = "late"
    WARNING = "warning"
    WAITING = "waiting"
    GOOD = "good"

    @property
    def mark(self) -> str:
        """The symbol next to the words."""
        return _MARKS[self]


_MARKS = {Level.BAD: "✗", Level.LATE: "▲", Level.WARNING: "!", Level.WAITING: "…", Level.GOOD: "✓"}

_LEVELS = {
    Verdict.UNSAFE: Level.BAD,
    Verdict.LATE: Level.LATE,
    Verdict.UNKNOWN: Level.WAITING,
    Verdict.SAFE: Level.GOOD,
}


def level_of(condition: ReplicaCondition) -> Level:
    """The severity of a replica's condition."""
    return Level.WARNING if condition.is_warning else _LEVELS[condition.verdict]


def level_of_all(judgement: Judgement) -> Level:
    """The severity of the verdict on all replicas."""
    if judgement.verdict is Verdict.SAFE and judgement.warnings:
        return Level.WARNING
    return _LEVELS[judgement.verdict]
