"""The table of removed rules fits the library: ``python -m tests.simulation.removed_rules`` runs what it says."""

from __future__ import annotations

from tests.simulation.guards import GUARDS
from tests.simulation.removed_rules import ROOT, RULES


def test_each_removed_rule_stands_once_in_the_library() -> None:
    removed = [part for rule in RULES for part in ((rule.file, rule.old, rule.new), *rule.also)]
    assert removed
    assert [old for file, old, _ in removed if (ROOT / file).read_text().count(old) != 1] == []


def test_each_removed_rule_has_a_plan_or_a_reason_why_it_has_none() -> None:
    assert [rule.name for rule in RULES if not (rule.plan in GUARDS or (rule.why and not rule.plan))] == []
