"""``etc/docs/guarantees.md`` names for each fault the tests that cause it."""

from __future__ import annotations

import re

from tests.builders.documents import ROOT, section


def test_every_fault_names_tests_that_exist() -> None:
    rows = re.findall(r"^\| (.*) \|$", section("etc/docs/guarantees.md", "Faults that tests cause"), re.MULTILINE)[2:]
    assert len(rows) > 10
    for row in rows:
        modules = re.findall(r"`((?:\.\./)?[\w/]+)`", row.split(" | ")[-1])
        assert modules, row
        assert [each for each in modules if not (ROOT / "tests" / "faults" / f"{each}.py").is_file()] == [], row
