"""The table of removed rules fits the library. ``python -m tests.simulation.removed_rules`` runs it."""

from __future__ import annotations

from tests.simulation.guards import GUARDS
from tests.simulation.removed_rules import ROOT, RULES


def test_each_removed_rule_occurs_once_in_the_library() -> None:
    removals = [removed for rule in RULES for removed in rule.removals]
    assert removals
    assert [removed.old for removed in removals if (ROOT / removed.file).read_text().count(removed.old) != 1] == []


def test_each_removed_rule_has_a_plan_or_a_reason_why_it_has_none() -> None:
    assert [rule.name for rule in RULES if not (rule.plan in GUARDS or (rule.why and not rule.plan))] == []


def test_no_two_removed_rules_have_the_same_name() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
