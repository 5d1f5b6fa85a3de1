"""A rule of the library, and the library's code without it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemovedCode:
    """Code of one module, and its replacement."""

    module: str
    """``shipping/claiming`` is ``litelog/shipping/claiming.py``."""
    old: str
    new: str = ""

    @property
    def file(self) -> str:
        """The path of the module."""
        return f"litelog/{self.module}.py"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, a check or a sync."""

    name: str
    removals: tuple[RemovedCode, ...]
    """The code without which it is gone. If several guards do the same work, they remove all of them."""
    plan: str = ""
    """The plan (``guards.GUARDS``) that detects the removal of the rule."""
    why: str = ""
    """Why no plan detects the removal, as runs without the rule have shown."""


def found(name: str, plan: str, *removals: RemovedCode) -> Rule:
    """A rule whose removal a plan finds."""
    return Rule(name, removals, plan=plan)


def missed(name: str, why: str, *removals: RemovedCode) -> Rule:
    """A rule whose removal no plan finds."""
    return Rule(name, removals, why=why)
