"""A rule of the library, and how the library looks without it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cut:
    """What is taken out of one module, and what takes its place."""

    module: str
    """``shipping/claiming`` is ``litelog/shipping/claiming.py``."""
    old: str
    new: str = ""

    @property
    def file(self) -> str:
        """Where the module is."""
        return f"litelog/{self.module}.py"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, a check or a sync."""

    name: str
    cuts: tuple[Cut, ...]
    """What removes it. Where several guards do the same work, that is all of them."""
    plan: str = ""
    """The guard (``guards.GUARDS``) that finds that it is gone."""
    why: str = ""
    """Why no plan finds that, as running without it has shown."""


def found(name: str, plan: str, *cuts: Cut) -> Rule:
    """A rule whose removal a plan finds."""
    return Rule(name, cuts, plan=plan)


def missed(name: str, why: str, *cuts: Cut) -> Rule:
    """A rule whose removal no plan finds."""
    return Rule(name, cuts, why=why)
